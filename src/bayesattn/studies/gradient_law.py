"""Claims about a gradient of attention: the law and autograd must differ by rounding only.

A subclass says what its law gives for one head and for a layer of a model, and what autograd gives;
this compares the two on random heads, on every head of trained models and on an untrained one with
all that may enter a score, and then takes real steps: what the law leaves unexplained must shrink
with the square of the step.

Differences are relative to the largest gradient of the head, since gradients of a trained model can
be small as a whole.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Generator, Tensor, nn

from bayesattn.dynamics.autograd import random_head
from bayesattn.dynamics.head import Head
from bayesattn.models.architectures import Transformer, build
from bayesattn.stats import Judgement, Outcome, judge_all, judge_below, judge_identity
from bayesattn.studies.study import Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.studies.summaries import by_seed, curve, first
from bayesattn.training import load_predictor
from bayesattn.tunnels import HMM, Batch
from bayesattn.zoo import locate

TOLERANCE = 1e-10
ORDER = 0.05
"""How far the order of the remainder may be from 2."""
ETAS = tuple(np.geomspace(1e-3, 1e-5, 7).tolist())
FLOOR = 1e-18

RANDOM = "random heads"
EVERYTHING = "untrained, grouped queries, prior and SSMax"
TRAINED = ("zoo:bijection-10", "zoo:bijection-10-returning")


class Sides(NamedTuple):
    """The law, what autograd says, and wrong laws by name; all of one shape."""

    law: Tensor
    truth: Tensor
    wrong: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class LawRecipe(Recipe):
    """Random heads of these lengths, and sequences per model."""

    lengths: tuple[int, ...]
    sequences: int


RECIPES = {
    Tier.QUICK: LawRecipe(seeds=3, lengths=(5, 30), sequences=8),
    Tier.FULL: LawRecipe(seeds=10, lengths=(5, 30, 100), sequences=32),
}


class GradientLawStudy(Study[LawRecipe]):
    """A study of a law; see the module."""

    recipes = RECIPES

    @abstractmethod
    def of_head(self, head: Head, generator: Generator) -> Sides:
        """Both sides for one head [T, ...]."""

    @abstractmethod
    def of_layer(self, model: nn.Module, batch: Batch, layer: int, generator: Generator) -> Sides:
        """Both sides for all heads of a layer, [B, heads, ...]."""

    @abstractmethod
    def remainder(self, head: Head, eta: float) -> float:
        """What first order leaves unexplained of a step of size eta."""

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Differences by place, one per head, and remainders by size of the step."""
        recipe = self.recipes[tier]
        generator = Generator().manual_seed(seed)
        found: dict[str, list[float]] = {}

        def note(place: str, sides: Sides) -> None:
            size = _largest(sides.truth)
            for name, side in (("error", sides.law), *sides.wrong.items()):
                differences = _largest(side - sides.truth) / size
                found.setdefault(f"{place}: {name}", []).extend(differences.tolist())

        for length, causal, prior in product(recipe.lengths, (False, True), (False, True)):
            head = random_head(generator, length, causal=causal, prior=prior)
            sides = self.of_head(head, generator)
            wrong = {name: side[None, None] for name, side in sides.wrong.items()}
            note(RANDOM, Sides(sides.law[None, None], sides.truth[None, None], wrong))
        for place, model, batch in _models(recipe.sequences, seed, generator):
            for layer in range(2):
                note(place, self.of_layer(model, batch, layer, generator))
        head = random_head(generator, 12, causal=True, prior=True, reduction="sum")
        remainders = [self.remainder(head, eta) for eta in ETAS]
        order = np.polyfit(np.log(ETAS), np.log(remainders), 1)[0]
        return {**found, "remainder": remainders, "order": float(order)}

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Rounding everywhere, and a remainder of second order."""
        parts: dict[str, Judgement] = {}
        for place in _places(numbers):
            errors, wrong = _pooled(numbers, place)
            parts[place] = judge_identity(errors, wrong, tolerance=TOLERANCE)
        worst = max(part.value for part in parts.values())
        weakest = min(min(_pooled(numbers, place)[1]) for place in parts)
        orders = by_seed(numbers, "order")
        off = [abs(order - 2) for order in orders]
        parts["order of the remainder, distance from 2"] = judge_below(off, limit=ORDER)
        judgement = judge_all(parts)
        if judgement.outcome is Outcome.SUPPORTED:
            reason = (
                f"The largest relative difference {worst:.1g} is within {TOLERANCE:.0e} in every "
                f"head, wrong laws differ by {weakest:.2g} or more, and what the law leaves "
                f"unexplained of a step shrinks with its power {np.mean(orders):.3f}."
            )
            judgement = judgement._replace(value=worst, interval=None, reason=reason)
        else:
            judgement = judgement._replace(value=worst, interval=None)
        return self.verdict(
            judgement,
            tier=tier,
            seeds=tuple(numbers),
            unit="largest relative difference",
            null=weakest,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Differences in every head, and the remainder of real steps."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3.6), layout="constrained")
        heads, steps = figure.subplots(1, 2, width_ratios=(3, 2))
        places = _places(numbers)
        for row, place in enumerate(places):
            for colour, values in enumerate(_pooled(numbers, place)):
                spread = np.linspace(-0.3, 0.3, len(values)) + row
                heads.plot(np.maximum(values, FLOOR), spread, ".", color=f"C{colour}", ms=4)
        heads.axvline(TOLERANCE, color="grey", ls=":")
        heads.set(xscale="log", xlabel="largest relative difference, one point per head")
        heads.set_yticks(range(len(places)), [_folded(place) for place in places], fontsize=8)
        heads.set_title("law (left), wrong laws (right)", fontsize=10)
        remainders = curve(numbers, "remainder")
        steps.plot(ETAS, remainders, "o-")
        steps.plot(ETAS, [remainders[0] * (eta / ETAS[0]) ** 2 for eta in ETAS], ":", color="grey")
        steps.set(xscale="log", yscale="log", xlabel="size of the step η", ylabel="unexplained")
        steps.set_title("dotted: η²", fontsize=10)
        caption = (
            "Left: the law against autograd in float64, and wrong laws against autograd; dotted, "
            "what rounding may cause. Right: what first order leaves unexplained of a real step."
        )
        alt = "The law is at rounding level in every head, wrong laws far from it."
        return [Picture("law", figure, caption, alt)]


def _models(
    sequences: int, seed: int, generator: Generator
) -> Iterator[tuple[str, nn.Module, Batch]]:
    """Models in float64, each with a batch of its tunnel."""
    for name in TRAINED:
        model, tunnel = load_predictor(locate(name))
        yield name, model.double(), tunnel.sample(sequences, generator)
    tunnel = HMM(3, 3, 8)
    everything = Transformer(
        width=32,
        kv_heads=2,
        prior="ggd",
        prior_options={"init": "mixed"},
        ssmax=True,
        exempt_header=True,
    )
    model = build(everything, tunnel, seed).double()
    yield EVERYTHING, model, tunnel.sample(sequences, generator)


def _largest(x: Tensor) -> Tensor:
    """[heads] largest entry of [B, heads, ...]."""
    return x.abs().transpose(0, 1).flatten(1).amax(1)


def _places(numbers: Mapping[int, Numbers]) -> list[str]:
    return [name.removesuffix(": error") for name in first(numbers) if name.endswith(": error")]


def _pooled(numbers: Mapping[int, Numbers], place: str) -> tuple[list[float], list[float]]:
    """Differences of the law and of the wrong laws, over heads and seeds."""
    law: list[float] = []
    wrong: list[float] = []
    for found in numbers.values():
        for name, values in found.items():
            if name.startswith(f"{place}: "):
                (law if name == f"{place}: error" else wrong).extend(cast(Sequence[float], values))
    return law, wrong


def _folded(text: str) -> str:
    return text.replace(", ", ",\n")


def shuffled(x: Tensor, visible: Tensor | None, generator: Generator) -> Tensor:
    """Entries of each row of x [..., T, S] exchanged among the keys that the query sees."""
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    if visible is None:
        return x.gather(-1, noise.argsort(-1))
    hidden = ~visible.expand(x.shape)
    # Visible keys first, in random order there and in their own order here.
    source = noise.masked_fill(hidden, 2.0).argsort(-1)
    place = torch.arange(x.shape[-1], dtype=torch.float64).expand(x.shape)
    place = place.masked_fill(hidden, float(x.shape[-1])).argsort(-1)
    return torch.empty_like(x).scatter_(-1, place, x.gather(-1, source))
