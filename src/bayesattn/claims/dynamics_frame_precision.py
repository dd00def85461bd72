"""dynamics-frame-precision: does attention settle in training before the values do?

    settled        when what separates a curve from its end is a tenth of what it was at the start
    dissociation   log2( settling step of the values / settling step of attention )
    precision      log2( step from which the error is at most twice its end / the same )

Attention is compared with its end by Jensen-Shannon divergence, values by 1 - CKA. These measure
different things, so even weights that move straight to their end would give some dissociation; that
much, measured on the straight path, is taken off.
"""

from collections.abc import Mapping

import numpy as np

from bayesattn.claims.geometry import NEVER, GeometryRecipe, average, training
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Exhibit, Finding, Picture, Study, Tier
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import Stored
from bayesattn.ledger.words import tell_means
from bayesattn.probes.drift import HALF, KINDS, Path, measure_drift
from bayesattn.stats import judge_all, judge_effect

PRECISION = "precision"
SLOW = ("values", PRECISION)
"""What is said to go on when attention has settled: the values, and with them the error."""
DRAWN = {"attention": "C0", "values": "C1", "mae": "C3"}
CAPTION = "Attention, values and error on their way to where they end; means over seeds."


class Way(Stored):
    """How one thing came to its end."""

    curve: list[float]
    """At every checkpoint."""
    half_life: float
    settled: float
    """A step of the training, and so is the half-life."""


class Doublings(Stored):
    """How much later than attention something settled, as log2 of the ratio of steps."""

    training: float
    straight: float

    @property
    def beyond(self) -> float:
        return self.training - self.straight


class Settling(Stored):
    """Of one training."""

    steps: list[int]
    training: Mapping[str, Way]
    straight: Mapping[str, Way]
    """The same on the straight path from the first to the last weights."""
    after_attention: Mapping[str, Doublings]
    twice_the_end: float
    """Step from which on the error is at most twice its end."""


Found = Mapping[int, Settling]


@register("dynamics-frame-precision")
class DynamicsFramePrecision(Study[GeometryRecipe, Settling]):
    """Follows attention, values and error through the checkpoints of trainings."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """With its checkpoints, which models that come along do not have."""
        return {NEVER: training(tier, NEVER, seed)}

    def measure(self, tier: Tier, seed: int) -> Settling:
        run = training(tier, NEVER, seed).train()
        drift = measure_drift(run, sequences=min(128, self.recipes[tier].sequences))
        later = {
            kind: Doublings(
                training=drift.trained.dissociation(kind),
                straight=drift.straight.dissociation(kind),
            )
            for kind in KINDS
            if kind != "attention"
        }
        precision = Doublings(
            training=drift.trained.precision(), straight=drift.straight.precision()
        )
        return Settling(
            steps=drift.trained.steps,
            training=_ways(drift.trained),
            straight=_ways(drift.straight),
            after_attention={**later, PRECISION: precision},
            twice_the_end=drift.trained.reaching("mae"),
        )

    def judge(self, tier: Tier, found: Found) -> Finding:
        seeds = found.values()
        parts = {
            f"{kind} after attention": judge_effect(
                [one.after_attention[kind].beyond for one in seeds]
            )
            for kind in SLOW
        }
        settled = {kind: [one.training[kind].settled for one in seeds] for kind in DRAWN}
        twice = average(one.twice_the_end for one in seeds)
        beyond = average(one.after_attention[PRECISION].beyond for one in seeds)
        unit = "doublings of training, beyond the straight path"
        note = f"Settled at step: {tell_means(settled, '.0f')}; error at most twice its end from "
        note += f"step {twice:.0f} on, {beyond:.2g} doublings later than attention settles, beyond "
        note += "the straight path."
        return Finding(judge_all(parts), unit=unit, null=0.0, note=note)

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, both = panels(2, size=(8, 3), sharey=True)
        steps = next(iter(found.values())).steps
        titles = {
            "training": [one.training for one in found.values()],
            "straight path": [one.straight for one in found.values()],
        }
        for axes, (title, seeds) in zip(both, titles.items(), strict=True):
            for kind, colour in DRAWN.items():
                left = _left([ways[kind] for ways in seeds])
                axes.plot(steps, left, "o-", ms=3, color=colour, label=_label(kind))
            axes.axhline(0.1, color="grey", ls=":")
            axes.set_xscale("symlog", linthresh=steps[1])
            axes.set(title=title, xlabel="step", xlim=(0, steps[-1]))
        both[0].set_ylabel("left of the way to the end")
        both[1].legend(fontsize=8)
        return [Picture("settling", figure, CAPTION, "Falling curves over the steps, two panels.")]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        lines = {kind: _left([one.training[kind] for one in found.values()]) for kind in DRAWN}
        data = {
            "x": next(iter(found.values())).steps,
            "series": [
                {"name": _label(kind), "y": [round(value, 5) for value in left]}
                for kind, left in lines.items()
            ],
            "xLabel": "step of training",
            "yLabel": "left of the way to the end",
            "logX": True,
        }
        return [Exhibit(kind="curves", title="Drift through training", caption=CAPTION, data=data)]


def _ways(path: Path) -> dict[str, Way]:
    return {
        kind: Way(
            curve=path.curves[kind],
            half_life=path.settling(kind, HALF),
            settled=path.settling(kind),
        )
        for kind in KINDS
    }


def _left(ways: list[Way]) -> list[float]:
    """Of the mean curve: its distance to the end, 1 at the start."""
    curve = np.mean([way.curve for way in ways], 0)
    return (abs(curve - curve[-1]) / (abs(curve[0] - curve[-1]) or 1.0)).tolist()


def _label(kind: str) -> str:
    return "entropy error" if kind == "mae" else kind
