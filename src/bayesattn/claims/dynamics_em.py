"""dynamics-em: does an EM-like schedule, fast values and slow routing, converge faster than SGD?

The published comparison gives the values ten times the learning rate of everything in SGD, and so
compares learning rates. Here every schedule has its learning rate chosen on sequences of its own,
and its speed is measured on fresh ones, in *doublings*: log2 of how many times fewer steps it takes
to where both schedules get in the same seed. Both start from the same weights.

Losses are cross-entropies in nats. The floor is H(y_t | y_{t-1}), 1.883 nats or 2.717 bits.
"""

import math
from collections.abc import Mapping

import numpy as np
from torch import Generator

from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.dynamics.em import (
    CHAIN,
    EM,
    SCHEDULES,
    SGD,
    TWO_FORWARDS,
    Problem,
    chain_floor,
    chain_problem,
    initial_weights,
)
from bayesattn.dynamics.head import Weights
from bayesattn.dynamics.sweep import Curves, best_rate, descend, doublings
from bayesattn.ledger.study import Finding, Picture, Recipe, Study, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.ledger.words import tell_means
from bayesattn.stats import judge_effect

OTHER_START = "SGD, another start"
SAME_NORM = "equal step norm"
EQUAL_COST = "equal cost"
PUBLISHED = "published rates"
PUBLISHED_RATE = 0.01
"""Learning rate of the published comparison, for all of SGD and for all but the values of EM."""
DIVERGED = 10.0
"""Nats: losses beyond are recorded as this."""


class EMRecipe(Recipe):
    """Data, steps and the rates to choose from."""

    length: int
    sequences: int
    """Sequences trained on, all of them in every step."""
    watched: int
    """Sequences to choose rates on, and as many to test on."""
    steps: int
    rates: tuple[float, ...]
    norms: tuple[float, ...]
    """Lengths of a step, where all steps of all schedules are equally long."""
    looks: int = 16
    """Evaluations along the way."""

    @property
    def at(self) -> list[int]:
        return [round(self.steps * look / self.looks) for look in range(self.looks + 1)]


class Tuned(Stored):
    """How the rate of a schedule was chosen."""

    rate: float
    at_the_edge: bool
    """The smallest or largest rate was best, so a still smaller or larger one may be better."""
    validation_loss: list[float]
    """Nats, by rate."""


class Fresh(Stored):
    """A tuned schedule on fresh sequences."""

    loss: list[float]
    """Nats, at every look."""
    gap: float
    """Nats: the lowest loss, above the floor."""
    accuracy: float
    """Where the loss is lowest; so is the entropy."""
    entropy: float
    """Nats."""


class Speeds(Stored):
    """What one seed found, by schedule."""

    tuned: Mapping[str, Tuned]
    fresh: Mapping[str, Fresh]
    doublings: Mapping[str, float]
    """log2 of how many times as fast as SGD."""


Found = Mapping[int, Speeds]


