"""Argument checks of `attend`: one sentence each, with the fix. Values are checked on CPU only."""

import math

import torch
from torch import Tensor

from bayesattn.attention.log_temperature import LogTemperature
from bayesattn.attention.ssmax import AnyTemperature, SSMax
from bayesattn.checks import readable
from bayesattn.priors import Prior
from bayesattn.priors.sink import Sink

_DTYPES = frozenset((torch.float32, torch.float64, torch.bfloat16))


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    if not fit(q, k, v):
        _complain(q, k, v)


def fit(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """A fast test whether CPU tensors are valid; `_complain` is too slow for a decode step."""
    shape, keys = q.shape, k.shape
    return (
        len(shape) == 4
        and len(keys) == 4
        and v.shape == keys
        and shape[0] == keys[0] != 0
        and shape[3] == keys[3] != 0
        and 0 not in (shape[1], shape[2], keys[1], keys[2])
        and shape[1] % keys[1] == 0
        and q.dtype in _DTYPES
        and k.dtype is v.dtype is q.dtype
        and q.is_cpu
        and k.is_cpu
        and v.is_cpu
    )


def _complain(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"{name} must be [batch, heads, length, width], not {tuple(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point tensor, not {x.dtype}")
        if x.dtype != q.dtype or x.device != q.device:
            raise TypeError(
                f"q, k and v must share dtype and device; q is {q.dtype} on {q.device}, "
                f"{name} is {x.dtype} on {x.device}"
            )
    if k.shape != v.shape:
        raise ValueError(f"k {tuple(k.shape)} and v {tuple(v.shape)} must have the same shape")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q {tuple(q.shape)} and k {tuple(k.shape)} must agree in batch and in head width"
        )
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"q {tuple(q.shape)} and k {tuple(k.shape)} must not be empty")
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads cannot share {k.shape[1]} key/value heads: "
            "the first must be a multiple of the second"
        )
    if q.dtype == torch.float16 and q.device.type == "cpu":
        raise TypeError("float16 attention is not supported on CPU; use bfloat16 or float32")


def check_place(q: Tensor, k: Tensor, offset: int, window: int | None, exempt: int) -> None:
    length, keys = q.shape[2], k.shape[2]
    if offset < 0:
        raise ValueError(
            f"{length} queries against {keys} keys put the first query at index {offset}; "
            "pass all keys up to the last query, or the right offset"
        )
    if offset + length > keys:
        raise ValueError(
            f"queries at {offset} .. {offset + length - 1} reach past the {keys} keys; "
            "a static cache must be built for at least the full length"
        )
    if window is not None and window < 1:
        raise ValueError(f"window counts the keys a query sees, so at least 1, not {window}")
    if exempt < 0:
        raise ValueError(f"exempt counts leading keys, so at least 0, not {exempt}")


def check_scale(scale: float | None) -> None:
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number, not {scale}")


def check_first(q: Tensor, end: int, documents: Tensor | None, padding: Tensor | None) -> None:
    if documents is not None:
        batch, length = documents.shape if documents.dim() == 2 else (-1, -1)
        if batch != q.shape[0] or length < end or documents.is_floating_point():
            raise ValueError(
                "documents must be integer ids of shape [batch, keys], here "
                f"[{q.shape[0]}, {end}], not {documents.dtype} {tuple(documents.shape)}"
            )
    if padding is not None:
        if (
            padding.shape != q.shape[:1]
            or padding.is_floating_point()
            or padding.dtype is torch.bool
        ):
            raise ValueError(
                f"padding must be integer counts of left-padding keys of shape [{q.shape[0]}], "
                f"not {padding.dtype} {tuple(padding.shape)}"
            )
        if readable(padding) and bool((padding < 0).any()):
            raise ValueError("padding counts left-padding keys, so it cannot be negative")


def check_prior(q: Tensor, prior: Prior | Tensor | None, span: int) -> None:
    heads = q.shape[1]
    if isinstance(prior, Prior):
        if prior.num_heads != heads:
            raise ValueError(f"the prior has {prior.num_heads} heads but q has {heads}")
        if readable(q):
            prior.check()
    elif isinstance(prior, Tensor):
        if prior.dim() != 2 or prior.shape[0] != heads or prior.shape[1] < span:
            raise ValueError(
                f"a prior table must be [heads, distances], here [{heads}, at least {span}], "
                f"not {tuple(prior.shape)}"
            )
        if readable(prior) and not bool(prior.isfinite().all()):
            raise ValueError("a prior table must be finite; hide keys with window=, not with -inf")
    elif prior is not None:
        raise TypeError(f"prior must be a Prior, a table [heads, distances] or None, not {prior!r}")


def check_ssmax(q: Tensor, ssmax: AnyTemperature) -> None:
    if ssmax is None:
        return
    if isinstance(ssmax, LogTemperature):
        if ssmax.num_heads != q.shape[1]:
            raise ValueError(f"the temperature has {ssmax.num_heads} heads but q has {q.shape[1]}")
        return
    if not isinstance(ssmax, SSMax | Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"ssmax must be an SSMax or LogTemperature, a tensor [heads] or None, not {ssmax!r}"
        )
    scale = ssmax.scale if isinstance(ssmax, SSMax) else ssmax
    if scale.shape != q.shape[1:2]:
        raise ValueError(f"SSMax has scales {tuple(scale.shape)} but q has {q.shape[1]} heads")
    if readable(scale) and not bool(scale.isfinite().all()):
        raise ValueError(
            "an SSMax scale is NaN or infinite; lower the learning rate or clip gradients"
        )


def check_forget(q: Tensor, forget: Tensor | None, end: int) -> None:
    if forget is None:
        return
    if not isinstance(forget, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"forget must be a tensor [batch, heads, keys] or None, not {forget!r}")
    batch, heads = q.shape[:2]
    if forget.dim() != 3 or forget.shape[:2] != (batch, heads) or forget.shape[2] < end:
        raise ValueError(
            f"forget must be the log forget gates of all keys, here [{batch}, {heads}, at least "
            f"{end}], not {tuple(forget.shape)}"
        )
    if readable(forget):
        least, most = forget[:, :, :end].aminmax()
        if not (bool(most <= 0) and bool(least > -torch.inf)):
            raise ValueError(
                "forget holds logarithms of gates between 0 and 1, so finite numbers up to 0; "
                "take logsigmoid of a layer's output"
            )


def check_sink(q: Tensor, sink: Sink | Tensor | None) -> None:
    if sink is None:
        return
    if not isinstance(sink, Sink | Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"sink must be a Sink, a tensor [heads] or None, not {sink!r}")
    logit = sink.logit if isinstance(sink, Sink) else sink
    if logit.shape != q.shape[1:2]:
        raise ValueError(f"the sink has scores {tuple(logit.shape)} but q has {q.shape[1]} heads")
    if readable(logit) and not bool(logit.isfinite().all()):
        raise ValueError("a sink's score is NaN or infinite; lower the learning rate")
