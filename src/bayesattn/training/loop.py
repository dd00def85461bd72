"""One training loop for tunnels and language models, on CPU, GPU or several processes.

A step depends on the config, the step number and the weights alone. So a killed run continues from
its last checkpoint to the same result as without interruption. Evaluations and checkpoints do not
change the result.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bayesattn.console import telling
from bayesattn.errors import DivergedError, Interrupted
from bayesattn.models.architectures import make_architecture
from bayesattn.models.language_config import LanguageConfig
from bayesattn.runs import Run, load_model_tensors
from bayesattn.system import keep_memory
from bayesattn.training.config import TrainConfig
from bayesattn.training.learner import Learner, Task
from bayesattn.training.machine import Interrupt, agreed, make_accelerator, using_threads
from bayesattn.training.reporting import Bar, Track, require_tracker, show_plan, tracking
from bayesattn.training.schedule import checkpoint_steps
from bayesattn.tunnels import make_tunnel

Stopped = Literal["finished", "target", "interrupted"]
CHECKPOINT_SHARE = 0.02
"""Largest share of the time for checkpoints, if the config does not set their interval."""
WARM, TIMED = 5, 30
"""Steps before timing, and timed steps, to compute the number of steps for some minutes."""
PATIENCE = 10.0
"""Seconds after which timing stops with fewer steps."""
EVALUATIONS = 20


@dataclass(frozen=True)
class Result:
    """The end of a training."""

    step: int
    metrics: dict[str, float]
    """Metrics of the last evaluation."""
    stopped: Stopped
    seconds: float
    """Seconds of training, evaluations and checkpoints, over all resumes."""


def train(
    task: Task, model: nn.Module, config: TrainConfig, run: Run, *, progress: bool = True
) -> Result:
    """Train `model` in place, from the run's last checkpoint if it has one.

    If the run is resumed, the initial weights and the config must be the same as at its start.

    Raises:
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        WriteError: if the disk is full; the last good checkpoint is kept.
    """
    if run.finished:
        load_model_tensors(model, run.checkpoint().tensors("model"))
        return Result(**run.finished)
    keep_memory()
    accelerator = make_accelerator()
    threads = config.threads or run.environment.get("threads")  # damaged: as many as now
    devices = [accelerator.device] if accelerator.device.type == "cuda" else []
    main = accelerator.is_main_process
    tokens = task.tokens and task.tokens * config.batch_size
    with (
        run.locked() if main else nullcontext(),
        using_threads(threads),
        torch.random.fork_rng(devices),
        tracking(config.track if main else None, run) as track,
        Interrupt() as interrupt,
        Bar(config.steps, progress and main, tokens) as bar,
    ):
        return _Loop(Learner(task, model, config, accelerator), run, interrupt, bar, track).run()


def train_run(
    parts: Mapping[str, Any],
    make: Callable[[], tuple[Task, nn.Module, dict[str, Any]]],
    folder: Path | str,
    progress: bool,
    command: str | None,
    keep: Callable[[], None] | None = None,
) -> Run:
    """Train in the run `folder`: create, continue or only open it.

    Args:
        parts: the configs of the run, by name; "training" is the `TrainConfig`.
        make: gives the task, the model with its initial weights, and the data that a resumed run
            compares. Not called for a complete run.
        folder: the run; refused if it has another config.
        progress: show the plan, then a bar (lines if standard error is no terminal).
        command: the typed command, for the record.
        keep: called by the first process once the run exists, to write more files into it.
    """
    training: TrainConfig = parts["training"]
    require_tracker(training.track)
    config = {name: part.to_dict() for name, part in parts.items()} | {"command": command}
    if (Path(folder) / "config.json").exists() and (run := Run.open(folder)).finished:
        found = {"data": run.config["data"]} if "data" in run.config else {}
        run.require_same(config | found, in_present_words)
        return run
    accelerator = make_accelerator()
    shown = progress and accelerator.is_main_process
    with telling() if shown else nullcontext(str) as tell:
        tell("preparing data and model")
        task, model, data = make()
    if accelerator.is_main_process:  # of several processes the first creates or compares it
        Run.create(folder, config | data, in_present_words)
        if keep is not None:
            keep()
    accelerator.wait_for_everyone()
    run = Run.open(folder)
    if shown:
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        show_plan(count, task.tokens, training, data.get("data", {}), accelerator.device.type)
    result = train(task, model, training, run, progress=progress)
    if result.stopped == "interrupted":
        noun = "lm" if "language" in parts else "tunnel"
        raise Interrupted(
            f"Stopped after step {result.step} of {training.steps} and saved; "
            f"continue with: bayesattn {noun} train --resume {run.folder}"
        )
    return run


def in_present_words(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's config with every field of this version, so older configs can be compared."""
    readers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "tunnel": lambda stored: make_tunnel(**stored),
        "architecture": lambda stored: make_architecture(**stored),
        "language": LanguageConfig.read,
        "training": lambda stored: TrainConfig(**stored),
    }
    found = dict(config)
    for name, read in readers.items():
        if name in found:
            with suppress(TypeError, ValueError):  # of another version: compare it unchanged
                part = read(found[name])
                found[name] = part.to_dict() | asdict(part)
    return found


