"""The log-prior of a causal band without its matrix: views over one reversed distance table.

In local coordinates keys are 0 .. end-1 and queries offset .. end-1. A block of queries a .. b-1 is
taken in reverse, row p holding query i = b-1-p, because then the distance to key j,

    i - j = b-1 - (p + j),

depends on p + j only, and a matrix that depends on p + j is a view with both strides 1 over

    reversed[m] = t[end-1 - m]   for 0 <= end-1-m < span,  invisible elsewhere

starting at column end - b. No negative strides (torch has none), no copy, O(H·T) memory.
"""

import math
import threading
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from bayesattn.attention.visibility import Visibility

INVISIBLE = float("-inf")
_kept = threading.local()


@dataclass(frozen=True)
class Band:
    """A reversed table [H, end + block - 1] and what it leaves visible."""

    reversed: Tensor
    """Log-prior by reversed distance; finite everywhere (0 where invisible)."""
    masked: Tensor
    """The same, -inf where invisible."""
    end: int
    span: int
    exempt: int

    @staticmethod
    def of(table: Tensor, seen: Visibility, block: int) -> "Band":
        """Reverse the distances of a table [H, >= span] that a run sees, for blocks of queries."""
        end, span = seen.end, seen.span
        line = table.new_zeros(table.shape[0], end + block - 1)
        line[:, end - span : end] = table[:, :span].flip(1)
        masked = line.clone()
        masked[:, : end - span] = INVISIBLE
        masked[:, end:] = INVISIBLE
        return Band(line, masked, end, span, seen.exempt)

    def heads(self, some: slice) -> "Band":
        return replace(self, reversed=self.reversed[some], masked=self.masked[some])

    def lowest(self, a: int) -> int:
        """First key that any query from a on sees."""
        return max(0, a - self.span + 1)

    def view(self, a: int, b: int, lo: int, hi: int) -> Tensor:
        """[H, b-a, hi-lo] log-prior of queries b-1 .. a against keys lo .. hi-1, not copied."""
        return self._over(self.masked, a, b, lo, hi)

    def hidden(self, a: int, b: int, lo: int, hi: int) -> Tensor:
        """[1, b-a, hi-lo] 0 where the key is visible, -inf elsewhere."""
        columns = self.columns(a, b, lo, hi)
        line = self.masked[:1, columns] - self.reversed[:1, columns]
        return line.as_strided((1, b - a, hi - lo), (1, 1, 1))

    def _over(self, line: Tensor, a: int, b: int, lo: int, hi: int) -> Tensor:
        """The same over a line [H, end + block - 1] of values by reversed distance."""
        start = line.storage_offset() + self.end - b + lo
        return line.as_strided((line.shape[0], b - a, hi - lo), (line.shape[1], 1, 1), start)

    def columns(self, a: int, b: int, lo: int, hi: int) -> slice:
        """Columns of the reversed table under that view: p + j runs over hi-lo + b-a-1 values."""
        return slice(self.end - b + lo, self.end - b + lo + hi - lo + b - a - 1)

    def tempered(
        self, temper: Tensor | None, a: int, b: int, lo: int, hi: int, out: Tensor
    ) -> Tensor:
        """`view` with row p multiplied by temper[:, p] and exempt keys at 0, written into `out`.

        What is invisible is masked after the multiplication, since -inf · 0 is NaN at n = 1. Where
        a window ends or keys are exempt it is built in skewed layout, rows of p + j, in which it is
        an outer product and invisible pairs are whole columns.
        """
        heads, rows = self.reversed.shape[0], b - a
        if temper is not None and lo >= max(self.exempt, b - self.span):
            tile = out[: heads * rows * (hi - lo)].view(heads, rows, hi - lo)
            torch.mul(self._over(self.reversed, a, b, lo, hi), temper[:, :, None], out=tile)
            if hi > (first := max(lo, a + 1)):  # later than some of the queries
                tile[:, :, first - lo :] += self.hidden(a, b, first, hi)
            return tile
        line = self.reversed[:, None, self.columns(a, b, lo, hi)]
        width = line.shape[2]
        skewed = out[: heads * rows * width].view(heads, rows, width)
        if temper is None:
            skewed.copy_(line)
        else:
            torch.mul(temper[:, :, None], line, out=skewed)
        if b - self.span > lo:
            skewed[:, :, : b - self.span - lo] = INVISIBLE
        if b - lo < width:
            skewed[:, :, b - lo :] = INVISIBLE
        tile = unskew(skewed, hi - lo)
        if lo < self.exempt:
            free = tile[:, :, : self.exempt - lo]
            free.masked_fill_(free > INVISIBLE, 0.0)
        return tile


def unskew(skewed: Tensor, keys: int) -> Tensor:
    """[H, rows, keys] matrix in a skewed buffer [H, rows, keys+rows-1]: entry p, j at p, p+j."""
    heads, rows, width = skewed.shape
    return skewed.as_strided(
        (heads, rows, keys), (rows * width, width + 1, 1), skewed.storage_offset()
    )


def drop_tiny_(scores: Tensor) -> Tensor:
    """Base-2 logarithms of shares as -inf where the share, times anything, would be subnormal.

    Processors take a hundred times as long for products of such numbers, and a local prior makes
    many. In float32 they begin at 2^-126; a share below 2^-100 is nothing.
    """
    least = 0.8 * math.log2(torch.finfo(scores.dtype).tiny)
    return torch.threshold_(scores, least, INVISIBLE)


def split_first(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """[n · m, ...] as [n, m, ...] for lead n, m: a view."""
    return x.view(*lead, *x.shape[1:])


def scratch(purpose: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of any content, valid until the same thread asks again for the same purpose.

    A fresh buffer of a few megabytes costs a page fault every four kilobytes, which in short
    sequences is a good part of the attention itself. One buffer per purpose, thread and dtype is
    kept instead; it grows to the largest block or tile, some ten megabytes.
    """
    buffers: dict[tuple[str, torch.dtype], Tensor] = _kept.__dict__.setdefault("buffers", {})
    key, numel = (purpose, like.dtype), prod(shape)
    buffer = buffers.get(key)
    if buffer is None or buffer.numel() < numel:
        with torch.inference_mode(False):  # or it could never be written to outside
            buffer = buffers[key] = torch.empty(numel, dtype=like.dtype)
    return buffer[:numel].view(shape)
