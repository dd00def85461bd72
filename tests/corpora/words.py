"""How words.json was made: byte-level BPE that keeps every digit by itself."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bayesattn.corpora import documents
from bayesattn.corpora.sentences import FILLER, KINDS, VALUES, WORDS, wording
from bayesattn.corpora.text import EMBEDDED
from bayesattn.corpora.tokenizers import SPECIAL

WORDS_SIZE = 1024
REPEATS = 1000
"""How often each sentence of a needle is learnt from, beside the corpus."""


def make_words_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lessons(), trainer)
    return tokenizer


def _lessons():
    yield from documents(EMBEDDED)
    for sentence in all_sentences():
        yield from [sentence] * REPEATS


def all_sentences():
    """Every piece of every kind, with each word in its place once: what a tokenizer should know."""
    pieces = [FILLER]
    for kind in KINDS:
        for values in VALUES:
            words = wording(kind, values)
            pieces += [words.head, words.needle, words.question]
    plain = [piece.replace("{value}", "1").replace("{key}", "one") for piece in pieces]
    return [*dict.fromkeys(plain), *(f" {word}" for word in WORDS)]
