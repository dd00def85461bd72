"""What a training tells while it runs: a bar for people, metrics for TensorBoard or trackio."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from bayesattn.console import make_bar
from bayesattn.errors import TrainingError
from bayesattn.runs import Run

SHOWN = ("loss", "mae", "heldout", "needles", "lr")
Track = Callable[[dict[str, Any]], None]


class Bar:
    """Step, loss, quality, learning rate, speed and time left, written when there is news."""

    def __init__(self, steps: int, shown: bool, tokens: int | None = None) -> None:
        """`tokens` are those of one step, where speed is told."""
        self._progress = make_bar(shown)
        self._steps, self._tokens = steps, tokens
        self._task = self._progress.add_task("training", total=steps)
        self._news: dict[str, float] = {}
        self._last: tuple[int, float] | None = None  # step and time of the last news

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, step: int, news: dict[str, Any]) -> None:
        self._news |= {name: news[name] for name in SHOWN if name in news}
        numbers = "  ".join(f"{name} {value:.3g}" for name, value in self._news.items())
        text = f"step {step}/{self._steps}  {numbers}{self._speed(step)}"
        self._progress.update(self._task, completed=step, description=text)

    def _speed(self, step: int) -> str:
        """Tokens per second since the last news."""
        last, self._last = self._last, (step, time.perf_counter())
        if self._tokens is None or last is None or step == last[0]:
            return ""
        return f"  {(step - last[0]) * self._tokens / (self._last[1] - last[1]):,.0f} tokens/s"


def require_tracker(name: str | None) -> None:
    """Raise `TrainingError` if the package is not there; to be called before any long work."""
    if name and find_spec(name) is None:
        raise TrainingError(f"{name} is not installed: pip install 'bayesattn[track]'.")


@contextmanager
def tracking(name: str | None, run: Run) -> Iterator[Track]:
    """A function that takes the lines of metrics.jsonl; without a name it does nothing.

    A resumed run repeats the steps since its checkpoint. Their numbers are the same again.
    """
    if name is None:
        yield lambda line: None
    elif name == "tensorboard":
        board = import_module("torch.utils.tensorboard").SummaryWriter(run.folder / "tensorboard")
        with board:
            yield lambda line: _scalars(board, line)
    else:
        trackio = import_module("trackio")
        project = run.folder.resolve().parent.name
        # It talks to standard output, which belongs to our own result.
        with redirect_stdout(sys.stderr):
            trackio.init(project=project, name=run.folder.name, config=run.config, resume="allow")
        try:
            yield lambda line: trackio.log(_numbers(line), step=line["step"])
        finally:
            with redirect_stdout(sys.stderr):
                trackio.finish()


def _scalars(board: Any, line: dict[str, Any]) -> None:
    for name, value in _numbers(line).items():
        board.add_scalar(name, value, line["step"])


def _numbers(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "step"}
