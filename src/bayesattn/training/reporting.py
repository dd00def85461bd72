"""Output of a training: its plan, a bar or lines, metrics for TensorBoard or trackio."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from bayesattn.console import make_bar, show_rows
from bayesattn.errors import TrainingError
from bayesattn.runs import Run
from bayesattn.training.config import TrainConfig
from bayesattn.training.machine import has_bf16

FIRST, LAST = 2.0, 30.0
"""Seconds until the first update, and the longest time between later ones."""
SHOWN = ("loss", "mae", "heldout", "needles", "lr")
Track = Callable[[dict[str, Any]], None]


def show_plan(
    parameters: int, tokens: int | None, training: TrainConfig, data: dict[str, Any], device: str
) -> None:
    """Print sizes, data and device in one row on standard error; `tokens` are per sequence."""
    row = {"parameters": f"{parameters:,}", "steps": f"{training.steps:,}"}
    if tokens is not None and "train" in data:
        read = training.steps * training.batch_size * tokens
        row |= {"tokens to read": f"{read:,}", "of corpus": f"{data['train']:,}"}
        row |= {"epochs": f"{read / data['train']:.2g}", "held out": f"{data['heldout']:,}"}
    precision, emulated = training.precision, training.precision == "bf16" and not has_bf16()
    row |= {"precision": precision + (", emulated" if emulated else ""), "device": device}
    show_rows([row], sys.stderr)
    if emulated:
        print("This machine has no units for bf16: --precision fp32 is quicker.", file=sys.stderr)


class Bar:
    """Step, loss, quality, learning rate, speed and time left: a bar in a terminal, else lines."""

    def __init__(self, steps: int, shown: bool, tokens: int | None = None) -> None:
        """`tokens` is the number per step, if speed is shown in tokens."""
        self._progress = make_bar(shown)
        self._lines = shown and self._progress.disable
        self._steps, self._tokens = steps, tokens
        self._task = self._progress.add_task("training", total=steps)
        self._news: dict[str, float] = {}
        self._begun: tuple[int, float] | None = None  # step and time of the first update
        self._told, self._pause = -math.inf, FIRST

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def due(self, step: int) -> bool:
        """Whether to update at `step`: soon at first, then less often."""
        now = time.perf_counter()
        if self._begun is None:
            self._begun, self._told = (step, now), now
        return now - self._told >= self._pause

    def update(self, step: int, news: dict[str, Any]) -> None:
        self._news |= {name: news[name] for name in SHOWN if name in news}
        numbers = "  ".join(f"{name} {value:.3g}" for name, value in self._news.items())
        text = f"step {step}/{self._steps}  {numbers}{self._speed(step)}"
        self._progress.update(self._task, completed=step, description=text)
        if self._lines:
            if not self.due(step) and step < self._steps:
                return
            print(text, file=sys.stderr, flush=True)
            self._pause = min(2 * self._pause, LAST)
        self._told = time.perf_counter()

    def _speed(self, step: int) -> str:
        """Tokens per second since the first update, and the remaining time."""
        if self._begun is None or step <= self._begun[0]:
            return ""
        each = (time.perf_counter() - self._begun[1]) / (step - self._begun[0])
        speed = "" if self._tokens is None else f"  {self._tokens / each:,.0f} tokens/s"
        left = timedelta(seconds=round(each * (self._steps - step)))
        return f"{speed}  {left} left" if self._lines and left else speed


def require_tracker(name: str | None) -> None:
    """Raise `TrainingError` if the package is missing; call this before any long work."""
    if name and find_spec(name) is None:
        raise TrainingError(f"{name} is not installed: pip install 'bayesattn[track]'.")


@contextmanager
def tracking(name: str | None, run: Run) -> Iterator[Track]:
    """A function that takes the lines of metrics.jsonl; without a name it does nothing.

    A resumed run repeats the steps since its checkpoint, with the same numbers.
    """
    if name is None:
        yield lambda line: None
    elif name == "tensorboard":
        board = import_module("torch.utils.tensorboard").SummaryWriter(run.folder / "tensorboard")

        def add(line: dict[str, Any]) -> None:
            for name, value in _numbers(line).items():
                board.add_scalar(name, value, line["step"])

        with board:
            yield add
    else:
        trackio = import_module("trackio")
        project = run.folder.resolve().parent.name
        # It prints to standard output, which is for our results.
        with redirect_stdout(sys.stderr):
            trackio.init(project=project, name=run.folder.name, config=run.config, resume="allow")
        try:
            yield lambda line: trackio.log(_numbers(line), step=line["step"])
        finally:
            with redirect_stdout(sys.stderr):
                trackio.finish()


def _numbers(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "step"}
