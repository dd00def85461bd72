"""Training: one resumable loop for tunnels and language models, and the run directory it fills."""

from bayesattn.training.checkpoint import Checkpoint
from bayesattn.training.config import TrainConfig
from bayesattn.training.errors import (
    DamagedCheckpointError,
    DivergedError,
    Interrupted,
    RunError,
    TrainingError,
    WriteError,
)
from bayesattn.training.exporting import export
from bayesattn.training.language import LanguageModel, load_language_model, train_language
from bayesattn.training.language_config import LanguageConfig
from bayesattn.training.loop import Result, train
from bayesattn.training.recipes import LANGUAGE_RECIPES
from bayesattn.training.runs import Run
from bayesattn.training.schedule import checkpoint_steps, warmup_stable_decay
from bayesattn.training.seeds import WATCH_SEED
from bayesattn.training.task import Task
from bayesattn.training.tunnel import TunnelTask, load_predictor, train_tunnel

__all__ = [
    "LANGUAGE_RECIPES",
    "WATCH_SEED",
    "Checkpoint",
    "DamagedCheckpointError",
    "DivergedError",
    "Interrupted",
    "LanguageConfig",
    "LanguageModel",
    "Result",
    "Run",
    "RunError",
    "Task",
    "TrainConfig",
    "TrainingError",
    "TunnelTask",
    "WriteError",
    "checkpoint_steps",
    "export",
    "load_language_model",
    "load_predictor",
    "train",
    "train_language",
    "train_tunnel",
    "warmup_stable_decay",
]
