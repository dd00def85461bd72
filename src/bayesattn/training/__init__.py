"""Training: one resumable loop for tunnels and language models, which writes a run directory."""

from bayesattn.models.language_config import LanguageConfig
from bayesattn.runs import Run
from bayesattn.training.config import TrainConfig
from bayesattn.training.language import train_language
from bayesattn.training.tunnel import TunnelTask, train_tunnel

__all__ = [
    "LanguageConfig",
    "Run",
    "TrainConfig",
    "TunnelTask",
    "train_language",
    "train_tunnel",
]
