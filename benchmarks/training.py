"""`python -m benchmarks training`: what our loop costs, and how soon it is faithful.

Overhead: steps per second of the quick bijection recipe in our loop, with its evaluations,
metrics and checkpoints, over those of a bare torch loop on a plain module of the same shape.

Time to fidelity: seconds until the entropy error is below the target, ours against the authors'
recipe (`plain.AuthorsTransformer`, hard labels, a sampler that draws one sequence at a time), both
evaluated on the same sequences.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import torch
from rich.console import Console
from tyro.conf import arg

from bayesattn.console import show_rows, write_json
from bayesattn.errors import UserError
from bayesattn.models.architectures import Transformer, build
from bayesattn.training import TrainConfig, TunnelTask, train_tunnel
from bayesattn.tunnels import Bijection
from benchmarks.measure import interleave
from benchmarks.plain import (
    AuthorsTransformer,
    Batch,
    PlainTransformer,
    authors_loop,
    bare_loop,
)

AUTHORS_BATCH = 256
AUTHORS_CHECK = 10
"""Steps of the authors' loop between evaluations, which are not counted as its time."""
OUR_CHECK = 25
"""Steps of our loop between evaluations, which are counted as its time."""


@dataclass(frozen=True)
class Overhead:
    """Our loop beside a bare one."""

    ratio: float
    """Our steps per second over those of the bare loop, best rounds of each."""
    ratio_low: float
    ratio_high: float
    """Quartiles of the ratio round by round."""
    rounds: int
    steps: int
    """Steps of one round."""
    per_second: float
    bare_per_second: float
    parameters: int
    bare_parameters: int


@dataclass(frozen=True)
class Arrival:
    """One training towards the target."""

    recipe: str
    seed: int
    seconds: float
    steps: int
    mae: float
    """Entropy error in bits, at the last evaluation."""
    kl: float
    """KL(Bayes ‖ model) in bits, likewise: the entropy alone can be right by chance."""
    reached: bool
    parameters: int


@dataclass(frozen=True)
class TimeToFidelity:
    """Trainings to the same target."""

    target: float
    cap: float
    """Seconds after which the authors' recipe was stopped."""
    ratio: float
    """Seconds of the authors' recipe over our median; a lower bound if theirs was stopped."""
    is_lower_bound: bool
    ratio_low: float
    """The ratio to our slowest training."""
    ratio_high: float
    """The ratio to our fastest training."""
    arrivals: list[Arrival]


@dataclass(frozen=True, kw_only=True)
class TrainingBench:
    """Time our training loop against a bare torch loop and against the authors' recipe."""

    measure: Literal["both", "overhead", "fidelity"] = "both"
    """What to measure."""
    alphabet: int = 10
    """Symbols of the bijection."""
    steps: int = 1000
    """Steps of one round of the overhead measurement."""
    seconds: float = 60.0
    """Time to spend on the overhead; three rounds at the least."""
    target: float = 0.05
    """Mean |entropy of the model - entropy of Bayes| per token, in bits."""
    seeds: int = 3
    """Our trainings: one before the authors' recipe runs, the others after it."""
    cap: float = 600.0
    """Stop the authors' recipe after so many seconds, and report a lower bound."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file as well ("-": to standard output, instead of tables)."""

    def run(self) -> int:
        """Measure and print."""
        for name in ("steps", "seeds", "cap", "target"):
            if getattr(self, name) <= 0:
                raise UserError(f"--{name} must be positive, not {getattr(self, name):g}.")
        if self.alphabet < 2:
            raise UserError(f"--alphabet must be at least 2, not {self.alphabet}.")
        log = Console(stderr=True)
        found: dict[str, Any] = {"threads": torch.get_num_threads()}
        if self.measure != "fidelity":
            with log.status("overhead"):
                overhead = measure_overhead(self)
            found["overhead"] = asdict(overhead)
            if self.json != "-":
                show_rows([_overhead_printed(overhead)])
        if self.measure != "overhead":
            with log.status("time to fidelity"):
                fidelity = measure_fidelity(self, log)
            found["fidelity"] = asdict(fidelity)
            if self.json != "-":
                _show_fidelity(fidelity)
        if self.json:
            write_json(found, self.json)
        return 0


def quick_recipe(alphabet: int, seed: int) -> tuple[Bijection, Transformer, TrainConfig]:
    """The small recipe for a bijection: soft labels, two layers of width 64."""
    return Bijection(alphabet), Transformer(), TrainConfig(seed=seed)


def measure_overhead(config: TrainingBench) -> Overhead:
    """Whole trainings of so many steps, in turn."""
    tunnel, architecture, training = quick_recipe(config.alphabet, seed=0)
    training = replace(training, steps=config.steps)

    def plain() -> PlainTransformer:
        inner = architecture.intermediate_size or 2 * architecture.width
        sizes = architecture.layers, architecture.width, architecture.heads, inner
        return PlainTransformer(2 * tunnel.alphabet, tunnel.outcomes, *sizes)

    def bare() -> None:
        batches = _posteriors(tunnel, training.batch_size)
        bare_loop(plain(), batches, config.steps, training.lr, training.weight_decay)

    calls = {"ours": lambda: _train(tunnel, architecture, training), "bare": bare}
    times = interleave(calls, "ours", config.seconds)
    found = times["bare"]
    return Overhead(
        found.ratio,
        found.low,
        found.high,
        found.rounds,
        config.steps,
        config.steps / times["ours"].seconds,
        config.steps / found.seconds,
        _count(build(architecture, tunnel, 0)),
        _count(plain()),
    )


