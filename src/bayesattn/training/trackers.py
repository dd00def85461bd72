"""Metrics to TensorBoard or trackio, beside metrics.jsonl; both packages are extras."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bayesattn.runs import Run
from bayesattn.runs.errors import TrainingError

Track = Callable[[dict[str, Any]], None]


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
