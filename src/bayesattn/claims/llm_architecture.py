"""llm-architecture: does the geometry stay while focusing changes with the kind of attention?

    static    share of the first component of the last attention outputs, and its |correlation| with
              the entropy of the posterior given the step
    focusing  1 - H_last / H_first, H the entropy of attention over the log of the visible keys

The same transformer, trained alike on bijections with returning keys, with full heads, grouped
heads, one head of keys, a sliding window, or experts: here the posterior is known, and nothing else
differs, neither data nor depth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from bayesattn.claims.registry import register
from bayesattn.ledger.study import Claim, Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.focusing import measure_focusing
from bayesattn.probes.values import measure_values
from bayesattn.stats import judge_all, judge_below, judge_effect, judge_given
from bayesattn.training import TrainConfig
from bayesattn.tunnels import Bijection

FULL = "full heads"
OTHERS = ("grouped heads", "one key head", "sliding window", "experts")
LEARNT = 0.05
"""Bits: models that err by more have nothing whose geometry could be compared."""
SAME = 0.2
"""Shares and correlations that differ by less are called the same."""
WEAKER = 0.1
"""Focusing that is less by so much of the first layer's entropy is called weaker."""
STATES = "attention outputs"
PERMUTATIONS = 19
"""Nothing is judged by them here."""


