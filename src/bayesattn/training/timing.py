"""How many steps fit into some minutes."""

import time

from torch import nn

from bayesattn.training.config import TrainConfig
from bayesattn.training.learner import Learner
from bayesattn.training.machine import agreed, make_accelerator, using_threads
from bayesattn.training.task import Task

WARM, TIMED = 5, 30
"""Steps before the clock starts, and with it running."""
PATIENCE = 10.0
"""Seconds after which fewer timed steps have to do."""
EVALUATIONS = 20


def steps_within(minutes: float, task: Task, model: nn.Module, config: TrainConfig) -> int:
    """Steps that take about `minutes`, evaluations included; `model` is trained a little by it."""
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
