"""Training: one resumable loop for tunnels and language models, and the run directory it fills."""

from bayesattn.errors import WriteError
from bayesattn.models.language_config import LanguageConfig
from bayesattn.runs import (
    Checkpoint,
    DamagedCheckpointError,
    DivergedError,
    Interrupted,
    Run,
    RunError,
    TrainingError,
)
from bayesattn.training.config import TrainConfig
from bayesattn.training.language import train_language
from bayesattn.training.learner import Task
from bayesattn.training.loop import Result, train
from bayesattn.training.recipes import LANGUAGE_RECIPES
from bayesattn.training.schedule import WATCH_SEED, checkpoint_steps, warmup_stable_decay
from bayesattn.training.tunnel import TunnelTask, train_tunnel

__all__ = [
    "LANGUAGE_RECIPES",
    "WATCH_SEED",
    "Checkpoint",
    "DamagedCheckpointError",
    "DivergedError",
    "Interrupted",
    "LanguageConfig",
    "Result",
    "Run",
    "RunError",
    "Task",
    "TrainConfig",
    "TrainingError",
    "TunnelTask",
    "WriteError",
    "checkpoint_steps",
    "train",
    "train_language",
    "train_tunnel",
    "warmup_stable_decay",
]
