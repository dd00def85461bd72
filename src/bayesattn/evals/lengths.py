"""Lengths as people write them: "10x" of the training length, or a number of tokens or steps."""

from bayesattn.checks import length_multiple, shortened
from bayesattn.tunnels.base import Tunnel


def stretch(tunnel: Tunnel, length: str) -> Tunnel:
    """`tunnel` at a length such as "10x", a multiple of its own, or "50", a number of steps."""
    factor = length_multiple(length, tunnel.horizon)
    if factor == 0:
        raise ValueError(
            f"length is a multiple such as 10x or a number of steps, not {shortened(length)}"
        )
    longer = tunnel if factor == 1 else tunnel.stretched(factor)
    if length.isdigit() and longer.horizon != int(length):
        raise ValueError(
            f"{tunnel.name} always has {tunnel.horizon} steps; give a multiple such as 10x"
        )
    return longer


def token_lengths(text: str, trained: int) -> dict[str, int]:
    """Number of tokens by what was written, such as "1x,8x,4096", shortest first.

    8x is a multiple of `trained`, the tokens of a training sequence.
    """
    lengths: dict[str, int] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        lengths[word] = round(length_multiple(word, trained) * trained)
        if lengths[word] < 1:
            raise ValueError(
                f"a length is a multiple such as 8x or a number of tokens, not {shortened(word)}"
            )
    if not lengths:
        raise ValueError("name at least one length, such as 1x,2x,4x")
    return dict(sorted(lengths.items(), key=lambda item: item[1]))


def one_length(text: str, trained: int) -> int:
    length, *more = token_lengths(text, trained).values()
    if more:
        raise ValueError(f"give one length, not {text!r}")
    return length
