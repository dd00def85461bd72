"""dynamics-em: does an EM-like schedule, fast values and slow routing, converge faster than SGD?

The published comparison gives the values ten times the learning rate of everything in SGD, and so
compares learning rates. It is made again as published: one long sequence, how many times fewer
steps EM takes to where SGD ends on it. As a control every schedule has its learning rate chosen on
sequences of its own, and its speed is measured on fresh ones, in *doublings*: log2 of how many
times fewer steps it takes to where both schedules get in the same seed. All start from the same
weights.

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
    QUERIES_AND_KEYS,
    SCHEDULES,
    SGD,
    TWO_FORWARDS,
    chain_floor,
    chain_problem,
    initial_weights,
)
from bayesattn.dynamics.head import Weights
from bayesattn.dynamics.sweep import Curves, best_rate, descend, doublings, times_as_fast
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored

OTHER_START = "SGD, another start"
SAME_NORM = "equal step norm"
EQUAL_COST = "equal cost"
PUBLISHED_RATE = 0.01
"""Learning rate of the published comparison, for all of SGD and for all but the values of EM."""
PUBLISHED_EVALUATIONS = 100
DIVERGED = 10.0
"""Nats: losses beyond are recorded as this."""
LEARNT = 0.15
"""Nats above the floor: who never comes so near has not learnt the task; guesses have 0.196."""


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
    evaluations: int = 16
    """Along the way."""
    published_length: int
    """Of the one sequence that the published comparison trains and measures on."""
    published_steps: int

    @property
    def at(self) -> list[int]:
        return evenly(self.steps, self.evaluations)


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


class Published(Stored):
    """The published comparison: losses on the sequence that is trained on, nats."""

    sgd: float
    """At the end; so is the next one."""
    em: float
    times: float
    """So many times fewer steps take EM to where SGD ends."""


class Speeds(Stored):
    """What one seed found, by schedule."""

    published: Published
    tuned: Mapping[str, Tuned]
    fresh: Mapping[str, Fresh]
    doublings: Mapping[str, float]
    """log2 of how many times as fast as SGD, rates tuned."""


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
        return Speeds(
            published=_published(seed, recipe),
            tuned=rates,
            fresh={name: _fresh(curves) for name, curves in fresh.items()},
            doublings=speeds,
        )

    def values(self, tier: Tier, one: Speeds) -> Mapping[str, Value]:
        """One-forward schedules against SGD, at equal steps, which for these cost the same."""
        other = one.doublings[OTHER_START]

        def tuned(name: str) -> Value:
            learnt = all(one.fresh[arm].gap <= LEARNT for arm in (SGD, name))
            return Value(one.doublings[name], other, learnt)

        return {
            "published-rates": Value(one.published.times),
            "tuned": tuned(EM),
            "as-fast": tuned(EM),
            "attention-fast": tuned(QUERIES_AND_KEYS),
        }

    def draw(self, tier: Tier, found: Mapping[int, Speeds]) -> list[Picture]:
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


def evenly(steps: int, evaluations: int) -> list[int]:
    return [round(steps * at / evaluations) for at in range(evaluations + 1)]


def _published(seed: int, recipe: EMRecipe) -> Published:
    """On data and weights of its own, drawn like those of the others."""
    generator = Generator().manual_seed(seed)
    train = chain_problem(recipe.published_length, generator)
    start = initial_weights(CHAIN, generator)
    at = evenly(recipe.published_steps, min(recipe.published_steps, PUBLISHED_EVALUATIONS))
    slow, fast = (
        descend(train, start, SCHEDULES[name], [PUBLISHED_RATE], at=at, watched={"": train})
        for name in (SGD, EM)
    )
    sgd, em = slow[""].loss[0], fast[""].loss[0]
    times = times_as_fast(sgd, em, at)
    return Published(sgd=sgd[-1].item(), em=em[-1].item(), times=times)
