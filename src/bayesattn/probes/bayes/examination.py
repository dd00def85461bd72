"""Is it Bayesian, and where does its belief live? All that `bayesattn bayes` finds of a model.

Seeds are measured one after the other over all tasks, so that first numbers are there early; what
was measured stays if the rest fails.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Generator

from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.probes.bayes import belief
from bayesattn.probes.bayes.behaviour import (
    Seed,
    Task,
    Verdict,
    judge_seeds,
    measure_seed,
    reference,
)
from bayesattn.probes.bayes.belief import LayerBelief
from bayesattn.probes.bayes.laws import held_out_errors
from bayesattn.probes.examination import Row, lacks_memory, measured_row
from bayesattn.probes.llm.subject import resolve_layer
from bayesattn.probes.measured import Measured, plain
from bayesattn.stats import Interval, mean_interval
from bayesattn.tunnels import Tunnel

SEEDS, FRESH = 8, 4
"""Draws of sequences; and of those, and of weights, for networks with fresh weights."""
WHERE = "where the belief lives"
FRESH_WEIGHTS = "fresh weights"

Open = Callable[[int | None], list[Task]]
"""From None, the trained model, or a seed of fresh weights, to what it is asked."""


@dataclass(frozen=True, kw_only=True)
class TaskFound:
    """One task, all seeds."""

    name: str
    what: str
    tunnel: Tunnel
    seeds: list[Seed] = field(default_factory=list[Seed])
    fresh: list[Seed] = field(default_factory=list[Seed])

    @property
    def verdict(self) -> Verdict:
        return judge_seeds(self.seeds)

    def rows(self) -> Iterator[Row]:
        for what, measured in self.measured().items():
            yield measured_row("behaviour", self.name, what, measured)

    def measured(self) -> dict[str, Measured]:
        """Everything beside exact Bayes, the trivial predictor and fresh weights."""
        shown = {
            "missed": self._over(lambda one: one.missed, exact_Bayes=0.0, trivial=1.0),
            "KL(Bayes ‖ model), bits": self._over(
                lambda one: one.bits, trivial=_mean([one.trivial for one in self.seeds])
            ),
            "mass of the labels": self._over(
                lambda one: one.mass if one.mass < 1 else None, most=1.0
            ),
            "share of order": self._over(lambda one: one.order and one.order.share, most=1.0),
            "gain of averaging orders, bits": self._over(
                lambda one: one.order and one.order.single - one.order.averaged, -math.inf
            ),
            "share of drift": self._over(lambda one: one.drift and one.drift.share, most=1.0),
        }
        for prior in {one.prior.field for one in self.seeds if one.prior}:
            stated = float(getattr(self.tunnel, prior))
            own = self._over(lambda one: one.prior and one.prior.value, stated=stated)
            shown[f"{prior} of its own prior"] = own
            shown["missed under its own prior"] = self._over(
                lambda one: one.prior and one.prior.missed
            )
        bayes = held_out_errors(reference(self.tunnel).least.tolist()) or {}
        for law in bayes:
            shown[f"{law} law, held-out error, bits"] = self._over(
                lambda one, law=law: one.laws[law] if one.laws else None,
                curve_of_Bayes=bayes[law],
            )
        return {what: one for what, one in shown.items() if one is not None}

    def _over(
        self,
        number: Callable[[Seed], float | None],
        least: float = 0.0,
        most: float = math.inf,
        **nulls: float | None,
    ) -> Measured | None:
        """Mean and interval over seeds, inside what is possible, and the mean of fresh weights."""
        own, fresh = (
            [x for one in seeds if (x := number(one)) is not None]
            for seeds in (self.seeds, self.fresh)
        )
        if not own:
            return None
        interval = mean_interval(own)
        if interval is not None:
            interval = Interval(max(least, interval.low), min(most, interval.high))
        measured = Measured(value=_mean(own), interval=interval)
        return measured.beside(**nulls, fresh_weights=_mean(fresh) if fresh else None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "what": self.what,
            "tunnel": self.tunnel.to_dict(),
            "verdict": self.verdict.words if self.seeds else None,
            "reason": self.verdict.reason if self.seeds else None,
            "fresh verdict": judge_seeds(self.fresh).words if self.fresh else None,
            "measured": plain(self.measured()) if self.seeds else {},
            "seeds": plain(self.seeds),
            "fresh": plain(self.fresh),
        }


@dataclass
class BayesFound:
    """Filled while it is measured."""

    name: str
    sequences: int
    tasks: list[TaskFound] = field(default_factory=list[TaskFound])
    where_task: str = ""
    where: list[LayerBelief] = field(default_factory=list[LayerBelief])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def measured(self) -> list[TaskFound]:
        return [one for one in self.tasks if one.seeds]

    @property
    def sentence(self) -> str:
        """What it comes to."""
        found = self.measured
        if not found:
            return f"{self.name}: nothing was measured"
        if len(found) == 1:
            (one,) = found
            fresh = f"; with fresh weights: {judge_seeds(one.fresh).words}" if one.fresh else ""
            return f"{self.name}, {one.name}: {one.verdict.words}{fresh}"
        by_words: dict[str, list[str]] = {}
        for one in found:
            by_words.setdefault(one.verdict.words, []).append(one.name)
        parts = (f"{words} ({', '.join(names)})" for words, names in by_words.items())
        return f"{self.name}: {'; '.join(parts)}"

    def rows(self) -> list[Row]:
        behaviour = [row for one in self.measured for row in one.rows()]
        return behaviour + [row for one in self.where for row in where_rows(one)]

    def verdict_rows(self) -> list[Row]:
        return [
            {
                "task": one.name,
                "verdict": one.verdict.words,
                "why": one.verdict.reason,
                FRESH_WEIGHTS: judge_seeds(one.fresh).words if one.fresh else "",
            }
            for one in self.measured
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "sentence": self.sentence,
            "sequences": self.sequences,
            "tasks": [one.to_dict() for one in self.tasks],
            "where": {"task": self.where_task, "layers": plain(self.where)},
            "skipped": self.skipped,
        }


def where_rows(one: LayerBelief) -> Iterator[Row]:
    shown = {
        "|r| of the axis with entropy, given step": one.order,
        "missed more without the axis": one.axis and one.axis.extra,
        "missed more without the plane": one.plane and one.plane.extra,
        "rise of entropy when steered, bits": one.steer and one.steer.rise,
    }
    for what, measured in shown.items():
        if measured is not None:
            yield measured_row("belief", f"L{one.layer}", what, measured)


def examine(
    name: str,
    open_model: Open,
    *,
    seeds: int = SEEDS,
    sequences: int,
    fresh: int = FRESH,
    layers: Sequence[int] | None = None,
    where: bool = True,
    tell: Callable[[str], None] = lambda _: None,
    show: Callable[[str], None] = lambda _: None,
) -> BayesFound:
    """Measure everything; `tell` hears what is being done, `show` the first numbers.

    `layers` are where the belief is looked for, some of all depths if None.
    """
    found = BayesFound(name, sequences)
    try:
        tasks = open_model(None)
        found.tasks = [TaskFound(name=t.name, what=t.what, tunnel=t.tunnel) for t in tasks]
        _measure(found, tasks, range(seeds), sequences, tell, show, fresh=False)
        if where:
            _locate(found, tasks, layers, sequences, tell)
        del tasks  # one model at a time is in memory
        for seed in range(fresh):
            tell(f"weights of seed {seed}")
            _measure(found, open_model(seed), [seed], sequences, tell, show, fresh=True)
    except KeyboardInterrupt:
        _stopped(found, "it was interrupted")
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        _stopped(found, "memory ran out: take fewer --sequences")
    return found


def _stopped(found: BayesFound, why: str) -> None:
    if not found.measured:
        raise ValueError(f"nothing was measured before {why}")
    found.skipped["the rest"] = f"{why}; this is what was measured until then"


def _measure(
    found: BayesFound,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    sequences: int,
    tell: Callable[[str], None],
    show: Callable[[str], None],
    *,
    fresh: bool,
) -> None:
    for seed in seeds:
        for task, kept in zip(tasks, found.tasks, strict=True):
            if task.name in found.skipped:
                continue
            tell(f"{FRESH_WEIGHTS if fresh else 'seed'} {seed}: {task.name}")
            try:
                one = measure_seed(task, seed, sequences)
            except ValueError as error:
                if not fresh:
                    found.skipped[task.name] = str(error)
                    if len(found.skipped) == len(tasks):
                        raise
                continue
            (kept.fresh if fresh else kept.seeds).append(one)
            if seed == 0 and not fresh:
                show(
                    f"  {task.name}: missed {one.missed:.2g} of the evidence in the first "
                    f"{sequences} sequences (exact Bayes 0, trivial 1)"
                )


def _locate(
    found: BayesFound,
    tasks: Sequence[Task],
    layers: Sequence[int] | None,
    sequences: int,
    tell: Callable[[str], None],
) -> None:
    """In the task that the model infers best in."""
    inferring = [one for one in found.measured if one.verdict.inferring]
    if not inferring:
        found.skipped[WHERE] = "the model is not shown to infer in any task, so there is no belief"
        return
    best = min(inferring, key=lambda one: sum(seed.missed for seed in one.seeds))
    task = next(task for task in tasks if task.name == best.name)
    reader = task.reader(0)
    try:
        count = len(reader.sites())
        chosen = [resolve_layer(n, count) for n in layers or belief.depths(count)]
        batch = task.tunnel.sample(4 * sequences, Generator().manual_seed(EVAL_SEED + 1000))
        found.where = belief.locate(
            reader,
            batch,
            reference(task.tunnel).trivial,
            chosen,
            tell=lambda what: tell(f"where the belief lives: {what}"),
        )
        found.where_task = task.name
    except ValueError as error:
        found.skipped[WHERE] = str(error)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
