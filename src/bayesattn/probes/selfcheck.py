"""Compares the capture with the model's computation; parts that differ are not measured.

Exact comparisons, bit by bit, for any dtype and any size of scores:

    logits                    with those of a pass without hooks
    values, turned keys       with those in a cache, and with the inputs of attention
    keys at position 0        before rotation with the cached keys there
    keys of projections       output of the projection with the input of keys, or of their norm
    residual                  output of the block with attention with the input of the next block
    rows                      with those that the model's attention returns
    weights of later tokens   with 0

Comparisons up to rounding, by the bounds of `rounding`, entry by entry:

    lengths of keys           after rotation with before
    key weights               key matrix times the projection's input with the keys
    recomputed rows           with the model's attention in float64, from the same q and k
    sums of rows              with 1, or with 1 minus the weight of a sink
    rows times values         with the output of each head

If a check fails, the measurements that depend on it are refused, and the others go on. If the
logits differ, all are refused. If scores are so large that rounding explains any difference,
recomputed rows are a weak check: attention is then marked in doubt. The exact comparisons still
find parts that are split, ordered or numbered wrongly.

Models of tunnels have the checks logits, values, and rows times values. Their rows are computed by
the definition of attention. Kernels differ from it by rounding: scores by 2e at most, and outputs
by 4e max|v|.
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
"""Largest rounding error of an attention weight; beyond it attention is in doubt."""
NEEDED = {
    "values": ("values",),
    "turned_keys": ("turned keys",),
    "keys": ("keys at position 0", "lengths of keys"),
    "key weights": ("keys at position 0", "keys of projections", "key weights"),
    "residual": ("residual",),
    "attention": ("rows", "weights of later tokens", "sums of rows", "recomputed rows"),
    "outputs": ("rows times values",),
}
"""The checks that each captured part needs."""


@dataclass(frozen=True)
class SelfCheck:
    """Results of the comparisons."""

    differences: dict[str, float] = field(default_factory=dict[str, float])
    """For each comparison, the difference of the entry with the largest ratio to its bound."""
    allowed: dict[str, float] = field(default_factory=dict[str, float])
    """Bound of this entry; comparisons without a bound must be exact."""
    slack: float = 0.0
    """Largest rounding error of an attention weight."""

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
        """Parts that must not be measured, with the reason."""
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
        """Parts whose check is weak, with the reason."""
        if self.slack <= LOOSE or "attention" in self.refused:
            return {}
        return {
            "attention": "scores are so large that rounding may move a weight of attention by "
            f"{self.slack:.2g}; take --dtype float32 if this is not float32"
        }

    @property
    def sentence(self) -> str:
        """A readable summary."""
        told = {"refused": self.refused, "is in doubt about": self.doubts}
        found = " and ".join(f"{verb} {', '.join(names)}" for verb, names in told.items() if names)
        return f"The self-check of the capture {found or 'passed'}."

    def require(self, *names: str) -> None:
        """Refuse if a comparison failed (one of `names`, if given)."""
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
