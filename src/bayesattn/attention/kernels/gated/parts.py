"""A causal triangle cut into squares and rectangles, in each of which float32 holds c_i - c_j.

The sums c of log forget gates grow with the text: at c = -10,000 a float32 is off by 5e-4. In a
rectangle of queries i >= m and keys j < m the gates before m and those after it part,

    c_i - c_j = (c_i - c_m) + (c_m - c_j),

both at most 0: the first is a number per row and is added to the evidence, the second goes with the
keys and is exact where it is small, which is where it matters. On the diagonal squares are halved
until they are small, which torch's causal kernel likes, too, and c changes little across them.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

_SQUARE = 128
"""Rows of a square, at most."""
_LEAST = 16
"""Rows of the smallest square."""
_RANGE = 128.0
"""Change of temper · c across a square that float32 holds to 4e-6, counted from its middle."""

Change = Callable[[int, int], float]
"""By how much temper · c changes from token a to token b-1, in any head."""


class Part(NamedTuple):
    """Queries a .. b-1 against keys lo .. hi-1, or against those up to their own if causal."""

    a: int
    b: int
    lo: int
    hi: int
    causal: bool
    origin: int | None
    """Where c counts from; None if the keys are exempt from the gates."""


def cut(offset: int, end: int, exempt: int, change: Change | None) -> list[Part]:
    """Parts of the band of queries offset .. end-1 and keys 0 .. end-1, squares first.

    Each query is in one causal square, and in rectangles for the keys before it. Without gates,
    where `change` is None, all keys are exempt.
    """
    exempt = end if change is None else min(exempt, end)
    parts: list[Part] = []
    free = min(max(offset, exempt), end)  # from here on queries see gated keys
    if offset < free:
        parts += _square(offset, free, None)
        if offset:
            parts.append(Part(offset, free, 0, offset, causal=False, origin=None))
    if free < end:
        parts += _square(free, end, change)
        if exempt < free:
            parts.append(Part(free, end, exempt, free, causal=False, origin=free))
        if exempt:
            parts.append(Part(free, end, 0, exempt, causal=False, origin=None))
    return sorted(parts, key=lambda part: not part.causal)


def _square(a: int, b: int, change: Change | None) -> list[Part]:
    middle = (a + b) // 2
    origin = None if change is None else middle
    if b - a <= _SQUARE and (change is None or b - a <= _LEAST or change(a, b) <= _RANGE):
        return [Part(a, b, a, b, causal=True, origin=origin)]
    halves = (*_square(a, middle, change), *_square(middle, b, change))
    return [*halves, Part(middle, b, a, middle, causal=False, origin=origin)]


def chunks(a: int, b: int, change: Change | None) -> list[tuple[int, int]]:
    """Queries a .. b-1 in runs across which c changes little."""
    if change is None or b - a <= _LEAST or change(a, b) <= _RANGE / 2:
        return [(a, b)]
    middle = (a + b) // 2
    return [*chunks(a, middle, change), *chunks(middle, b, change)]


def block_rows(decay: Tensor, temper: Tensor | None, offset: int, most: int) -> list[int]:
    """Rows of blocks across which c changes little, for each head: `most`, or halves of it."""
    steepest = 1.0 if temper is None else temper.abs().amax(-1)
    found = [most] * decay.shape[1]
    own = decay[..., offset:]
    while most > _LEAST:
        starts = own[..., ::most]
        ends = own.roll(1 - most, -1)[..., ::most].clone()
        ends[..., -1] = own[..., -1]
        gone = (starts - ends).amax((0, 2)) * steepest
        most = max(1, most // 2)
        far = gone > _RANGE / 2
        found = [most if far[head] else n for head, n in enumerate(found)]
    return found
