"""Is what was captured what the language model computes?

    logits       bit by bit those of a pass without hooks
    values       exactly what a cache of transformers keeps, at every position
    keys         turned ones exactly the cached ones; before rotation equal to them at position 0,
                 and of their length everywhere
    rows         sum to 1, give later tokens nothing, and are softmax(q·k) with q and k as attention
                 receives them, computed here
    outputs      rows times values are what the output projection is given

A fused projection that is split wrongly fails the second, and others with it.

Attention rows once more, from the queries and keys that attention is handed.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.llm.capture import capture_prompts, last_only, listening, resolve
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.tracing import Listener

TOLERANCE = 1e-5
"""Of rounding in float32; coarser types have as many times their own epsilon."""


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """Largest differences found; None where a model does not let us look."""

    tolerance: float
    logits: float = 0.0
    values: float | None = None
    turned_keys: float | None = None
    keys: float | None = None
    """Before rotation against the cache, at position 0."""
    key_lengths: float | None = None
    """Of keys before and after rotation, relative to the longest."""
    row_sums: float | None = None
    later_tokens: float | None = None
    """Largest weight that a row gives to a token after its own."""
    recomputed_rows: float | None = None
    outputs: float | None = None
    """Rows times values against heads' outputs, relative to the largest value."""

    @property
    def exact(self) -> dict[str, float | None]:
        """What must not differ at all."""
        return {
            "logits": self.logits,
            "values": self.values,
            "turned keys": self.turned_keys,
            "keys at position 0": self.keys,
            "weights of later tokens": self.later_tokens,
        }

    @property
    def rounded(self) -> dict[str, float | None]:
        """What may differ by rounding."""
        return {
            "lengths of keys": self.key_lengths,
            "sums of rows": self.row_sums,
            "recomputed rows": self.recomputed_rows,
            "rows times values": self.outputs,
        }

    @property
    def wrong(self) -> dict[str, float]:
        """The comparisons that failed."""
        limits = [(self.exact, 0.0), (self.rounded, self.tolerance)]
        return {
            name: found
            for comparisons, limit in limits
            for name, found in comparisons.items()
            if found is not None and not found <= limit
        }

    @property
    def good(self) -> bool:
        """Whether what is captured can be believed."""
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
        """Plain values."""
        return asdict(self) | {"good": self.good}


def check(subject: Subject, prompts: Sequence[Sequence[int]]) -> SelfCheck:
    """Make all comparisons on `prompts`, one at a time."""
    subject.check(prompts)
    epsilon = torch.finfo(subject.model.dtype).eps
    tolerance = TOLERANCE * epsilon / torch.finfo(torch.float32).eps
    worst: dict[str, float] = {}
    for prompt in prompts:
        _worse(worst, _differences(subject, prompt))
    return SelfCheck(tolerance=tolerance, **worst)


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
    with listening(subject, wanted, every=True, cached=True) as read:
        heard = read(tokens)
    recomputed = recomputed_rows(subject, tokens)
    for number, layer in enumerate(subject.parts.layers):
        of_layer = {name: x for (name, n), x in heard.items() if n == number}
        errors = _of_states(of_layer, layer.key_scale)
        if "attention" in of_layer:
            errors |= _of_rows(of_layer, recomputed.get(number))
        _worse(found, errors)
    return found


def _worse(worst: dict[str, float], errors: dict[str, float]) -> None:
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
        "turned_keys": _largest(turned[:, last] - heard["cached_keys"]),
    }
    if "keys" in heard:
        own = heard["keys"] * scale
        errors["keys"] = _largest(own[:, 0] - turned[:, 0])
        lengths = own.norm(dim=-1) - turned.norm(dim=-1)
        errors["key_lengths"] = _largest(lengths) / _largest(turned.norm(dim=-1))
    return errors


def _of_rows(heard: dict[str, Tensor], recomputed: Tensor | None) -> dict[str, float]:
    """Of attention rows [B, H, T, T]."""
    rows = heard["attention"]
    # learned sinks take weight away, and what is recomputed knows how much
    sums = 1 if recomputed is None else recomputed.sum(-1)
    errors = {
        "row_sums": _largest(rows.sum(-1) - sums),
        "later_tokens": _largest(rows.triu(1)),
    }
    if recomputed is not None:
        errors["recomputed_rows"] = _largest(rows - recomputed)
    if "outputs" in heard:
        values = heard["values"].transpose(1, 2)
        means = (rows @ repeat_heads(values, rows.shape[1])).transpose(1, 2)
        errors["outputs"] = _largest(means - heard["outputs"]) / _largest(values)
    return errors


def _largest(x: Tensor) -> float:
    """Largest |x|; NaN if there is one."""
    return float(x.abs().max()) if not x.isnan().any() else math.nan


NAME = "bayesattn_recomputed"


def recomputed_rows(subject: Subject, tokens: Tensor) -> dict[int, Tensor]:
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

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    if not model._can_set_attn_implementation():
        return found
    try:
        model.set_attn_implementation(NAME)
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
