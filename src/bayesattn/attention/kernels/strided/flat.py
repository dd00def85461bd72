"""Heads whose log-prior is the same at all distances: plain causal attention, which torch has.

A constant drops out of the softmax, whatever factor SSMax gives it; log-evidence is meant without
it here. Queries that begin at an offset see all keys before it and, from there on, a triangle.
"""

from torch import Tensor

from bayesattn.attention.kernels.strided.band import split_first
from bayesattn.attention.kernels.strided.forward import Mean, flash, merge_
from bayesattn.attention.terms import Terms


def attend_flat(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, out: Tensor, evidence: Tensor
) -> None:
    """Arguments as of `attend_band`."""
    seen, heated = terms.seen, _heat(q, terms)
    mean: Mean | None = None
    for keys, causal in _parts(seen.offset):
        part = flash(heated, k[:, :, keys], v[:, :, keys], None, terms.scale, causal=causal)
        mean = part if mean is None else merge_(mean, part)
    assert mean is not None
    out.copy_(mean[0])
    evidence.copy_(mean[1])


def _heat(q: Tensor, terms: Terms) -> Tensor:
    if terms.content is None:
        return q
    content = (
        terms.content
        if q.shape[1] == len(terms.content)
        else split_first(terms.content, q.shape[:2])
    )
    return (q * content[..., None]).to(q.dtype)


def _parts(offset: int) -> list[tuple[slice, bool]]:
    """Slices of keys, and whether a query sees those up to its own only."""
    own = [(slice(offset, None), True)]
    return [*own, (slice(0, offset), False)] if offset else own
