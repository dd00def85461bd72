"""Decoding: one query and the keys before it, with nothing computed twice.

    score_j = scale · c_n q·k_j + c_n t[n-1-j]      n keys up to the query, c_n the temperature

The table t is stored in reverse order, so the prior of every step is a view of it. The temperatures
of all lengths are stored, too (`prepared.py`). The query heads that share a key head are rows of
one product.

Shapes: B batch, G key/value heads, R query heads of each, n keys, D head width.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bayesattn.attention.prepared import Table, Temperatures
from bayesattn.attention.ssmax import SSMax
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import Prior, Uniform

Place = tuple[int, Tensor | None, int | None, int]
"""Keys up to and including the query's own, padding, window and exempt keys as of `attend`."""
# Keys from which on two products and a softmax beat flash attention of one sequence, and where a
# temperature scales all scores: flash attention would have both its query and its bias scaled.
_MANY, _MANY_SCALED = 2048, 1024


def attend_one(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prior: Prior | None,
    ssmax: SSMax | None,
    place: Place,
    scale: float | None,
) -> Tensor | None:
    """Output [B, H, 1, D] of one query per sequence, on a CPU and without gradients.

    The arguments are those of `attend`. None if nothing can be prepared or the arguments do not
    fit: then a kernel computes the step, or refuses.
    """
    end, padding, window, exempt = place
    batch, heads, _, width = q.shape
    groups = k.shape[1]
    first = 0 if window is None or window >= end else end - window
    table = bias = factor = None
    if prior is not None and type(prior) is not Uniform:
        table = Table.of(prior, q, groups, end - first)
        if table is None:
            return None
        bias = table.reversed.narrow(3, table.length - end + first, end - first)
    if ssmax is not None:
        kind = (q.dtype, groups, window, exempt)
        kept = Temperatures.of(ssmax, prior, table, kind, q, end)
        if kept is None:
            return None
        if padding is None:
            factor = kept.factors[min(end, kept.length) - 1]
        else:
            factor = kept.factors[(end - 1 - padding).clamp(0, kept.length - 1)]
    if first or end < k.shape[2]:
        k, v = k[:, :, first:end], v[:, :, first:end]
    rows = q if groups == heads else q.view(batch, groups, -1, width)
    if factor is not None and (bias is None or _content_only(ssmax)):
        rows, factor = _times(rows, factor), None
    if padding is not None:
        out = _padded(rows, k, v, bias, factor, (end, first, padding, exempt), scale)
        return out.view(q.shape)
    if bias is not None and exempt > first:
        bias = bias.clone()
        bias[..., : exempt - first] = 0.0
    many = _MANY if factor is None else _MANY_SCALED
    if bias is not None and batch == 1 and end - first >= many and q.element_size() > 2:
        out = _products(rows, k, v, bias, factor, scale)
    else:
        if factor is not None and bias is not None:
            rows, bias = _times(rows, factor), bias * factor
        out = scaled_dot_product_attention(rows, k, v, bias, scale=scale)
    return out if groups == heads else out.view(q.shape)


def _products(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, factor: Tensor | None, scale: float | None
) -> Tensor:
    """The same for one sequence, written out: its scores are few."""
    alpha = q.shape[3] ** -0.5 if scale is None else scale
    bias, q, k, v = (x.squeeze(0) for x in (bias, q, k, v))
    scores = torch.baddbmm(bias, q, k.mT, alpha=alpha)
    if factor is not None:
        scores.mul_(factor)
    return torch.bmm(scores.softmax(-1), v).unsqueeze(0)


def _padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    factor: Tensor | None,
    place: tuple[int, int, Tensor, int],
    scale: float | None,
) -> Tensor:
    """The same for sequences with padding before them; 0 where there is nothing else."""
    end, first, padding, exempt = place
    seen = Visibility(1, end - 1, padding[:, None], None, exempt)
    if bias is None:
        bias = torch.zeros(1, 1, 1, end - first, dtype=torch.promote_types(q.dtype, torch.float32))
    elif exempt:
        bias = bias.masked_fill(seen.exempted(q.device)[..., first:], 0.0)
    if factor is not None:
        q, bias = _times(q, factor), bias * factor
    # masked last: -inf times a temperature of 0 is NaN
    bias = bias.masked_fill(~seen.mask(q.device)[..., first:], float("-inf"))
    out = scaled_dot_product_attention(q, k, v, bias, scale=scale)
    return out.masked_fill((padding >= end)[:, None, None, None], 0.0)


def _times(q: Tensor, factor: Tensor) -> Tensor:
    """Queries times their temperature, in the dtype of the queries."""
    hot = q * factor
    return hot if hot.dtype is q.dtype else hot.to(q.dtype)


def _content_only(ssmax: SSMax | None) -> bool:
    return ssmax is not None and ssmax.scope == "content"
