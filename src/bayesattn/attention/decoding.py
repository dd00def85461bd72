"""Decoding: one query and the keys before it, with nothing computed twice.

    score_j = scale · c_n q·k_j + c_n t[n-1-j]      n keys up to the query, c_n the temperature

The table t is stored in reverse order, so the prior of every step is a view of it. The temperatures
of all lengths are stored, too (`prepared.py`). The query heads that share a key head are rows of
one product.

Shapes: B batch, G key/value heads, R query heads of each, n keys, D head width.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bayesattn.attention import check, extremes
from bayesattn.attention.log_temperature import LogTemperature
from bayesattn.attention.prepared import Table, Temperatures
from bayesattn.attention.ssmax import SSMax
from bayesattn.attention.visibility import Visibility
from bayesattn.checks import readable
from bayesattn.priors import Prior, Uniform

Place = tuple[int | None, Tensor | None, int | None, int]
"""Offset of the query, padding, window and exempt keys as of `attend`."""
# Keys from which on two products and a softmax beat flash attention of one sequence, and where a
# temperature scales all scores: flash attention would have both its query and its bias scaled.
_MANY, _MANY_SCALED = 2048, 1024


def attend_one(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prior: Prior | Tensor | None,
    ssmax: SSMax | LogTemperature | Tensor | None,
    place: Place,
    scale: float | None,
) -> Tensor | None:
    """Output [B, H, 1, D] of one query per sequence, on a CPU and without gradients.

    The arguments are those of `attend`. None if nothing can be prepared, or an argument is
    invalid or not finite: then a kernel computes the step, or refuses. At a thousand keys each call
    of torch takes a fiftieth of the time of attention, so there are few calls and few checks.
    """
    if not readable(q) or q.dim() != 4 or q.shape[2] != 1 or not check.fit(q, k, v):
        return None
    offset, padding, window, exempt = place
    batch, heads, _, width = q.shape
    _, groups, keys, _ = k.shape
    end = keys if offset is None else offset + 1
    if not 0 < end <= keys or exempt < 0 or (window is not None and window < 1):
        return None
    if scale is not None and not 0 < scale < math.inf:
        return None
    if not (prior is None or isinstance(prior, Prior)):
        return None
    if not (ssmax is None or isinstance(ssmax, SSMax)):
        return None
    if torch.is_grad_enabled() and _learns(q, k, v, prior, ssmax):
        return None
    if padding is not None:
        check.check_first(q, end, None, padding)

    first = 0 if window is None or window >= end else end - window
    table = bias = factor = None
    if prior is not None and type(prior) is not Uniform:
        table = Table.of(prior, q, groups, end - first)
        if table is None:
            return None
        bias = None if table.flat and not exempt else table.nearest(end - first)
    if ssmax is not None:
        kind = (q.dtype, groups, window, exempt)
        kept = Temperatures.of(ssmax, prior, table, kind, q, end)
        if kept is None:
            return None
        if padding is None:
            factor = kept.factors[min(end, kept.length) - 1]
        else:
            factor = kept.factors[(end - 1 - padding).clamp(0, kept.length - 1)]
    # a view by its strides takes half the time of a slice
    step = k.stride()
    newest = k.as_strided((batch, groups, 1, width), step, k.storage_offset() + (end - 1) * step[2])
    if first or end < keys:
        k, v = k[:, :, first:end], v[:, :, first:end]
    rows = hot = q if groups == heads else q.view(batch, groups, -1, width)
    of_content = ssmax is not None and ssmax.scope == "content"
    if factor is not None and (bias is None or of_content):
        hot, factor = _times(rows, factor), None
    if padding is not None:
        out = _padded(hot, k, v, bias, factor, (end, first, padding, exempt), scale)
    else:
        if bias is not None and exempt > first:
            bias = bias.clone()
            bias[..., : exempt - first] = 0.0
        many = _MANY if factor is None else _MANY_SCALED
        if bias is not None and batch == 1 and end - first >= many and q.element_size() > 2:
            out = _products(hot, k, v, bias, factor, scale)
        else:
            if factor is not None and bias is not None:
                hot, bias = _times(hot, factor), bias * factor
            out = scaled_dot_product_attention(hot, k, v, bias, scale=scale)
    if not extremes.ordinary_rows(rows, newest, out):
        return None
    return out.view(q.shape)


def _learns(q: Tensor, k: Tensor, v: Tensor, prior: Prior | None, ssmax: SSMax | None) -> bool:
    modules = (module for module in (prior, ssmax) if module is not None)
    inputs = (q, k, v, *(x for module in modules for x in module.parameters()))
    return any(x.requires_grad for x in inputs)


def _products(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, factor: Tensor | None, scale: float | None
) -> Tensor:
    """The same for one sequence, written out: its scores are few."""
    alpha = q.shape[3] ** -0.5 if scale is None else scale
    scores = torch.baddbmm(bias[0], q[0], k[0].mT, alpha=alpha)
    if factor is not None:
        scores.mul_(factor)
    return torch.bmm(scores.softmax(-1), v[0])


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