def steps_within(minutes: float, task: Task, model: nn.Module, config: TrainConfig) -> int:
    """Number of steps in about `minutes`, evaluations included; trains `model` for a few steps."""
    if not 0 < minutes < 1e6:
        raise ValueError(f"minutes must be positive, not {minutes}.")
    accelerator = make_accelerator()
    with using_threads(config.threads):
        learner = Learner(task, model, config, accelerator)
        for _ in range(WARM):
            learner.advance()
        learner.collect()
        start, count = time.perf_counter(), 0
        patient = True
        while count < TIMED and patient:
            learner.advance()
            count += 1
            patient = agreed(accelerator, time.perf_counter() - start < PATIENCE)
        learner.collect()  # waits for the device
        step = (time.perf_counter() - start) / count
        learner.evaluate()
        evaluation = time.perf_counter() - start - step * count
    steps = max(1, int((60 * minutes - EVALUATIONS * evaluation) / step))
    return agreed(accelerator, steps)


class _Loop:
    """Decides when to log, evaluate, save and stop."""

    def __init__(
        self, learner: Learner, run: Run, interrupt: Interrupt, bar: Bar, track: Track
    ) -> None:
        self.learner, self.config, self.accelerator = learner, learner.config, learner.accelerator
        self.folder, self.interrupt, self.bar, self.track = run, interrupt, bar, track
        self.kept = frozenset(checkpoint_steps(self.config.steps) if self.config.dynamics else ())
        self.metrics: dict[str, float] = {}
        self.evaluated = -1  # the step of these metrics
        self.stopped: Stopped | None = None
        self.start = time.perf_counter()
        self.saved, self.saving = self.start, 0.0

    def run(self) -> Result:
        self._restore()
        self.stopped = self._complete()
        while not self.stopped:
            self.learner.advance()
            with self._divergence_explained():
                self._after_step()
                self._update_bar()
        result = Result(self.learner.step, self.metrics, self.stopped, round(self._seconds(), 3))
        if self.stopped != "interrupted" and self.accelerator.is_main_process:
            self.folder.finish(vars(result))
        self.accelerator.wait_for_everyone()
        return result

    def _restore(self) -> None:
        """Load the last good checkpoint, or write the first one, so a full disk shows at once."""
        step = None
        if self.accelerator.is_main_process and self.folder.steps():
            try:
                step = self.folder.checkpoint().step
            except ValueError:
                step = None  # all are damaged, which was warned of: begin again
        step = self._agreed(step)
        if step is None:
            if self.accelerator.is_main_process:
                self.folder.rewind(-1)
            self._save()
            return
        checkpoint = self.folder.checkpoint(step)
        self.learner.load(checkpoint)
        self.metrics, self.evaluated = checkpoint.state["metrics"], checkpoint.state["evaluated"]
        self.start -= checkpoint.state["seconds"]
        if self.accelerator.is_main_process:
            self.folder.rewind(step, checkpoint.state.get("lines", 0))
        self.bar.update(step, self.metrics)

    def _update_bar(self) -> None:
        """Update the bar between lines of the log; not with several processes."""
        learner = self.learner
        if self.bar.due(learner.step) and self.accelerator.num_processes == 1:
            learner.collect()
            self.bar.update(learner.step, self._averages() if learner.losses else {})

    def _complete(self) -> Stopped | None:
        step, target, goal = self.learner.step, self.config.target, self.learner.task.goal
        if target is not None and self.evaluated == step and self.metrics[goal] <= target:
            return "target"
        return "finished" if step == self.config.steps else None

    def _after_step(self) -> None:
        learner, config, step = self.learner, self.config, self.learner.step
        line: dict[str, Any] = {"step": step}
        if step % config.evaluation_steps == 0 or step == config.steps:
            learner.collect()
            self.metrics, self.evaluated = self._agreed(self._evaluation()), step
            line |= self.metrics
        complete = self._complete()
        logs = step % config.log_every == 0 or complete is not None
        if logs:
            learner.collect()
            line |= self._averages()
            learner.forget()
        if len(line) > 1:
            self.bar.update(step, line)
            line["seconds"] = round(self._seconds(), 3)
            if self.accelerator.is_main_process:
                self.folder.log(line)
            self.track(line)
        # Read once: a signal between two reads would stop without saving.
        self.stopped = complete or ("interrupted" if self._interrupted() else None)
        if self._saves(logs):
            self._save()

    def _evaluation(self) -> dict[str, float] | None:
        if not self.accelerator.is_main_process:
            return None
        found = self.learner.evaluate()
        for name, value in found.items():
            if not math.isfinite(value):
                raise DivergedError(
                    f"The evaluated {name} became {value} at step {self.learner.step}"
                )
        return found

    def _averages(self) -> dict[str, float]:
        learner = self.learner
        found = {"loss": sum(learner.losses) / len(learner.losses)}
        if learner.norms:
            found["gradient"] = sum(learner.norms) / len(learner.norms)
        return found | {"lr": learner.learning_rate}

    def _saves(self, logs: bool) -> bool:
        step, every = self.learner.step, self.config.checkpoint_every
        if self.stopped or step in self.kept:
            return True
        if every:
            return step % every == 0
        affordable = self.saving <= CHECKPOINT_SHARE * (time.perf_counter() - self.saved)
        return logs and self._agreed(affordable)

    def _save(self) -> None:
        began = time.perf_counter()
        self.learner.collect()
        if self.accelerator.is_main_process:
            state = {
                **self.learner.state(),
                "metrics": self.metrics,
                "evaluated": self.evaluated,
                "seconds": self._seconds(),
            }
            self.folder.save(self.learner.step, self.learner.tensors(), state, self.kept)
        self.saved = time.perf_counter()
        self.saving = self.saved - began

    def _seconds(self) -> float:
        return time.perf_counter() - self.start

    def _interrupted(self) -> bool:
        # Processes have to stop at the same step, and communication at every step is slow.
        if self.accelerator.num_processes == 1:
            return self.interrupt.asked
        if self.learner.step % self.config.log_every:
            return False
        asked = torch.tensor(float(self.interrupt.asked), device=self.accelerator.device)
        return bool(self.accelerator.reduce(asked))

    def _agreed(self, value: Any) -> Any:
        return agreed(self.accelerator, value)

    @contextmanager
    def _divergence_explained(self) -> Iterator[None]:
        try:
            yield
        except DivergedError as error:
            raise DivergedError(
                f"{error}, so training stopped; the checkpoint of step {self.folder.steps()[-1]} "
                "is kept: try a smaller lr or clip."
            ) from None
