"""The GPU kernel: FlexAttention with the log-prior as a score modification.

    score_mod(score, b, h, i, j) = score + c[b, h, i] · table[h, offset + i - j]

and what else there is in `Terms`. Everything captured is a contiguous tensor indexed by head, never
a 0-d scalar: those break the backward pass of FlexAttention. Gradients of the table are summed by
atomic adds on CUDA, so they are not bit-reproducible; the strided and dense kernels are. There is
no backward pass on CPU.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)

from bayesattn.attention.score_mod import of_terms
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility
from bayesattn.priors.sink import with_sink

# below this many scores writing them all out, uncompiled, is quicker than compiling
_EAGER_SCORES = 1 << 20


def flex(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
    """Same arguments and result as the dense kernel."""
    q, seen = terms.heat(q), terms.seen
    k, v = k[:, :, : seen.end].contiguous(), v[:, :, : seen.end].contiguous()
    small = q.device.type == "cpu" and q.shape[2] * seen.end <= _EAGER_SCORES
    run = flex_attention if small else _compiled()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*without torch.compile.*")
        out = run(
            q.contiguous(),
            k,
            v,
            score_mod=of_terms(terms, q.shape[0], q.dtype),
            block_mask=_block_mask(seen, q),
            scale=terms.scale,
            enable_gqa=k.shape[1] != q.shape[1],
            return_aux=None if terms.sink is None else AuxRequest(lse=True),
        )
    if terms.sink is not None:
        mean, more = cast(tuple[Tensor, Any], out)
        out, _ = with_sink(mean, more.lse, terms.sink)
    assert isinstance(out, Tensor)
    if seen.first is None:
        return out
    return out.masked_fill((seen.count(q.device) == 0)[:, None, :, None], 0.0)


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)  # pyright: ignore[reportUnknownMemberType]


def _block_mask(seen: Visibility, q: Tensor) -> BlockMask:
    place = (seen.num_queries, seen.offset, seen.window, str(q.device))
    return _causal_mask(*place) if seen.first is None else _build(*place, seen.first.contiguous())


@lru_cache(maxsize=32)
def _causal_mask(num_queries: int, offset: int, window: int | None, device: str) -> BlockMask:
    """Masks that do not depend on data are built once for all layers and steps."""
    return _build(num_queries, offset, window, device, None)


def _build(
    num_queries: int, offset: int, window: int | None, device: str, first: Tensor | None
) -> BlockMask:
    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j <= i + offset
        if window is not None:
            seen = seen & (j > i + offset - window)
        return seen if first is None else seen & (j >= first[b, i])

    batch = None if first is None else first.shape[0]
    return create_block_mask(visible, batch, None, num_queries, offset + num_queries, device=device)
