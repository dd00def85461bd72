"""Is what was captured what the model computes? What is not is not measured.

Exact, bit by bit, whatever the dtype and however large the scores:

    logits                    those of a pass without hooks
    values, turned keys       those that a cache keeps, and those that attention is given
    keys at position 0        before rotation equal to the cached ones there
    keys of projections       what the projection puts out is what keys, or their norm, are given
    residual                  what the next block is given, out of the block that has the attention
    rows                      those that the model's own attention returns
    weights of later tokens   rows give them nothing

Up to rounding, by the bounds of `rounding`, entry by entry:

    lengths of keys           after rotation as before
    key weights               times what the projection is given, they are its keys
    recomputed rows           by the model's own attention in float64, of the very q and k it gets
    sums of rows              1, or what a sink leaves of it
    rows times values         what each head puts out

What a failed check makes meaningless is refused, and the rest goes on; without the logits there is
no rest. Where scores are so large that rounding explains anything, recomputed rows say little:
attention is in doubt, and said to be. What is split, ordered or numbered wrongly is caught all the
same, by what is exact.

Models of tunnels have logits, values, and rows times values. Their rows are computed by the
definition of attention, from which kernels differ by rounding: scores by 2e at most, and outputs by
4e max|v|.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture, listening
from bayesattn.probes.rounding import Gap, gap, unit

LOOSE = 0.1
"""Of a weight of attention: where rounding may move one by more, little is known of it."""
NEEDED = {
    "values": ("values",),
    "turned_keys": ("turned keys",),
    "keys": ("keys at position 0", "lengths of keys"),
    "key weights": ("keys at position 0", "keys of projections", "key weights"),
    "residual": ("residual",),
    "attention": ("rows", "weights of later tokens", "sums of rows", "recomputed rows"),
    "outputs": ("rows times values",),
}
"""By what is captured: the checks without which it means nothing."""


@dataclass(frozen=True)
class SelfCheck:
    """What the comparisons found."""

    differences: dict[str, float] = field(default_factory=dict[str, float])
    """Of the entry that is furthest off, measured by what it may be, for each comparison."""
    allowed: dict[str, float] = field(default_factory=dict[str, float])
    """How far that entry may be off; what is not named must be exact."""
    slack: float = 0.0
    """How far rounding may move a weight of attention."""

    @classmethod
    def of(cls, gaps: Iterable[tuple[str, Gap]], slack: float = 0.0) -> "SelfCheck":
        """The worst of each comparison."""
        worst: dict[str, Gap] = {}
        for name, found in gaps:
            if name not in worst or found.ratio > worst[name].ratio:
                worst[name] = found
        return cls(
            {name: found.found for name, found in worst.items()},
            {name: found.allowed for name, found in worst.items() if found.allowed},
            slack,
        )

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

    @property
    def refused(self) -> dict[str, str]:
        """What must not be measured, and why."""
        needed_by = dict(NEEDED)
        if "rows" not in self.differences:  # nothing but what they put out speaks for them
            needed_by["attention"] += NEEDED["outputs"]
        return {
            name: f"what is captured is not what the model computes ({_off(wrong)})"
            for name, needed in needed_by.items()
            if (wrong := {check: self.wrong[check] for check in needed if check in self.wrong})
        }

    @property
    def doubts(self) -> dict[str, str]:
        """What is measured although its check says little, and why."""
        if self.slack <= LOOSE or "attention" in self.refused:
            return {}
        return {
            "attention": "scores are so large that rounding may move a weight of attention by "
            f"{self.slack:.2g}; take --dtype float32 if this is not float32"
        }

    @property
    def sentence(self) -> str:
        """For people."""
        told = {"refused": self.refused, "is in doubt about": self.doubts}
        found = " and ".join(f"{verb} {', '.join(names)}" for verb, names in told.items() if names)
        return f"The self-check of the capture {found or 'passed'}."

    def require(self, *names: str) -> None:
        """Refuse to go on if a comparison failed, or one of `names` if there are any."""
        if wrong := {name: x for name, x in self.wrong.items() if not names or name in names}:
            raise ValueError(
                f"what is captured of this model is not what it computes ({_off(wrong)}): its "
                "probes would mean nothing"
            )

    def to_dict(self) -> dict[str, Any]:
        told = {"good": self.good, "refused": self.refused, "doubts": self.doubts}
        return {**told, **vars(self)}


def _off(wrong: dict[str, float]) -> str:
    return "off: " + ", ".join(f"{name} by {error:.1g}" for name, error in wrong.items())


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
    gaps = [("logits", gap(captured["logits"], plain))]
    for layer, kept in zip(parts.attending, cached, strict=True):
        v = beside[f"layers.{layer}.v"].transpose(1, 2)
        # a cache with a window has forgotten the first keys
        gaps.append(("values", gap(v[:, :, -kept.shape[2] :], kept)))
        names = ("q", "k", "attention", "v", "head_outputs")
        q, k, rows, v, outputs = (
            captured[f"layers.{layer}.{name}"].transpose(1, 2) for name in names
        )
        means = rows.to(v.dtype) @ repeat_heads(v, rows.shape[1])
        width = q.shape[-1]
        # 1 for the log-prior
        size = 1 + float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) * width**-0.5
        allowed = 4 * (width + 6) * unit(v.dtype) * size * float(v.abs().max())
        gaps.append(("rows times values", gap(means, outputs, allowed)))
    return SelfCheck.of(gaps)
