"""dynamics-em: does an EM-like schedule, fast values and slow routing, converge faster than SGD?

The published comparison gives the values ten times the learning rate of everything in SGD, and so
compares learning rates. Here every schedule has its learning rate chosen on sequences of its own,
and its speed is measured on fresh ones, in *doublings*: log2 of how many times fewer steps it takes
to where both schedules get in the same seed. Both start from the same weights.

Losses are cross-entropies in nats. The floor is H(y_t | y_{t-1}), 1.883 nats or 2.717 bits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Generator

from bayesattn.claims.registry import register
from bayesattn.dynamics.em import (
    CHAIN,
    EM,
    SCHEDULES,
    SGD,
    TWO_FORWARDS,
    Problem,
    Schedule,
    chain_floor,
    chain_problem,
    draw_weights,
)
from bayesattn.dynamics.head import Weights
from bayesattn.dynamics.sweep import Curves, best_rate, descend, doublings
from bayesattn.ledger.study import Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve
from bayesattn.stats import judge_effect

OTHER_START = "SGD, another start"
SAME_NORM = "equal step norm"
PUBLISHED = 0.01
"""Learning rate of the published comparison, for all of SGD and for all but the values of EM."""
DIVERGED = 10.0
"""Nats: losses beyond are recorded as this."""


@dataclass(frozen=True, kw_only=True)
class EMRecipe(Recipe):
    """Data, steps and the rates to choose from."""

    length: int
    """Positions of a sequence."""
    sequences: int
    """Sequences trained on, all of them in every step."""
    watched: int
    """Sequences to choose rates on, and as many to test on."""
    steps: int
    rates: tuple[float, ...]
    """Base learning rates."""
    norms: tuple[float, ...]
    """Lengths of a step, where all steps of all schedules are equally long."""
    looks: int = 16
    """Evaluations along the way."""

    @property
    def at(self) -> list[int]:
        """Steps to look after."""
        return [round(self.steps * look / self.looks) for look in range(self.looks + 1)]


@register("dynamics-em")
class DynamicsEM(Study[EMRecipe, Numbers]):
    """One head on a sticky Markov chain, trained by five schedules."""

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Curves of every schedule at its own rate, and how much sooner than SGD it is there."""
        recipe = self.recipes[tier]
        generator = Generator().manual_seed(seed)
        sizes = (recipe.sequences, recipe.watched, recipe.watched)
        train, validation, test = (
            chain_problem(recipe.length, generator, sequences=count) for count in sizes
        )
        start, other = (draw_weights(CHAIN, generator) for _ in range(2))
        watched = {"validation": validation, "test": test}
        found: dict[str, float | Sequence[float]] = {}

        def tuned(name: str, schedule: Schedule, weights: Weights, same_norm: bool) -> Curves:
            choices = recipe.norms if same_norm else recipe.rates
            curves = descend(
                train,
                weights,
                schedule,
                choices,
                at=recipe.at,
                watched=watched,
                equal_norm=same_norm,
            )
            best = best_rate(curves["validation"])
            found[f"{name}: rate"] = choices[best]
            found[f"{name}: rate at the edge"] = float(best in (0, len(choices) - 1))
            found[f"{name}: validation loss by rate"] = _finite(curves["validation"])
            return Curves(*(part[best] for part in curves["test"]))

        sgd = tuned(SGD, SCHEDULES[SGD], start, False)
        _note(found, SGD, sgd)
        for name, schedule in SCHEDULES.items():
            if name != SGD:
                curves = tuned(name, schedule, start, False)
                _note(found, name, curves)
                found[f"{name}: doublings"] = doublings(sgd.loss, curves.loss, recipe.at)
                if schedule.work != SCHEDULES[SGD].work:
                    cost = schedule.work / SCHEDULES[SGD].work
                    found[f"{name}, equal cost: doublings"] = doublings(
                        sgd.loss, curves.loss, recipe.at, cost=cost
                    )
        again = tuned(OTHER_START, SCHEDULES[SGD], other, False)
        found[f"{OTHER_START}: doublings"] = doublings(sgd.loss, again.loss, recipe.at)
        plain, fast = (
            tuned(f"{name}, {SAME_NORM}", SCHEDULES[name], start, True) for name in (SGD, EM)
        )
        found[f"{EM}, {SAME_NORM}: doublings"] = doublings(plain.loss, fast.loss, recipe.at)
        found["published rates: doublings"] = _published(train, start, recipe)
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """One-forward EM against SGD, at equal steps, which for these two cost the same."""
        judgement = judge_effect(by_seed(numbers, f"{EM}: doublings"))
        names = [
            TWO_FORWARDS,
            f"{TWO_FORWARDS}, equal cost",
            *(name for name in SCHEDULES if name not in (SGD, EM, TWO_FORWARDS)),
            f"{EM}, {SAME_NORM}",
            "published rates",
        ]
        shown = ", ".join(f"{n} {average(numbers, f'{n}: doublings'):+.2f}" for n in names)
        # A rate at the edge is not tuned: a still larger or smaller one may be better.
        edges = ", ".join(
            f"{n} {sum(by_seed(numbers, f'{n}: rate at the edge')):.0f}" for n in (SGD, EM)
        )
        reason = (
            f"{judgement.reason} In doublings: {shown}. Seeds whose chosen rate is the smallest or "
            f"largest on offer: {edges}."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="doublings of the speed of SGD",
            null=average(numbers, f"{OTHER_START}: doublings"),
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Fresh loss of the tuned schedules, and what every rate gives."""
        from matplotlib.figure import Figure

        recipe = self.recipes[tier]
        figure = Figure(figsize=(8.5, 3.6), layout="constrained")
        losses, sweep = figure.subplots(1, 2)
        for colour, name in enumerate(SCHEDULES):
            style = "--" if name == TWO_FORWARDS else "-"
            losses.plot(
                recipe.at, curve(numbers, f"{name}: test loss, nats"), style, color=f"C{colour}"
            )
            by_rate = curve(numbers, f"{name}: validation loss by rate")
            sweep.plot(recipe.rates, by_rate, f"o{style}", color=f"C{colour}", label=name, ms=3)
        losses.axhline(chain_floor(), color="grey", ls=":")
        losses.set(xlabel="step", ylabel="loss on fresh sequences, nats")
        losses.set_title("tuned rates (dotted: floor)", fontsize=10)
        lowest = min(min(curve(numbers, f"{n}: validation loss by rate")) for n in SCHEDULES)
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


def _note(found: dict[str, float | Sequence[float]], name: str, curves: Curves) -> None:
    """Curves on fresh sequences, and where they are lowest."""
    lowest = int(curves.loss.argmin())
    gap = curves.loss[lowest].item() - chain_floor()
    found[f"{name}: test loss, nats"] = curves.loss.tolist()
    found[f"{name}: lowest gap, nats"] = gap
    found[f"{name}: lowest gap, bits"] = gap / math.log(2)
    found[f"{name}: accuracy there"] = curves.accuracy[lowest].item()
    found[f"{name}: entropy there, nats"] = curves.entropy[lowest].item()


def _finite(curves: Curves) -> list[float]:
    """Mean loss at every rate, held where it diverged."""
    return curves.loss.mean(-1).nan_to_num(nan=DIVERGED).clamp(max=DIVERGED).tolist()


def _published(train: Problem, start: Weights, recipe: EMRecipe) -> float:
    """Doublings on the training data, untuned: what the authors compare."""
    slow, fast = (
        descend(train, start, SCHEDULES[name], [PUBLISHED], at=recipe.at, watched={"": train})
        for name in (SGD, EM)
    )
    return doublings(slow[""].loss[0], fast[""].loss[0], recipe.at)
