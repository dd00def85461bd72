"""`bayesattn claims bank`: the trained models that claims share, listed or trained."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, Literal, Self

from rich.progress import TaskID
from tyro.conf import Positional, arg

from bayesattn.checks import shortened
from bayesattn.claims.bank import BankTraining, digest, models, training
from bayesattn.commands.options import Answer, JsonTarget, optional
from bayesattn.console import make_bar, mistakes
from bayesattn.errors import RunError, UserError
from bayesattn.ledger.engines import Processes, RayWorkers, default_workers, run_jobs
from bayesattn.ledger.jobs import TrainingJob
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.runner import MOST_SEEDS
from bayesattn.ledger.trained import rename_older_runs, require_possible
from bayesattn.ledger.typed import to_plain
from bayesattn.models.architectures import count_parameters
from bayesattn.runs import Run

QUIET = 60.0
"""Seconds between two lines where lines cannot be overwritten."""
Trainings = Mapping[str, Sequence[BankTraining]]
"""By model, in the order of seeds."""


@dataclass(frozen=True, kw_only=True)
class Bank:
    """List the trained models that claims share, or train those that are missing.

    A training that was stopped goes on where it was; one that is complete is not done again.
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="[MODEL ...]")] = ()
    """Only these models."""
    train: bool = False
    """Train what is missing."""
    seeds: Annotated[int | None, optional("N")] = None
    """Number of seeds; each model's own if not given."""
    workers: Annotated[int | None, optional("N")] = None
    """Trainings at once, one core each; as many as there are cores if not given."""
    on: Annotated[Literal["here", "ray"], arg(metavar="here|ray")] = "here"
    """Who trains: this machine, or a Ray cluster."""
    address: Annotated[str | None, optional("HOST:PORT")] = None
    """Address of the cluster; without it Ray finds one, or starts one on this machine."""
    json: JsonTarget = None

    def run(self) -> int:
        for flag, value in (("--seeds", self.seeds), ("--workers", self.workers)):
            if value is not None and not 1 <= value <= MOST_SEEDS:
                raise UserError(f"{flag} must be 1 to {MOST_SEEDS:,}, not {shortened(value)}.")
        if self.address and self.on != "ray":
            raise UserError("--address is that of a Ray cluster: pass --on ray with it.")
        rename_older_runs()
        with mistakes():
            wanted = {name: self._trainings(name) for name in self.names or models()}
        code = self._train_missing(wanted) if self.train else 0
        data = [_data(name, own) for name, own in wanted.items()]
        return Answer(data, [[_row(one) for one in data]], code).give(self.json)

    def _trainings(self, name: str) -> list[BankTraining]:
        first = training(name, 0)  # refuses an unknown name
        seeds = models()[name].seeds if self.seeds is None else self.seeds
        return [first, *(training(name, seed) for seed in range(1, seeds))]

    def _train_missing(self, wanted: Trainings) -> int:
        """All seeds 0 first, so that every claim soon has something to look at."""
        every = sorted((one for own in wanted.values() for one in own), key=_seed)
        missing = [one for one in every if one.known() is None]
        if not missing:
            return 0
        workers = default_workers() if self.workers is None else self.workers
        if self.on == "here":
            require_possible(missing, workers)
        engine = Processes(workers) if self.on == "here" else RayWorkers(self.address)
        failures = 0
        left = {one.folder.name: one for one in missing}
        try:
            with Display(left) as display:
                for ended in run_jobs({name: TrainingJob(left[name]) for name in left}, engine):
                    if ended is None:
                        display.tell()
                        continue
                    one = left.pop(ended.job.name)
                    failures += ended.failure is not None
                    display.ended(one, ended.failure)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Stopped and saved; the same command goes on.") from None
        finally:
            engine.close()
        return int(failures > 0)


class Display:
    """A bar for each training that goes on; in a log, a line now and then."""

    def __init__(self, left: Mapping[str, BankTraining]) -> None:
        self._left, self._total = left, len(left)
        self._bar = make_bar()
        self._tasks: dict[str, TaskID] = {}
        self._began = self._spoken = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self) -> None:
        lines: list[str] = []
        for name, one in self._left.items():
            if (reached := _reached(one)) is None:
                continue
            step, bits = reached
            said = f"{one.name}-{_seed(one)}" + ("" if bits is None else f", {bits:.4f} bits")
            if name not in self._tasks:
                self._tasks[name] = self._bar.add_task(said, total=one.config.steps)
            self._bar.update(self._tasks[name], description=said, completed=step)
            lines.append(f"{said}, step {step} of {one.config.steps}")
        now = time.monotonic()
        if not self._bar.console.is_terminal and now - self._spoken > QUIET:
            self._spoken = now
            minutes, done = (now - self._began) / 60, self._total - len(self._left)
            going = "; ".join(lines) or "begun"
            self._print(f"{done}/{self._total} trained after {minutes:.0f} min: {going}")

    def ended(self, one: BankTraining, failure: Failure | None) -> None:
        if one.folder.name in self._tasks:
            self._bar.remove_task(self._tasks.pop(one.folder.name))
        known = one.known()
        if failure is None and known is not None:
            found = f"{known.mae_tok:.4f} bits in {known.seconds / 60:.1f} min"
        else:
            found = failure.sentence if failure else "it was trained and not measured"
        self._print(f"{one.name}-{_seed(one)}: {found}")

    def _print(self, line: str) -> None:
        self._bar.console.print(line, soft_wrap=True)


def _reached(one: BankTraining) -> tuple[int, float | None] | None:
    """Step and entropy error of a training that has begun."""
    try:
        lines = Run.open(one.folder).metrics()
    except RunError:
        return None
    bits = [line["mae"] for line in lines if "mae" in line]
    return (lines[-1]["step"] if lines else 0), (bits[-1] if bits else None)


def _seed(one: BankTraining) -> int:
    return one.config.seed


def _data(name: str, own: Sequence[BankTraining]) -> dict[str, Any]:
    model, first = models()[name], own[0]
    return {
        "name": name,
        "about": model.about,
        "digest": digest(name),
        "parameters": count_parameters(first.architecture, first.tunnel),
        "tunnel": first.tunnel.to_dict(),
        "architecture": first.architecture.to_dict(),
        "training": {key: v for key, v in first.config.to_dict().items() if key != "seed"},
        "aim": model.aim,
        "wanted": len(own),
        "seeds": [
            {"seed": _seed(one), "folder": str(one.folder), **to_plain(known)}
            for one in own
            if (known := one.known()) is not None
        ],
    }


def _row(data: Mapping[str, Any]) -> dict[str, str]:
    """The same for people; over seeds the median, and the range in brackets."""
    seeds = data["seeds"]
    return {
        "model": data["name"],
        "": data["about"],
        "parameters": f"{data['parameters']:,}",
        "seeds": f"{len(seeds)} of {data['wanted']}",
        "aim, bits": f"{data['aim']:g}",
        "mae_tok, bits": _spread([one["mae_tok"] for one in seeds], "{:.4f}"),
        "kl, bits": _spread([one["kl"] for one in seeds], "{:.5f}"),
        "recall": _spread([one["recall"] for one in seeds if one["recall"] is not None], "{:.3f}"),
        "minutes": _spread([one["seconds"] / 60 for one in seeds], "{:.0f}"),
    }


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    low, high = form.format(min(values)), form.format(max(values))
    middle = form.format(median(values))
    return middle if low == high else f"{middle} [{low}, {high}]"
