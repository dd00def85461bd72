"""Trains what studies will look at, several models at once, each in a process of its own.

A process that dies takes only its own training with it; the study that needs it tries again, and
says what went wrong. Every training resumes, so stopping loses nothing.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from bayesattn.studies.registry import AnyStudy
from bayesattn.studies.study import Tier, Training
from bayesattn.studies.trained import runs_folder
from bayesattn.training.errors import TrainingError

PRELOADED = ["bayesattn.studies.language_models"]
"""What processes have imported before they begin: with it, all of torch."""


def default_workers() -> int:
    """One per core: the trainings of studies use one thread each."""
    return os.cpu_count() or 1


def unfinished(
    studies: Iterable[AnyStudy], tier: Tier, seeds: Iterable[Sequence[int]]
) -> list[Training]:
    """The trainings that these studies need and do not find, each once, the longest first.

    Args:
        studies: that will be measured.
        tier: at this tier.
        seeds: of each study.
    """
    found = {
        training.folder: training
        for study, own in zip(studies, seeds, strict=True)
        for seed in own
        for training in study.trainings(tier, seed).values()
        if not (training.folder / "finished.json").exists()
    }
    # The last ones to begin should be short: nobody has anything left to do beside them.
    return sorted(found.values(), key=lambda training: -training.config.steps)


def train_all(
    trainings: Sequence[Training],
    workers: int,
    report: Callable[[Training], None] = lambda training: None,
) -> None:
    """Do all trainings, `workers` of them at once; `report` is told of each that has ended."""
    context = multiprocessing.get_context("spawn" if os.name == "nt" else "forkserver")
    if os.name != "nt":
        context.set_forkserver_preload(PRELOADED)
    waiting = deque(trainings)
    busy: dict[int, tuple[BaseProcess, Training]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                process = context.Process(target=_train, args=(waiting[0], str(runs_folder())))
                process.start()
                busy[process.sentinel] = (process, waiting.popleft())
            for sentinel in wait(list(busy)):
                assert isinstance(sentinel, int)
                process, training = busy.pop(sentinel)
                process.join()
                report(training)
    finally:  # after Ctrl-C; a training that is told to stop saves first
        for process, _ in busy.values():
            process.terminate()
        for process, _ in busy.values():
            process.join()


def _train(training: Training, runs: str) -> None:
    os.environ["BAYESATTN_RUNS"] = runs  # processes have the environment of the first of them
    try:
        training.train()
    except (TrainingError, KeyboardInterrupt, ValueError, OSError):
        raise SystemExit(1) from None  # the study will meet it again