@dataclass(frozen=True, kw_only=True)
class ArchitectureRecipe(Recipe):
    """Task, model and training of every variant."""

    alphabet: int
    layers: int = 2
    width: int = 64
    heads: int = 4
    window: int
    """Most recent tokens that a query of the sliding window sees."""
    steps: int
    batch_size: int = 64
    lr: float = 3e-3
    sequences: int = 256
    """Held-out sequences."""

    def training(self, variant: str, seed: int) -> TunnelTraining:
        """The same for every variant but what it is about."""
        fields: dict[str, Any] = {
            "grouped heads": {"kv_heads": self.heads // 2},
            "one key head": {"kv_heads": 1},
            "sliding window": {"window": self.window},
            "experts": {"experts": 4, "inner": self.width},  # two are as wide as one of the others
        }.get(variant, {})
        architecture = Transformer(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            prior="ggd",
            prior_options={"init": "mixed"},
            **fields,
        )
        config = TrainConfig(
            steps=self.steps, batch_size=self.batch_size, lr=self.lr, seed=seed, threads=1
        )
        return TunnelTraining(Bijection(self.alphabet, replacement=True), architecture, config)


@register
class LLMArchitecture(Study[ArchitectureRecipe, Numbers]):
    """Trains one transformer with five kinds of attention and feed-forward layers."""

    claim = Claim(
        id="llm-architecture",
        statement="Static geometry is the same in all architectures, while focusing is weaker with "
        "grouped heads, sliding windows and experts than with full heads.",
        source="Agarwal et al., Geometric Scaling of Bayesian Inference in LLMs, arXiv 2512.23752: "
        "sections 5.5 to 6.4",
        reported="attention entropy falls by 82 to 86% with full heads, 31% with grouped heads, 20 "
        "to 30% with a sliding window; three models that differ in data and depth, too",
    )
    method = (
        "Transformers that differ only in full, grouped or single key heads, a sliding window, or "
        "four experts of which a token uses two, are trained alike on bijections with returning "
        "keys. All must learn it (0.05 bits). Share and order (|correlation| with the entropy of "
        "the exact posterior, given the step) of the first component of the last attention outputs "
        "must differ from full heads by less than 0.2; and from the first to the last layer the "
        "entropy of attention, over the log of the visible keys, must fall by 0.1 more with full "
        "heads than with each of the others."
    )
    null = "The difference between models with full heads from different seeds."
    recipes = MappingProxyType(
        {
            Tier.QUICK: ArchitectureRecipe(seeds=2, alphabet=8, window=10, steps=300),
            Tier.FULL: ArchitectureRecipe(
                seeds=3, alphabet=10, window=12, steps=3000, sequences=512
            ),
        }
    )

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """Every variant."""
        recipe = self.recipes[tier]
        return {variant: recipe.training(variant, seed) for variant in (FULL, *OTHERS)}

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Error, geometry and focusing of every variant, before and after training."""
        sequences = self.recipes[tier].sequences
        found: dict[str, float | Sequence[float]] = {}
        for variant, training in self.trainings(tier, seed).items():
            model, tunnel = training.model(), training.tunnel
            initial = build(training.architecture, tunnel, seed).eval()
            part = training.fidelity(sequences=sequences).parts["inside"]
            found[f"{variant}: error"] = mean(part, "mae_tok")
            found[f"{variant}: uniform"] = mean(part, "mae_tok", "uniform")
            options = {"sequences": sequences, "permutations": PERMUTATIONS, "initial": initial}
            for states in measure_values(model, tunnel, **options):
                if states.layer == training.architecture.layers - 1:
                    assert states.given_position is not None  # keys return
                    for name, measured in (
                        ("share", states.share),
                        ("order", states.given_position),
                        ("participation", states.participation),
                    ):
                        found[f"{variant}: {states.states} {name}"] = measured.value
                        found[f"{variant}: {states.states} {name} untrained"] = measured.nulls[
                            "untrained"
                        ]
            layers = [one for one in measure_focusing(model, tunnel, **options) if one.head is None]
            found[f"{variant}: entropy by layer"] = [one.entropy.value for one in layers]
            before = [one.entropy.nulls["untrained"] for one in layers]
            found[f"{variant}: entropy by layer untrained"] = before
            found[f"{variant}: mass by layer"] = [one.mass["consistent"].value for one in layers]
            found[f"{variant}: focusing"] = 1 - layers[-1].entropy.value / layers[0].entropy.value
            found[f"{variant}: focusing untrained"] = 1 - before[-1] / before[0]
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """All have learnt; the geometry is the same; focusing is weaker in every other variant."""
        learnt = judge_all(
            {
                f"error with {variant}": judge_below(
                    by_seed(numbers, f"{variant}: error"), limit=LEARNT
                )
                for variant in (FULL, *OTHERS)
            }
        )
        focusing = {
            f"focusing of {FULL} beyond {variant}": judge_effect(
                _beyond(numbers, variant, "focusing"), minimum=WEAKER
            )
            for variant in OTHERS
        }
        static = {
            f"{name} with {variant}": judge_below(
                [abs(x) for x in _beyond(numbers, variant, f"{STATES} {name}")], limit=SAME
            )
            for name in ("share", "order")
            for variant in OTHERS
        }
        judgement = judge_given("The task is learnt", learnt, judge_all({**static, **focusing}))
        weakest = min(focusing.values(), key=lambda part: part.value)
        falls = ", ".join(
            f"{variant} {average(numbers, f'{variant}: focusing'):.2f}"
            for variant in (FULL, *OTHERS)
        )
        orders = ", ".join(
            f"{variant} {average(numbers, f'{variant}: {STATES} order'):.2f}"
            for variant in (FULL, *OTHERS)
        )
        reason = f"{judgement.reason} Focusing: {falls}. Order: {orders}."
        return self.verdict(
            judgement._replace(reason=reason, value=weakest.value, interval=weakest.interval),
            tier=tier,
            seeds=tuple(numbers),
            unit="more fall of attention entropy with full heads than in the closest other",
            null=_between_seeds(by_seed(numbers, f"{FULL}: focusing")),
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Share, order and focusing of every variant."""
        from matplotlib.figure import Figure

        variants = (FULL, *OTHERS)
        figure = Figure(figsize=(9, 2.8), layout="constrained")
        panels = {
            f"{STATES} share": "variance on the first component",
            f"{STATES} order": "|r| with entropy, given the step",
            "focusing": "fall of attention entropy",
        }
        for axes, (name, label) in zip(
            figure.subplots(1, 3, sharey=True), panels.items(), strict=True
        ):
            for row, variant in enumerate(variants):
                before = by_seed(numbers, f"{variant}: {name} untrained")
                after = by_seed(numbers, f"{variant}: {name}")
                axes.plot(before, [row - 0.1] * len(before), "s", color="C1", alpha=0.7)
                axes.plot(after, [row + 0.1] * len(after), "o", color="C0", alpha=0.8)
            axes.set(xlabel=label)
            axes.set_yticks(range(len(variants)), variants)
        caption = (
            "Geometry of the last attention outputs, and how far attention sharpens from the first "
            "layer to the last: circles after training, squares before; a point is a seed."
        )
        return [Picture("variants", figure, caption, "Points by variant, three panels.")]


def _beyond(numbers: Mapping[int, Numbers], variant: str, name: str) -> list[float]:
    """With full heads minus with the variant, by seed."""
    own, other = (by_seed(numbers, f"{one}: {name}") for one in (FULL, variant))
    return [a - b for a, b in zip(own, other, strict=True)]


def _between_seeds(values: Sequence[float]) -> float:
    """Mean difference of two seeds; 0 if there is one."""
    return float(np.mean([abs(a - b) for a, b in combinations(values, 2)] or [0.0]))
