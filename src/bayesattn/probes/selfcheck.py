"""Is what was captured what the model computes?

    logits      bit by bit those of a pass without capture
    v           exactly what a cache keeps
    attention   its rows, times the values, are what each head put out: the kernel's own result

A capture that splits heads wrongly, or rebuilds the wrong posterior, fails one of these.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture, listening

TOLERANCE = 1e-5
"""Attention rows times values may differ from the kernel by this much rounding, per unit of v."""


@dataclass(frozen=True)
class SelfCheck:
    """What the three comparisons found; the last two are 0 for models without attention."""

    logits_identical: bool
    value_error: float
    """Largest |v - cached v|."""
    attention_error: float
    """Largest |Σ_j attention_j v_j - head output|, relative to the largest |v|."""

    @property
    def good(self) -> bool:
        """Whether what was captured can be believed."""
        exact = self.logits_identical and self.value_error == 0
        return exact and self.attention_error <= TOLERANCE

    def require(self) -> None:
        """Refuse to go on with a capture that does not agree with the model."""
        if not self.good:
            raise ValueError(
                "what is captured of this model is not what it computes "
                f"(logits identical: {self.logits_identical}, values off by {self.value_error:.1g},"
                f" attention off by {self.attention_error:.1g}): its probes would mean nothing"
            )


def check_capture(model: nn.Module, inputs: Tensor) -> SelfCheck:
    """Make the three comparisons on `inputs`."""
    parts = anatomy(model)
    captured = capture(model, inputs, batch_size=len(inputs))
    with evaluating(model):
        plain = parts.logits(inputs.to(device_of(model)), None).cpu()
        names = [f"layers.{layer}.v" for layer in parts.attending]
        beside: dict[str, Tensor] = {}
        # in one pass: a cache lays out memory in another way, and with it rounding changes
        with listening(parts, names, None, beside):
            cached = parts.cached_values(inputs.to(device_of(model)))
    value_error = attention_error = 0.0
    for layer, kept in zip(parts.attending, cached, strict=True):
        v = beside[f"layers.{layer}.v"].transpose(1, 2)
        # a cache with a window has forgotten the first keys
        value_error = max(value_error, float((v[:, :, -kept.shape[2] :] - kept).abs().max()))
        v = captured[f"layers.{layer}.v"].transpose(1, 2)
        rows = captured[f"layers.{layer}.attention"].transpose(1, 2)
        mean = rows.to(v.dtype) @ repeat_heads(v, rows.shape[1])
        put_out = captured[f"layers.{layer}.head_outputs"].transpose(1, 2)
        error = float((mean - put_out).abs().max() / v.abs().max())
        attention_error = max(attention_error, error)
    return SelfCheck(torch.equal(plain, captured["logits"]), value_error, attention_error)
