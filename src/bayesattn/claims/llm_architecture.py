"""llm-architecture: does the geometry stay while focusing changes with the kind of attention?

    static    share of the first component of the last attention outputs, and its |correlation| with
              the entropy of the posterior given the step
    focusing  1 - H_last / H_first, H the entropy of attention over the log of the visible keys

The same transformer, trained alike on bijections with returning keys, with full heads, grouped
heads or a sliding window: here the posterior is known, and nothing else differs, neither data nor
depth.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bayesattn.claims.panels import draw_measured, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import TunnelRecipe
from bayesattn.ledger.study import Picture, Study, Tier, Value
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.focusing import measure_focusing
from bayesattn.probes.measured import Measured, held_out
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.tunnels import Bijection

FULL = "full heads"
GROUPED, WINDOW = OTHERS = ("grouped heads", "sliding window")
LEARNT = 0.05
"""Bits: models that err by more have nothing whose geometry could be compared."""
UNTRAINED = "untrained"
PERMUTATIONS = 19
"""Nothing is judged by them here."""


class ArchitectureRecipe(TunnelRecipe):
    """Task, model and training of every variant."""

    alphabet: int
    layers: int
    window: int
    """Most recent tokens that a query of the sliding window sees."""

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        return {variant: self.training(variant, seed) for variant in (FULL, *OTHERS)}

    def training(self, variant: str, seed: int) -> TunnelTraining:
        fields: dict[str, Any] = {
            GROUPED: {"num_key_value_heads": self.heads // 2},
            WINDOW: {"sliding_window": self.window},
        }.get(variant, {})
        mixed: dict[str, Any] = {"prior": "ggd", "prior_options": {"init": "mixed"}}
        architecture = self.transformer(self.layers, **mixed, **fields)
        task = Bijection(self.alphabet, replacement=True)
        return TunnelTraining(task, architecture, self.config(seed))


class Geometry(Stored):
    """States of one kind in the last layer, beside those before training."""

    share: Measured
    """Of the variance on the first component."""
    order: Measured
    """|correlation| of that component with the entropy of the posterior, given the step."""
    participation: Measured


class ArchitectureFound(Stored):
    """One kind of attention."""

    error: float
    """Bits to the exact posterior's entropy."""
    uniform: float
    """The same of the uniform predictor."""
    values: Geometry
    outputs: Geometry
    """Of attention."""
    residual: Geometry
    entropy: Sequence[Measured]
    """Of attention over the log of the visible keys, by layer."""
    mass: Sequence[Measured]
    """Attention on consistent keys, by layer."""

    @property
    def focusing(self) -> Measured:
        first, last = self.entropy[0], self.entropy[-1]
        before = 1 - last.nulls[UNTRAINED] / first.nulls[UNTRAINED]
        return Measured(value=1 - last.value / first.value, nulls={UNTRAINED: before})


JUDGED: dict[str, Callable[[ArchitectureFound], Measured]] = {
    "share": lambda one: one.outputs.share,
    "order": lambda one: one.outputs.order,
    "focusing": lambda one: one.focusing,
}


@register("llm-architecture")
class LLMArchitecture(Study[ArchitectureRecipe, Mapping[str, ArchitectureFound]]):
    """Trains one transformer with three kinds of attention."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, ArchitectureFound]:
        recipe = self.recipes[tier]
        return {
            name: _measure(training, recipe.sequences)
            for name, training in recipe.trainings(seed).items()
        }

    def values(self, tier: Tier, one: Mapping[str, ArchitectureFound]) -> Mapping[str, Value]:
        def lead(name: str, other: str) -> Value:
            """Of full heads; shown beside it is what full heads have."""
            full, own = (JUDGED[name](one[variant]).value for variant in (FULL, other))
            learnt = all(one[variant].error < LEARNT for variant in (FULL, other))
            return Value(full - own, full, learnt)

        return {
            "grouped-order": lead("order", GROUPED),
            "grouped-focusing": lead("focusing", GROUPED),
            "window-focusing": lead("focusing", WINDOW),
        }

    def draw(
        self, tier: Tier, found: Mapping[int, Mapping[str, ArchitectureFound]]
    ) -> list[Picture]:
        labels = {
            "share": "variance on the first component",
            "order": "|r| with entropy, given the step",
            "focusing": "fall of attention entropy",
        }
        figure, every = panels(3, (9, 2.8), sharey=True)
        for axes, (name, label) in zip(every, labels.items(), strict=True):
            own = JUDGED[name]
            rows = {kind: [own(one[kind]) for one in found.values()] for kind in (FULL, *OTHERS)}
            draw_measured(axes, rows, UNTRAINED)
            axes.set(xlabel=label)
        caption = (
            "Geometry of the last attention outputs, and how far attention sharpens from the first "
            "layer to the last: circles after training, squares before; a point is a seed."
        )
        return [Picture("variants", figure, caption, "Points by variant, three panels.")]


def _measure(training: TunnelTraining, sequences: int) -> ArchitectureFound:
    model, tunnel = training.model(), training.tunnel
    assert isinstance(training.architecture, Transformer)
    last = training.architecture.layers - 1
    initial = build(training.architecture, tunnel, training.config.seed).eval()
    batch = held_out(tunnel, sequences)
    part = training.fidelity(sequences=sequences).parts["inside"]
    states = {
        one.states: _geometry(one)
        for one in measure_values(model, batch, initial, PERMUTATIONS)
        if one.layer == last
    }
    attention = measure_focusing(model, tunnel, batch, initial, PERMUTATIONS)
    layers = [one for one in attention if one.head is None]
    return ArchitectureFound(
        error=mean(part, "mae_tok"),
        uniform=mean(part, "mae_tok", "uniform"),
        values=states["values"],
        outputs=states["attention outputs"],
        residual=states["residual"],
        entropy=[one.entropy for one in layers],
        mass=[one.mass["consistent"] for one in layers],
    )


def _geometry(states: Manifold) -> Geometry:
    assert states.given_position is not None  # keys return
    return Geometry(
        share=states.share, order=states.given_position, participation=states.participation
    )
