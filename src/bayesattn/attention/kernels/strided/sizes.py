"""How large queries, keys and values are: all that `plan` has to know of them, read once a call.

Rows are taken in blocks of CHUNK, from the first query on, and keys in chunks of as many, such that
both begin together: block b lies on chunk `shift + b`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.attention.terms import Terms

CHUNK = 128
"""Keys that are kept or left out together, and rows that decide together."""
_SLACK = 2.0**-16  # of |q||k|: above what float32 rounds in a sum of products


class Sizes(NamedTuple):
    """Of N sequences, h heads, the blocks of their rows (R) and the chunks of their keys (C)."""

    ground: Tensor
    """[N, h, T] a lower bound of each row's log-evidence."""
    least: Tensor
    """[N, h, R] largest exponent of a key of size 0 at the top of the prior, less the ground."""
    most: Tensor
    """[N, h, R] the same for a key of the largest size."""
    factor: Tensor
    """[h, R] smallest factor of the prior."""
    keys: Tensor
    """[N, h, C] largest key of each chunk, 1 for the largest of all."""
    beside: Tensor
    """[N, h, C, 2] logs of the mean size of keys and of values in each chunk."""
    largest: Tensor
    """[N, h, C, 2] logs of the largest ones."""
    shift: int
    before: int
    """Keys that the first chunk lacks."""


def measure(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, heads: Tensor, evidence: Tensor | None
) -> Sizes:
    """Sizes of some heads of a run; arguments as of `plan`."""
    table, content, temper, seen, scale = terms[:5]
    assert table is not None
    table, wide, end = table.detach(), table.dtype, seen.end
    shared = heads // (q.shape[1] // k.shape[1])
    before = -seen.offset % CHUNK

    norms = [torch.linalg.vector_norm(x, dim=-1, dtype=wide)[:, shared] for x in (k, v)]
    around = (before, -(before + end) % CHUNK)
    chunks = [_cut(pad(x, around)) for x in norms]
    count = _cut(pad(torch.ones(end, dtype=wide), around)).sum(-1)
    tiny = torch.finfo(wide).tiny  # so that nothing is as large as nothing
    largest = torch.stack([x.amax(-1) for x in chunks], -1).clamp(min=tiny)
    mean = torch.stack([x.sum(-1) / count for x in chunks], -1).clamp(min=tiny)
    top_key = largest[..., 0].amax(-1, keepdim=True)

    size = torch.linalg.vector_norm(q, dim=-1, dtype=wide)[:, heads] * abs(scale)
    size = size if content is None else size * content.detach()[heads].abs()
    factor = torch.ones(1, 1, dtype=wide) if temper is None else temper.detach()[heads]
    ground = (_own(q, k, terms) if evidence is None else evidence)[:, heads]
    ground = ground - _SLACK * (ground.abs() + size * top_key)
    level = factor * table[heads, : seen.span].amax(1, keepdim=True) - ground
    factor = factor.expand(len(heads), seen.num_queries)
    low = float("-inf")
    return Sizes(
        ground,
        blocks(level, low).amax(-1),
        blocks(level + (1 + _SLACK) * size * top_key, low).amax(-1),
        blocks(factor, -low).amin(-1),
        largest[..., 0] / top_key,
        mean.log(),
        largest.log(),
        (seen.offset + before) // CHUNK,
        before,
    )


def _own(q: Tensor, k: Tensor, terms: Terms) -> Tensor:
    """[N, H, T] the score of each row's own key."""
    table, content, temper, seen, scale = terms[:5]
    assert table is not None
    batch, groups = k.shape[:2]
    own = k[:, :, seen.offset :].to(table.dtype)
    split = q.to(table.dtype).view(batch, groups, -1, *q.shape[2:])
    score = torch.einsum("ngrtd,ngtd->ngrt", split, own).reshape(q.shape[:3]) * scale
    prior = table.detach()[:, :1]
    prior = prior.expand(-1, seen.num_queries) if temper is None else prior * temper.detach()
    if seen.exempt > seen.offset:
        prior = prior.clone()
        prior[:, : seen.exempt - seen.offset] = 0.0
    return (score if content is None else score * content.detach()) + prior


def blocks(x: Tensor, rest: float) -> Tensor:
    """[..., T] as [..., R, CHUNK]; `rest` where the last block has no rows."""
    return _cut(pad(x, (0, -x.shape[-1] % CHUNK), value=rest))


def _cut(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, CHUNK))
