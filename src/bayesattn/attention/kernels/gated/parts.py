"""A causal triangle cut into squares and rectangles, in each of which float32 holds c_i - c_j.

The sums c of log forget gates grow with the text: at c = -10,000 a float32 is off by 5e-4. In a
rectangle of queries i >= m and keys j < m the gates before m and those after it part,

    c_i - c_j = (c_i - c_m) + (c_m - c_j),

both at most 0: the first is a number per row and is added to the evidence, the second goes with the
keys and is exact where it is small, which is where it matters. On the diagonal squares are halved
until they are small; torch's causal kernel wastes less on those, too.
"""

from typing import NamedTuple

from torch import Tensor

_LEAST = 128
"""Rows of a square. Gates so steep that float32 loses c here leave a query its own key only."""
_RANGE = 64.0
"""Change of c across a chunk of queries that float32 holds to 4e-6."""


class Part(NamedTuple):
    """Queries a .. b-1 against keys lo .. hi-1, or against those up to their own if causal."""

    a: int
    b: int
    lo: int
    hi: int
    causal: bool
    origin: int | None
    """Where c counts from; None if the keys are exempt from the gates."""


def cut(offset: int, end: int, exempt: int, decay: Tensor | None) -> list[Part]:
    """Parts of the band of queries offset .. end-1 and keys 0 .. end-1, squares first.

    Each query is in one causal square, and in rectangles for the keys before it.
    """
    exempt = end if decay is None else min(exempt, end)
    parts: list[Part] = []
    free = min(max(offset, exempt), end)  # from here on queries see gated keys
    if offset < free:
        parts += _square(offset, free, gates=False)
        if offset:
            parts.append(Part(offset, free, 0, offset, causal=False, origin=None))
    if free < end and decay is not None:
        parts += _square(free, end, gates=True)
        if exempt < free:
            parts.append(Part(free, end, exempt, free, causal=False, origin=free))
        if exempt:
            parts.append(Part(free, end, 0, exempt, causal=False, origin=None))
    return sorted(parts, key=lambda part: not part.causal)


def _square(a: int, b: int, *, gates: bool) -> list[Part]:
    middle = (a + b) // 2
    origin = middle if gates else None
    if b - a <= _LEAST:
        return [Part(a, b, a, b, causal=True, origin=origin)]
    halves = (*_square(a, middle, gates=gates), *_square(middle, b, gates=gates))
    return [*halves, Part(middle, b, a, middle, causal=False, origin=origin)]


def chunks(a: int, b: int, decay: Tensor | None) -> list[tuple[int, int]]:
    """Queries a .. b-1 in runs across which c changes little."""
    if decay is None or b - a <= _LEAST or _change(decay[..., a:b]) <= _RANGE:
        return [(a, b)]
    middle = (a + b) // 2
    return [*chunks(a, middle, decay), *chunks(middle, b, decay)]


def _change(decay: Tensor) -> float:
    return float((decay[..., 0] - decay[..., -1]).amax())
