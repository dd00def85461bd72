"""llm-architecture: does the geometry stay while focusing changes with the kind of attention?

    static    share of the first component of the last attention outputs, and its |correlation| with
              the entropy of the posterior given the step
    focusing  1 - H_last / H_first, H the entropy of attention over the log of the visible keys

The same transformer, trained alike on bijections with returning keys, with full heads, grouped
heads, one head of keys, a sliding window, or experts: here the posterior is known, and nothing else
differs, neither data nor depth.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from bayesattn.claims.panels import draw_measured, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import TunnelRecipe
from bayesattn.ledger.study import Finding, Picture, Study, Tier
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.ledger.typed import Stored
from bayesattn.ledger.words import tell_means
from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.focusing import measure_focusing
from bayesattn.probes.measured import Measured, held_out
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.stats import Judgement, judge_all, judge_below, judge_effect, judge_given
from bayesattn.tunnels import Bijection

FULL = "full heads"
OTHERS = ("grouped heads", "one key head", "sliding window", "experts")
LEARNT = 0.05
"""Bits: models that err by more have nothing whose geometry could be compared."""
SAME = 0.2
"""Shares and correlations that differ by less are called the same."""
WEAKER = 0.1
"""Focusing that is less by so much of the first layer's entropy is called weaker."""
UNTRAINED = "untrained"
PERMUTATIONS = 19
"""Nothing is judged by them here."""


class ArchitectureRecipe(TunnelRecipe):
    """Task, model and training of every variant."""

    alphabet: int
    layers: int = 2
    window: int
    """Most recent tokens that a query of the sliding window sees."""

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        return {variant: self.training(variant, seed) for variant in (FULL, *OTHERS)}

    def training(self, variant: str, seed: int) -> TunnelTraining:
        fields: dict[str, Any] = {
            "grouped heads": {"num_key_value_heads": self.heads // 2},
            "one key head": {"num_key_value_heads": 1},
            "sliding window": {"sliding_window": self.window},
            # two are as wide as one of the others
            "experts": {"num_experts": 4, "intermediate_size": self.width},
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
    """One kind of attention or feed-forward layer."""

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


Found = Mapping[int, Mapping[str, ArchitectureFound]]
JUDGED: dict[str, Callable[[ArchitectureFound], Measured]] = {
    "share": lambda one: one.outputs.share,
    "order": lambda one: one.outputs.order,
    "focusing": lambda one: one.focusing,
}


@register("llm-architecture")
class LLMArchitecture(Study[ArchitectureRecipe, Mapping[str, ArchitectureFound]]):
    """Trains one transformer with five kinds of attention and feed-forward layers."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, ArchitectureFound]:
        recipe = self.recipes[tier]
        return {
            name: _measure(training, recipe.sequences)
            for name, training in recipe.trainings(seed).items()
        }

    def judge(self, tier: Tier, found: Found) -> Finding:
        """All have learnt; the geometry is the same; focusing is weaker in every other variant."""
        learnt: dict[str, Judgement] = {}
        static: dict[str, Judgement] = {}
        focusing: dict[str, Judgement] = {}
        for variant in (FULL, *OTHERS):
            errors = [one[variant].error for one in found.values()]
            learnt[f"error with {variant}"] = judge_below(errors, limit=LEARNT)
        for name, variant in product(("share", "order"), OTHERS):
            apart = [abs(x) for x in _beyond(found, variant, name)]
            static[f"{name} with {variant}"] = judge_below(apart, limit=SAME)
        for variant in OTHERS:
            lead = _beyond(found, variant, "focusing")
            part = f"focusing of {FULL} beyond {variant}"
            focusing[part] = judge_effect(lead, minimum=WEAKER)
        judged = judge_all({**static, **focusing})
        judgement = judge_given("The task is learnt", judge_all(learnt), judged)
        weakest = min(focusing.values(), key=lambda part: part.value)
        return Finding(
            judgement,
            unit="more fall of attention entropy with full heads than in the closest other",
            null=_between_seeds(_by_seed(found, FULL, "focusing")),
            note=f"Focusing: {_means(found, 'focusing')}. Order: {_means(found, 'order')}.",
            shown=weakest,
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
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


def _by_seed(found: Found, variant: str, name: str) -> list[float]:
    return [JUDGED[name](one[variant]).value for one in found.values()]


def _beyond(found: Found, variant: str, name: str) -> list[float]:
    """With full heads minus with the variant, by seed."""
    return np.subtract(_by_seed(found, FULL, name), _by_seed(found, variant, name)).tolist()


def _means(found: Found, name: str) -> str:
    return tell_means({variant: _by_seed(found, variant, name) for variant in (FULL, *OTHERS)})


def _between_seeds(values: Sequence[float]) -> float:
    """Mean difference of two seeds; 0 if there is one."""
    return float(np.mean([abs(a - b) for a, b in combinations(values, 2)] or [0.0]))
