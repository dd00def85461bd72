"""Numbers that are too large for float32, and inputs that are NaN or infinite.

Finite inputs give a finite output. If q·k may exceed 3·10³⁸, attention is computed again in
float64. A row is NaN if its query, or a key or value that it sees, is NaN or infinite. All other
rows are the same as without these inputs. Values are checked on a CPU only, and neither under a
compiler nor inside a transform of torch.func.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.attention.visibility import Visibility

_ROOM = 1e4  # what temperatures and sums may add to a product of norms


@torch.no_grad()
def ordinary(q: Tensor, k: Tensor, scale: float, *others: Tensor) -> bool:
    """Whether all inputs are finite and no q·k, at most |q| |k|, can have overflowed."""
    wide = torch.promote_types(q.dtype, torch.float32)
    queries, keys = (torch.linalg.vector_norm(x, dtype=wide) for x in (q, k))
    most = queries * keys * (max(abs(scale), 1.0) * _ROOM)
    return math.isfinite(sum((x.sum() for x in others), most).item())


def ordinary_rows(q: Tensor, newest: Tensor, out: Tensor) -> bool:
    """Whether queries and output [(B,) G, R, D] and the newest keys [B, G, 1, D] all are finite.

    Older keys were checked in earlier steps. If all scores are NaN, torch's flash attention
    returns 0, so the output alone does not show it.
    """
    # a product with NaN or infinity is NaN or infinite, and so is a sum that contains it
    return math.isfinite(torch.dot(q.reshape(-1), (newest + out).reshape(-1)).item())


def finite(*tensors: Tensor) -> bool:
    return all(bool(x.isfinite().all()) for x in tensors)


def cleaned(*tensors: Tensor) -> list[Tensor]:
    """The tensors in float64, with 0 for vectors that are not finite."""
    return [x.masked_fill(~_all_finite(x)[..., None], 0.0).double() for x in tensors]


def spoilt(q: Tensor, k: Tensor, v: Tensor, parts: Sequence[Visibility]) -> Tensor:
    """[B, H, T] NaN in rows that read a NaN or infinite vector, 0 in the others."""
    bad = repeat_heads((~(_all_finite(k) & _all_finite(v)))[..., None], q.shape[1])[..., 0]
    before = torch.nn.functional.pad(bad.long().cumsum(-1), (1, 0))
    found: list[Tensor] = []
    queries = (~_all_finite(q)).split([seen.num_queries for seen in parts], dim=2)
    for own, seen in zip(queries, parts, strict=True):
        last = seen.positions(q.device).expand(q.shape[0], -1)
        start = torch.zeros_like(last) if seen.first is None else seen.first
        if seen.window is not None:
            start = torch.maximum(start, last - seen.window + 1)
        sees = start <= last
        ends, starts = ((x.clamp(max=bad.shape[-1]))[:, None] for x in (last + 1, start))
        shape = (*q.shape[:2], last.shape[1])
        count = before.gather(2, ends.expand(shape)) - before.gather(2, starts.expand(shape))
        found.append(((count > 0) | own) & sees[:, None])
    return torch.zeros((), dtype=q.dtype).masked_fill(torch.cat(found, 2), math.nan)


def _all_finite(x: Tensor) -> Tensor:
    return x.detach().isfinite().all(-1)


def refuse_second(name: str) -> Callable[[Tensor], None]:
    """A hook on an output that refuses second derivatives."""

    def hook(_: Tensor) -> None:
        if torch.is_grad_enabled():  # create_graph=True
            raise ValueError(
                f"kernel {name!r} has first derivatives only; pass kernel='dense' for second ones"
            )

    return hook
