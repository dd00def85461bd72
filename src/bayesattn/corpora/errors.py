"""What can be wrong with a corpus."""


class CorpusError(ValueError):
    """One sentence about text, tokenizer or needle that says what to change."""