@register("dynamics-em")
class DynamicsEM(Study[EMRecipe, Speeds]):
    """One head on a sticky Markov chain, trained by five schedules."""

    def measure(self, tier: Tier, seed: int) -> Speeds:
        recipe = self.recipes[tier]
        generator = Generator().manual_seed(seed)
        sizes = (recipe.sequences, recipe.watched, recipe.watched)
        train, validation, test = (
            chain_problem(recipe.length, generator, sequences=count) for count in sizes
        )
        start, other = (initial_weights(CHAIN, generator) for _ in range(2))
        rates: dict[str, Tuned] = {}
        speeds: dict[str, float] = {}

        def tune(
            name: str, schedule: str, weights: Weights = start, same_norm: bool = False
        ) -> Curves:
            choices = recipe.norms if same_norm else recipe.rates
            curves = descend(
                train,
                weights,
                SCHEDULES[schedule],
                choices,
                at=recipe.at,
                watched={"validation": validation, "test": test},
                equal_norm=same_norm,
            )
            best = best_rate(curves["validation"])
            rates[name] = Tuned(
                rate=choices[best],
                at_the_edge=best in (0, len(choices) - 1),
                validation_loss=_finite(curves["validation"]),
            )
            return Curves(*(part[best] for part in curves["test"]))

        fresh = {name: tune(name, name) for name in SCHEDULES}
        sgd = fresh[SGD].loss
        for name, curves in fresh.items():
            if name == SGD:
                continue
            speeds[name] = doublings(sgd, curves.loss, recipe.at)
            cost = SCHEDULES[name].work / SCHEDULES[SGD].work
            if cost != 1:
                equal = doublings(sgd, curves.loss, recipe.at, cost=cost)
                speeds[f"{name}, {EQUAL_COST}"] = equal
        again = tune(OTHER_START, SGD, other)
        speeds[OTHER_START] = doublings(sgd, again.loss, recipe.at)
        slow, fast = (tune(f"{name}, {SAME_NORM}", name, same_norm=True) for name in (SGD, EM))
        speeds[f"{EM}, {SAME_NORM}"] = doublings(slow.loss, fast.loss, recipe.at)
        speeds[PUBLISHED] = _published(train, start, recipe)
        return Speeds(
            tuned=rates,
            fresh={name: _fresh(curves) for name, curves in fresh.items()},
            doublings=speeds,
        )

    def judge(self, tier: Tier, found: Found) -> Finding:
        """One-forward EM against SGD, at equal steps, which for these two cost the same."""
        speeds = {
            name: [one.doublings[name] for one in found.values()]
            for name in next(iter(found.values())).doublings
        }
        names = [
            TWO_FORWARDS,
            f"{TWO_FORWARDS}, {EQUAL_COST}",
            *(name for name in SCHEDULES if name not in (SGD, EM, TWO_FORWARDS)),
            f"{EM}, {SAME_NORM}",
            PUBLISHED,
        ]
        shown = tell_means({name: speeds[name] for name in names}, "+.2f")
        edges = ", ".join(
            f"{name} {sum(one.tuned[name].at_the_edge for one in found.values())}"
            for name in (SGD, EM)
        )
        return Finding(
            judge_effect(speeds[EM]),
            unit="doublings of the speed of SGD",
            null=float(np.mean(speeds[OTHER_START])),
            note=f"In doublings: {shown}. Seeds whose chosen rate is the smallest or largest on "
            f"offer: {edges}.",
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        recipe = self.recipes[tier]
        figure, (losses, sweep) = panels(2, size=(8.5, 3.6))
        lowest = math.inf
        for colour, name in enumerate(SCHEDULES):
            style = "--" if name == TWO_FORWARDS else "-"
            loss = np.mean([one.fresh[name].loss for one in found.values()], 0)
            losses.plot(recipe.at, loss, style, color=f"C{colour}")
            by_rate = np.mean([one.tuned[name].validation_loss for one in found.values()], 0)
            sweep.plot(recipe.rates, by_rate, f"o{style}", color=f"C{colour}", label=name, ms=3)
            lowest = min(lowest, by_rate.min())
        losses.axhline(chain_floor(), color="grey", ls=":")
        losses.set(xlabel="step", ylabel="loss on fresh sequences, nats")
        losses.set_title("tuned rates (dotted: floor)", fontsize=10)
        sweep.set(xscale="log", xlabel="base learning rate", ylabel="mean validation loss, nats")
        sweep.set_ylim(lowest - 0.01, math.log(CHAIN.outcomes) + 0.05)
        sweep.set_xticks(recipe.rates, [f"{rate:g}" for rate in recipe.rates], fontsize=7)
        sweep.minorticks_off()
        sweep.set_title("what tuning chose from", fontsize=10)
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
        caption = (
            "Left: loss on fresh sequences, each schedule at its own rate; right: validation loss, "
            "averaged over the training, at every rate. Means over seeds."
        )
        alt = "Curves of five schedules over steps, and over learning rates."
        return [Picture("schedules", figure, caption, alt)]


def _fresh(curves: Curves) -> Fresh:
    lowest = int(curves.loss.argmin())
    return Fresh(
        loss=curves.loss.numpy().tolist(),
        gap=curves.loss[lowest].item() - chain_floor(),
        accuracy=curves.accuracy[lowest].item(),
        entropy=curves.entropy[lowest].item(),
    )


def _finite(curves: Curves) -> list[float]:
    """Mean loss at every rate, held where it diverged."""
    return curves.loss.mean(-1).nan_to_num(nan=DIVERGED).clamp(max=DIVERGED).numpy().tolist()


def _published(train: Problem, start: Weights, recipe: EMRecipe) -> float:
    """Doublings on the training data, untuned: what the authors compare."""
    slow, fast = (
        descend(train, start, SCHEDULES[name], [PUBLISHED_RATE], at=recipe.at, watched={"": train})
        for name in (SGD, EM)
    )
    return doublings(slow[""].loss[0], fast[""].loss[0], recipe.at)
