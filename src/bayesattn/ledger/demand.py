"""What trainings will ask of a machine, before any of them begins.

By the formulas of `models.cost`: operations and memory of language models and of transformers on
tunnels; other architectures count as if every parameter were used once per token.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch

from bayesattn.errors import UserError
from bayesattn.ledger.jobs import Job, TrainingJob
from bayesattn.ledger.language_models import LanguageTraining
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.models.architectures import count_parameters
from bayesattn.models.cost import Shape, cost
from bayesattn.system import free_memory

MOST_DAYS = 3.0
"""Work that would keep this machine busy for longer is refused."""
SPEED = 2e10
"""Operations per second that small trainings reach on one core, roughly: this is no promise."""
GPU_SPEED = 5e13
"""The same of a GPU; a guess."""
DAY = 86_400


class Demand(NamedTuple):
    """Of one training."""

    operations: float
    bytes: int


def demand(training: object) -> Demand:
    """Predict a training."""
    match training:
        case LanguageTraining(language, config):
            shape = Shape.of(language.model_config())
            step = cost(shape, language.length, config.batch_size, config.precision)
            piece = cost(
                shape, language.length, config.batch_size // config.accumulate, config.precision
            )
            return Demand(step.training * config.steps, piece.memory)
        case TunnelTraining(tunnel, architecture, config):
            weights = count_parameters(architecture, tunnel)
            tokens = config.steps * config.batch_size * tunnel.positions
            return Demand(6.0 * weights * tokens, 16 * weights)
        case _:
            return Demand(0.0, 0)


def require_possible(jobs: Iterable[Job], slots: int) -> None:
    """Refuse trainings that this machine has no memory for, or that would take it days."""
    demands = {job.name: demand(job.training) for job in jobs if isinstance(job, TrainingJob)}
    if not demands:
        return
    gpu = torch.cuda.is_available()
    free = free_memory("cuda" if gpu else "cpu")
    name, largest = max(demands.items(), key=lambda item: item[1].bytes)
    if largest.bytes > free:
        raise UserError(
            f"The training {name} needs about {largest.bytes / 2**30:.0f} GiB and "
            f"{free / 2**30:.0f} GiB are free: choose a smaller tier, or a larger machine "
            "(docs/scaling.md)."
        )
    speed = GPU_SPEED if gpu else SPEED * slots
    days = sum(one.operations for one in demands.values()) / speed / DAY
    if days > MOST_DAYS:
        raise UserError(
            f"These {len(demands)} trainings would take about {days:,.0f} days here: name fewer "
            "claims, choose a smaller tier, or run them with --on ray (docs/scaling.md)."
        )
