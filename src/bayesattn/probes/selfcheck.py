"""Is what was captured what the model computes? Nothing is measured before it is.

    logits                    bit by bit those of a pass without hooks
    values                    exactly what a cache keeps, at every position
    turned keys               exactly the cached ones
    keys at position 0        before rotation equal to the cached ones there
    lengths of keys           before and after rotation, relative to the longest
    sums of rows              attention rows sum to 1
    weights of later tokens   rows give them nothing
    recomputed rows           softmax(q·k) in float64, with q and k as attention receives them
    rows times values         what each head puts out, relative to the largest value

Models of tunnels have the first two and the last: their rows are computed by the definition of
attention, from which the kernels are free to differ by rounding. A capture that splits heads
wrongly, or rebuilds the wrong posterior, fails one of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.models.interface import NAME as RETROFITTED
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture, listening
from bayesattn.probes.llm.capture import capture_prompts, last_only, reading, resolve
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.tracing import Listener

ROUNDED = ("lengths of keys", "sums of rows", "recomputed rows", "rows times values")
"""What may differ by rounding; all else must not differ at all."""
TOLERANCE = 1e-5
"""Of rounding in float32; coarser types have as many times their own epsilon."""
RECOMPUTED = "bayesattn_recomputed"


def allowed_rounding(dtype: torch.dtype) -> dict[str, float]:
    """How far each comparison may be off; what is not named must be exact."""
    epsilons = (torch.finfo(kind).eps for kind in (dtype, torch.float32))
    return dict.fromkeys(ROUNDED, TOLERANCE * max(1.0, next(epsilons) / next(epsilons)))


@dataclass(frozen=True)
class SelfCheck:
    """What the comparisons found."""

    differences: dict[str, float] = field(default_factory=dict[str, float])
    """The largest of each comparison that the model allows."""
    allowed: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def wrong(self) -> dict[str, float]:
        return {
            name: found
            for name, found in self.differences.items()
            if not found <= self.allowed.get(name, 0.0)  # so that NaN fails
        }

    @property
    def good(self) -> bool:
        return not self.wrong

    def require(self) -> None:
        """Refuse to go on with a capture that does not agree with the model."""
        if self.wrong:
            found = ", ".join(f"{name} by {error:.1g}" for name, error in self.wrong.items())
            raise ValueError(
                f"what is captured of this model is not what it computes (off: {found}): its "
                "probes would mean nothing"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"good": self.good, **vars(self)}


def check_capture(model: nn.Module, inputs: Tensor) -> SelfCheck:
    """The comparisons of a model of a tunnel, on `inputs`."""
    parts = anatomy(model)
    captured = capture(model, inputs, batch_size=len(inputs))
    with evaluating(model):
        plain = parts.logits(inputs.to(device_of(model)), None).cpu()
        names = [f"layers.{layer}.v" for layer in parts.attending]
        beside: dict[str, Tensor] = {}
        # in one pass: a cache lays out memory in another way, and with it rounding changes
        with listening(parts, names, None, beside):
            cached = parts.cached_values(inputs.to(device_of(model)))
    found = {"logits": _largest(captured["logits"] - plain)}
    for layer, kept in zip(parts.attending, cached, strict=True):
        v = beside[f"layers.{layer}.v"].transpose(1, 2)
        # a cache with a window has forgotten the first keys
        errors = {"values": _largest(v[:, :, -kept.shape[2] :] - kept)}
        rows, v, outputs = (
            captured[f"layers.{layer}.{name}"].transpose(1, 2)
            for name in ("attention", "v", "head_outputs")
        )
        means = rows.to(v.dtype) @ repeat_heads(v, rows.shape[1])
        errors["rows times values"] = _largest(means - outputs) / _largest(v)
        _keep_worse(found, errors)
    return SelfCheck(found, allowed_rounding(next(model.parameters()).dtype))


def check_prompts(subject: Subject, prompts: Sequence[Sequence[int]]) -> SelfCheck:
    """The comparisons of a language model, on `prompts`, one at a time."""
    subject.check(prompts)
    worst: dict[str, float] = {}
    for prompt in prompts:
        _keep_worse(worst, _differences(subject, prompt))
    return SelfCheck(worst, allowed_rounding(subject.model.dtype))


def _differences(subject: Subject, prompt: Sequence[int]) -> dict[str, float]:
    model: Any = subject.model
    tokens = torch.tensor([list(prompt)], device=device_of(model))
    with evaluating(model):
        options = last_only(model)
        if subject.parts.asks_for_attention:  # and may compute it another way then
            options["output_attentions"] = True
        plain = model(tokens, use_cache=False, **options).logits[:, -1].float().cpu()
    found = {"logits": _largest(capture_prompts(subject, [prompt]).logits - plain)}
    wanted = resolve(subject.parts, None, subject.parts.mode)
    # cache and hooks in one pass: a cache lays memory out otherwise, and with it rounding changes
    with reading(subject, wanted, every=True, cached=True) as read:
        heard = read(tokens)
    recomputed = _recomputed_rows(subject, tokens)
    for number, layer in enumerate(subject.parts.layers):
        of_layer = {name: x for (name, n), x in heard.items() if n == number}
        errors = _of_states(of_layer, layer.key_scale)
        if "attention" in of_layer:
            errors |= _of_rows(of_layer, recomputed.get(number))
        _keep_worse(found, errors)
    return found


def _keep_worse(worst: dict[str, float], errors: dict[str, float]) -> None:
    """Keep the larger of each; NaN is larger than anything."""
    for name, error in errors.items():
        if not error <= worst.get(name, -1.0):
            worst[name] = error


def _of_states(heard: dict[str, Tensor], scale: float) -> dict[str, float]:
    """Of keys and values [B, T, G, D], against those of the cache."""
    turned = heard["turned_keys"]
    # with a window a cache has forgotten the first tokens
    last = slice(-heard["cached_keys"].shape[1], None)
    errors = {
        "values": _largest(heard["values"][:, last] - heard["cached_values"]),
        "turned keys": _largest(turned[:, last] - heard["cached_keys"]),
    }
    if "keys" in heard:
        own = heard["keys"] * scale
        errors["keys at position 0"] = _largest(own[:, 0] - turned[:, 0])
        lengths = own.norm(dim=-1) - turned.norm(dim=-1)
        errors["lengths of keys"] = _largest(lengths) / _largest(turned.norm(dim=-1))
    return errors


def _of_rows(heard: dict[str, Tensor], recomputed: Tensor | None) -> dict[str, float]:
    """Of attention rows [B, H, T, T]."""
    rows = heard["attention"]
    # learned sinks take weight away, and what is recomputed knows how much
    sums = 1 if recomputed is None else recomputed.sum(-1)
    errors = {
        "sums of rows": _largest(rows.sum(-1) - sums),
        "weights of later tokens": _largest(rows.triu(1)),
    }
    if recomputed is not None:
        errors["recomputed rows"] = _largest(rows - recomputed)
    if "outputs" in heard:
        values = heard["values"].transpose(1, 2)
        means = (rows @ repeat_heads(values, rows.shape[1])).transpose(1, 2)
        errors["rows times values"] = _largest(means - heard["outputs"]) / _largest(values)
    return errors


def _largest(x: Tensor) -> float:
    """Largest |x|; NaN if there is one."""
    return float(x.abs().max()) if not x.isnan().any() else math.nan


def _recomputed_rows(subject: Subject, tokens: Tensor) -> dict[int, Tensor]:
    """[B, H, T, T] by layer: softmax(q·k) in float64, through transformers' attention interface.

    Empty for models that do not use it.
    """
    model: Any = subject.model
    numbers = {id(layer.attention): at for at, layer in enumerate(subject.parts.layers)}
    found: dict[int, Tensor] = {}

    def attend(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        rows = _rows(q.double(), repeat_heads(k, q.shape[1]).double(), mask, options)
        found[numbers[id(module)]] = rows.float()
        means = (rows @ repeat_heads(v, q.shape[1]).double()).to(v.dtype)
        return means.transpose(1, 2).contiguous(), rows.to(v.dtype)

    AttentionInterface.register(RECOMPUTED, attend)
    AttentionMaskInterface.register(RECOMPUTED, eager_mask)
    retrofitted = model.config._attn_implementation == RETROFITTED
    if retrofitted or not model._can_set_attn_implementation():
        return found
    try:
        model.set_attn_implementation(RECOMPUTED)
    except ValueError:  # a model with priors takes only attention that can add them
        return found
    try:
        with evaluating(model):
            model(tokens, past_key_values=Listener(model.config, lambda *_: None), use_cache=True)
    finally:
        model.set_attn_implementation("eager")
    return found


def _rows(q: Tensor, k: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Tensor:
    scale = options.get("scaling")
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if options.get("softcap") is not None:
        scores = torch.tanh(scores / options["softcap"]) * options["softcap"]
    if mask is not None:
        scores = scores + mask
    sinks = options.get("s_aux")
    if sinks is None:
        return scores.softmax(-1)
    # a learned score that takes weight away and gives it to nothing
    empty = sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, empty], -1).softmax(-1)[..., :-1]
