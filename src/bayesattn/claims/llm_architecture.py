"""llm-architecture: does the geometry stay while focusing changes with the kind of attention?

    static    share of the first component of the last attention outputs, and its |correlation| with
              the entropy of the posterior given the step
    focusing  1 - H_last / H_first, H the entropy of attention over the log of the visible keys

The same transformer, trained alike on bijections with returning keys, with full heads, grouped
heads, one head of keys, a sliding window, or experts: here the posterior is known, and nothing else
differs, neither data nor depth.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from bayesattn.claims.panels import draw_beside, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import TunnelRecipe
from bayesattn.ledger.study import Finding, Picture, Study, Tier
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.focusing import measure_focusing
from bayesattn.probes.measured import Measured, held_out
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.stats import judge_all, judge_below, judge_effect, judge_given
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
        errors = {name: _by_seed(found, name, lambda one: one.error) for name in (FULL, *OTHERS)}
        learnt = judge_all(
            {
                f"error with {variant}": judge_below(values, limit=LEARNT)
                for variant, values in errors.items()
            }
        )
        focusing = {
            f"focusing of {FULL} beyond {variant}": judge_effect(
                _beyond(found, variant, _focusing), minimum=WEAKER
            )
            for variant in OTHERS
        }
        static = {
            f"{name} with {variant}": judge_below(
                [abs(x) for x in _beyond(found, variant, number)], limit=SAME
            )
            for name, number in (("share", _share), ("order", _order))
            for variant in OTHERS
        }
        judgement = judge_given("The task is learnt", learnt, judge_all({**static, **focusing}))
        weakest = min(focusing.values(), key=lambda part: part.value)
        return Finding(
            judgement,
            unit="more fall of attention entropy with full heads than in the closest other",
            null=_between_seeds(_by_seed(found, FULL, _focusing)),
            note=f"Focusing: {_means(found, _focusing)}. Order: {_means(found, _order)}.",
            shown=weakest,
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        shown: dict[str, Callable[[ArchitectureFound], Measured]] = {
            "variance on the first component": lambda one: one.outputs.share,
            "|r| with entropy, given the step": lambda one: one.outputs.order,
            "fall of attention entropy": lambda one: one.focusing,
        }
        figure, every = panels(3, (9, 2.8), sharey=True)
        for axes, (label, measured) in zip(every, shown.items(), strict=True):
            rows = {
                name: [measured(one[name]) for one in found.values()] for name in (FULL, *OTHERS)
            }
            draw_beside(axes, rows, UNTRAINED)
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


def _share(one: ArchitectureFound) -> float:
    return one.outputs.share.value


def _order(one: ArchitectureFound) -> float:
    return one.outputs.order.value


def _focusing(one: ArchitectureFound) -> float:
    return one.focusing.value


def _by_seed(
    found: Found, variant: str, number: Callable[[ArchitectureFound], float]
) -> list[float]:
    return [number(one[variant]) for one in found.values()]


def _beyond(
    found: Found, variant: str, number: Callable[[ArchitectureFound], float]
) -> list[float]:
    """With full heads minus with the variant, by seed."""
    return [number(one[FULL]) - number(one[variant]) for one in found.values()]


def _means(found: Found, number: Callable[[ArchitectureFound], float]) -> str:
    return ", ".join(
        f"{name} {np.mean(_by_seed(found, name, number)):.2f}" for name in (FULL, *OTHERS)
    )


def _between_seeds(values: Sequence[float]) -> float:
    """Mean difference of two seeds; 0 if there is one."""
    return float(np.mean([abs(a - b) for a, b in combinations(values, 2)] or [0.0]))