def measure_fidelity(config: TrainingBench, log: Console) -> TimeToFidelity:
    """Ours, then the authors' recipe until its cap, then ours again."""
    arrivals = [_ours(config, seed=0)]
    log.print(_arrival_line(arrivals[-1]))
    theirs = _authors(config)
    arrivals.append(theirs)
    log.print(_arrival_line(theirs))
    for seed in range(1, config.seeds):
        arrivals.append(_ours(config, seed))
        log.print(_arrival_line(arrivals[-1]))
    ours = [arrival for arrival in arrivals if arrival is not theirs]
    seconds = [arrival.seconds for arrival in ours]
    return TimeToFidelity(
        config.target,
        config.cap,
        theirs.seconds / median(seconds),
        not theirs.reached,
        theirs.seconds / max(seconds),
        theirs.seconds / min(seconds),
        arrivals,
    )


def _ours(config: TrainingBench, seed: int) -> Arrival:
    tunnel, architecture, training = quick_recipe(config.alphabet, seed)
    training = replace(training, target=config.target, evaluate_every=OUR_CHECK)
    begin = time.perf_counter()
    found = _train(tunnel, architecture, training)
    seconds = time.perf_counter() - begin
    if found["stopped"] != "target":
        raise UserError(
            f"Our recipe ended at {found['metrics']['mae']:.4f} bits with seed {seed}: choose a "
            f"--target it can reach, not {config.target:g}."
        )
    parameters = _count(build(architecture, tunnel, seed))
    return Arrival(
        "ours",
        seed,
        seconds,
        found["step"],
        **found["metrics"],
        reached=True,
        parameters=parameters,
    )


def _authors(config: TrainingBench) -> Arrival:
    tunnel = Bijection(config.alphabet)
    task = TunnelTask(tunnel, "sampled")
    metrics = {"mae": math.inf, "kl": math.inf}
    unpaid = 0.0
    begin = time.perf_counter()

    def spent() -> float:
        return time.perf_counter() - begin - unpaid

    def reached(step: int) -> bool:
        nonlocal metrics, unpaid
        stop = spent() > config.cap
        if step % AUTHORS_CHECK == 0 or stop:
            pause = time.perf_counter()
            with torch.no_grad():
                metrics = task.evaluate(model)
            unpaid += time.perf_counter() - pause
        return stop or metrics["mae"] <= config.target

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AuthorsTransformer(2 * tunnel.alphabet, 2 * tunnel.horizon, tunnel.alphabet)
    steps = authors_loop(model, _labels(tunnel), reached)
    return Arrival(
        "authors",
        0,
        spent(),
        steps,
        **metrics,
        reached=metrics["mae"] <= config.target,
        parameters=_count(model),
    )


def _train(tunnel: Bijection, architecture: Transformer, training: TrainConfig) -> dict[str, Any]:
    """What a person calls, run directory and checkpoints included."""
    with TemporaryDirectory() as folder:
        run = train_tunnel(tunnel, architecture, training, Path(folder) / "run", progress=False)
        assert run.finished is not None
        return run.finished


def _posteriors(tunnel: Bijection, batch_size: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(0)
    while True:
        batch = tunnel.sample(batch_size, generator)
        yield batch.inputs, batch.scored, batch.posterior


def _labels(tunnel: Bijection) -> Iterator[Batch]:
    """Batches of pairs, one sequence at a time as in the authors' code."""
    rng, size, length = np.random.default_rng(0), tunnel.alphabet, tunnel.horizon
    while True:
        inputs = np.empty((AUTHORS_BATCH, 2 * length), dtype=np.int64)
        for row in inputs:
            row[::2] = rng.permutation(size)[:length]
            row[1::2] = size + rng.permutation(size)[row[::2]]
        values = torch.from_numpy(inputs[:, 1::2] - size)
        yield torch.from_numpy(inputs[:, :-1]), tunnel.scored, values


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _overhead_printed(found: Overhead) -> dict[str, str]:
    return {
        "overhead": "our loop / bare loop",
        "ratio": f"{found.ratio:.3f}",
        "quartiles": f"{found.ratio_low:.3f}-{found.ratio_high:.3f}",
        "rounds": str(found.rounds),
        "steps per round": str(found.steps),
        "steps/s": f"{found.per_second:.0f}",
        "bare steps/s": f"{found.bare_per_second:.0f}",
        "parameters": f"{found.parameters:,} / {found.bare_parameters:,}",
    }


def _show_fidelity(found: TimeToFidelity) -> None:
    show_rows(
        [
            {
                "recipe": arrival.recipe,
                "seed": str(arrival.seed),
                "seconds": f"{arrival.seconds:.1f}",
                "steps": str(arrival.steps),
                "MAE, bits": f"{arrival.mae:.4f}",
                "KL, bits": f"{arrival.kl:.4f}",
                "reached": "yes" if arrival.reached else f"no, stopped at {found.cap:g} s",
                "parameters": f"{arrival.parameters:,}",
            }
            for arrival in found.arrivals
        ]
    )
    bound = "at least " if found.is_lower_bound else ""
    print(
        f"time to {found.target:g} bits: ours is {bound}{found.ratio:.1f}x faster "
        f"({found.ratio_low:.1f}-{found.ratio_high:.1f} over seeds)"
    )


def _arrival_line(arrival: Arrival) -> str:
    return (
        f"{arrival.recipe}, seed {arrival.seed}: {arrival.mae:.4f} bits "
        f"after {arrival.steps} steps and {arrival.seconds:.1f} s"
    )
