"""dynamics-frame-precision: does attention freeze in training while values keep refining?

    settled   when what separates a curve from its end is a tenth of what it was at the start
    moved     distance of a late checkpoint from the end, over that of two trainings' ends

Raw, settling steps are compared: attention by Jensen-Shannon divergence, values by 1 - CKA, the
error by when it is at most twice its end. These are different functions of the weights, so the
same on the straight path from the first to the last weights stands beside it. As a control,
attention and values are compared from two thirds of the training on, by one yardstick
(`probes.late`).

The learning rate is constant: where it falls, everything freezes at the end, whatever it is.
"""

from collections.abc import Mapping

import numpy as np

from bayesattn.claims.geometry import NEVER, GeometryRecipe, Looked
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Exhibit, Picture, Study, Tier, Value
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import open_tunnel
from bayesattn.probes.drift import Path, measure_drift
from bayesattn.probes.late import late_step, moved
from bayesattn.probes.measured import held_out

ATTENTION, VALUES, ERROR = DRAWN = ("attention", "values", "mae")
SEQUENCES = 128
"""Of the sequences that a checkpoint is looked at with; there are many checkpoints."""
CAPTION = "Attention, values and error on their way to where they end; means over seeds."


class Way(Stored):
    """A training, or the straight path between its ends."""

    curves: Mapping[str, list[float]]
    """Attention, values and error at every checkpoint."""
    settled: Mapping[str, float]
    """Step of the training; of the error, from which on it is at most twice its end."""

    def after_attention(self, kind: str) -> float:
        """How many times as many steps it takes."""
        return self.settled[kind] / self.settled[ATTENTION]


class Settling(Looked):
    """Of one training."""

    steps: list[int]
    training: Way
    straight: Way
    late_step: int
    moved: Mapping[str, float]
    """Attention and values after `late_step`, where 1 is as far as another seed's end."""


@register("dynamics-frame-precision")
class DynamicsFramePrecision(Study[GeometryRecipe, Settling]):
    """Follows attention, values and error through the checkpoints of trainings."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """With its checkpoints, which models that come along do not have; and the sibling."""
        recipe = self.recipes[tier]
        if recipe.bank:
            return {}
        return {f"seed {one}": recipe.training(NEVER, one) for one in (seed, sibling(seed))}

    def measure(self, tier: Tier, seed: int) -> Settling:
        recipe = self.recipes[tier]
        own, other = (recipe.training(NEVER, one) for one in (seed, sibling(seed)))
        run, ended = own.train(), other.train()
        count = min(SEQUENCES, recipe.sequences)
        drift, late = measure_drift(run, sequences=count), late_step(run)
        return Settling(
            kl=drift.trained.curves["kl"][-1],
            steps=drift.trained.steps,
            training=_way(drift.trained),
            straight=_way(drift.straight),
            late_step=late,
            moved=moved(
                open_tunnel(run, late)[0],
                open_tunnel(run)[0],
                open_tunnel(ended)[0],
                held_out(own.tunnel, count),
            ),
        )

    def values(self, tier: Tier, one: Settling) -> Mapping[str, Value]:
        def after(kind: str) -> Value:
            straight = one.straight.after_attention(kind)
            return Value(one.training.after_attention(kind), straight, one.learnt)

        late = one.moved
        return {
            "values-settle-later": after(VALUES),
            "error-settles-later": after(ERROR),
            "late-drift": Value(late[VALUES] / late[ATTENTION], late[ATTENTION], one.learnt),
        }

    def draw(self, tier: Tier, found: Mapping[int, Settling]) -> list[Picture]:
        figure, both = panels(2, size=(8, 3), sharey=True)
        steps = next(iter(found.values())).steps
        titles = {
            "training": [one.training for one in found.values()],
            "straight path": [one.straight for one in found.values()],
        }
        for axes, (title, seeds) in zip(both, titles.items(), strict=True):
            for colour, kind in enumerate(DRAWN):
                label = _label(kind)
                axes.plot(steps, _left(seeds, kind), "o-", ms=3, color=f"C{colour}", label=label)
            axes.axhline(0.1, color="grey", ls=":")
            axes.set_xscale("symlog", linthresh=steps[1])
            axes.set(title=title, xlabel="step", xlim=(0, steps[-1]))
        both[0].set_ylabel("left of the way to the end")
        both[1].legend(fontsize=8)
        return [Picture("settling", figure, CAPTION, "Falling curves over the steps, two panels.")]

    def exhibits(self, tier: Tier, found: Mapping[int, Settling]) -> list[Exhibit]:
        seeds = [one.training for one in found.values()]
        data = {
            "x": next(iter(found.values())).steps,
            "series": [
                {"name": _label(kind), "y": [round(value, 5) for value in _left(seeds, kind)]}
                for kind in DRAWN
            ],
            "xLabel": "step of training",
            "yLabel": "left of the way to the end",
            "logX": True,
        }
        return [Exhibit(kind="curves", title="Drift through training", caption=CAPTION, data=data)]


def sibling(seed: int) -> int:
    """Seeds come in pairs: 0 and 1, 2 and 3. Each is measured against the other's end."""
    return seed ^ 1


def _way(path: Path) -> Way:
    settled = {kind: path.settling(kind) for kind in (ATTENTION, VALUES)}
    return Way(
        curves={kind: path.curves[kind] for kind in DRAWN},
        settled={**settled, ERROR: path.reaching(ERROR)},
    )


def _left(ways: list[Way], kind: str) -> list[float]:
    """Of the mean curve: its distance to the end, 1 at the start."""
    curve = np.mean([way.curves[kind] for way in ways], 0)
    return (abs(curve - curve[-1]) / (abs(curve[0] - curve[-1]) or 1.0)).tolist()


def _label(kind: str) -> str:
    return "entropy error" if kind == ERROR else kind
