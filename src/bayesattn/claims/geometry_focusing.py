"""geometry-focusing: do queries sharpen from layer to layer, onto hypotheses still possible?

    mass      attention on the earlier pairs with the asked key, where there are any
    entropy   of attention, over the log of the number of visible keys

Only where keys return is anything consistent: for a new key every earlier pair speaks of a value
that is taken, and there is no right place to look.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bayesattn.claims.geometry import AGAIN, GeometryStudy, Layers, TrainedModel, average, each
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Finding, Picture, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.probes.focusing import Focus, measure_focusing
from bayesattn.probes.measured import held_out
from bayesattn.stats import judge_all, judge_effect

CONSISTENT = "consistent"


class Mass(Layers):
    """Attention on positions of one role, layer by layer."""

    even: list[float]
    """Of attention that is the same everywhere."""
    other_sequences: list[float]
    """On the positions that have this role in other sequences."""


class Focusing(Stored):
    """Of one model, layer by layer, means over heads."""

    entropy: Layers
    mass: Mapping[str, Mass]
    """By role, of those that the task has."""
    alignment: list[float] | None
    own: list[float]
    """Share of the variance of cos(q, k) that depends on the query."""


Found = Mapping[int, Mapping[str, Focusing]]


@register("geometry-focusing")
class GeometryFocusing(GeometryStudy[Focusing]):
    """Follows attention through the layers of models trained with returning keys."""

    def look(self, trained: TrainedModel, sequences: int) -> Focusing:
        model, initial, tunnel = trained
        batch = held_out(tunnel, sequences)
        found = measure_focusing(model, tunnel, batch, initial)
        layers = [focus for focus in found if focus.head is None]
        return Focusing(
            entropy=Layers.of([focus.entropy for focus in layers]),
            mass={role: _mass(layers, role) for role in layers[0].mass},
            alignment=[focus.alignment.value for focus in layers if focus.alignment] or None,
            own=[focus.own for focus in layers],
        )

    def judge(self, tier: Tier, found: Found) -> Finding:
        """All three, where keys return; the rise of the mass is what is reported."""
        models = each(found, AGAIN)
        masses, entropies = [m.mass[CONSISTENT] for m in models], [m.entropy for m in models]
        untrained = average(_rise(mass.untrained) for mass in masses)
        fell_untrained = average(-_rise(entropy.untrained) for entropy in entropies)
        rise = judge_effect([_rise(mass.trained) for mass in masses], null=max(0.0, untrained))
        judgement = judge_all(
            {
                "rise of the mass": rise,
                "fall of the entropy": judge_effect(
                    [-_rise(entropy.trained) for entropy in entropies],
                    null=max(0.0, fell_untrained),
                ),
                "mass beyond other sequences": judge_effect(
                    [mass.trained[-1] - mass.other_sequences[-1] for mass in masses]
                ),
            }
        )
        return Finding(
            judgement,
            shown=rise,
            unit="more attention on consistent pairs in the last layer than in the first",
            null=untrained,
            note=f"Layer by layer, mass {_by_layer(masses)}, entropy {_by_layer(entropies)}.",
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, (mass, entropy) = panels(2, size=(7.5, 3))
        for model in each(found, AGAIN):
            for axes, layers in ((mass, model.mass[CONSISTENT]), (entropy, model.entropy)):
                axes.plot(layers.trained, "o-", color="C0")
                axes.plot(layers.untrained, "o:", color="C1")
                axes.set_xticks(range(len(layers.trained)))
        for axes, name in ((mass, "mass on consistent"), (entropy, "entropy")):
            axes.set(xlabel="layer", ylabel=name, ylim=(0, 1.03))
        caption = (
            "Attention on earlier pairs with the asked key, and the entropy of attention over the "
            "log of the visible keys, by layer; dotted: before training; one line per seed."
        )
        return [Picture("layers", figure, caption, "Lines over the layers, two panels.")]


def _mass(layers: Sequence[Focus], role: str) -> Mass:
    own = [focus.mass[role] for focus in layers]
    others = [mass.nulls["other sequences"] for mass in own]
    return Mass.of(own, even=[mass.nulls["even"] for mass in own], other_sequences=others)


def _rise(layers: Sequence[float]) -> float:
    return layers[-1] - layers[0]


def _by_layer(seeds: Sequence[Layers]) -> str:
    means = np.mean([one.trained for one in seeds], 0)
    return " to ".join(f"{mean:.2f}" for mean in means)
