"""From a config to a finished run: what trainings of tunnels and of language models share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from bayesattn.training.config import TrainConfig
from bayesattn.training.errors import Interrupted, RunError
from bayesattn.training.loop import train
from bayesattn.training.machine import make_accelerator
from bayesattn.training.runs import Run
from bayesattn.training.task import Task


def shared_run(folder: Path | str, config: dict[str, Any]) -> Run:
    """The run in `folder`, created or compared with `config` by the first of several processes."""
    accelerator = make_accelerator()
    if accelerator.is_main_process:
        Run.create(folder, config)
    accelerator.wait_for_everyone()
    return Run.open(folder)


@contextmanager
def reading(run: Run, kind: str) -> Iterator[None]:
    """What a run was made of is taken from its config here; `kind` says what it should be of."""
    try:
        yield
    except KeyError as error:
        raise RunError(f"The run in {run.folder} is not of a {kind}: no {error}.") from None
    except TypeError as error:  # a field that no class here has
        raise RunError(
            f"The run in {run.folder} was made by another version of bayesattn, "
            f"{run.environment.get('bayesattn', 'an unknown one')} ({error}): use that one."
        ) from None


def finish(
    run: Run, task: Task, model: nn.Module, config: TrainConfig, progress: bool, command: str
) -> Run:
    """Train to the end.

    Raises:
        Interrupted: after Ctrl-C, with everything saved; it names `command` as the way to go on.
    """
    result = train(task, model, config, run, progress=progress)
    if result.stopped == "interrupted":
        raise Interrupted(
            f"Stopped after step {result.step} of {config.steps} and saved; "
            f"continue with: {command} --resume {run.folder}"
        )
    return run
