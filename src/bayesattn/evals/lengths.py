"""Lengths in options: a multiple of the training length ("10x"), or a number."""

from bayesattn.checks import length_multiple, shortened
from bayesattn.tunnels.base import Tunnel


def stretch(tunnel: Tunnel, length: str) -> Tunnel:
    """`tunnel` at a length: "10x" its own length, or a number of steps such as "50"."""
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
    """Numbers of tokens by their text in lists such as "1x,8x,4096", shortest first.

    8x is a multiple of `trained`, the number of tokens of a training sequence.
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
