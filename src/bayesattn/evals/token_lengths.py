"""Lengths of a prompt as people write them: "1x,2x,500x" of the training length, or in tokens."""

import re


def token_lengths(text: str, trained: int) -> dict[str, int]:
    """Number of tokens by what was written, shortest first.

    Args:
        text: separated by commas, each a multiple such as 8x or a number of tokens.
        trained: tokens of a training sequence.
    """
    lengths: dict[str, int] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        if times := re.fullmatch(r"(\d+(?:\.\d+)?)x", word):
            tokens = round(float(times[1]) * trained)
        else:
            tokens = int(word) if re.fullmatch(r"\d+", word) else 0
        if tokens < 1:
            raise ValueError(
                f"a length is a multiple such as 8x or a number of tokens, not {word!r}"
            )
        lengths[word] = tokens
    if not lengths:
        raise ValueError("name at least one length, such as 1x,2x,4x")
    return dict(sorted(lengths.items(), key=lambda item: item[1]))


def one_length(text: str, trained: int) -> int:
    """Number of tokens of a single one."""
    lengths = list(token_lengths(text, trained).values())
    if len(lengths) != 1:
        raise ValueError(f"give one length, not {text!r}")
    return lengths[0]
