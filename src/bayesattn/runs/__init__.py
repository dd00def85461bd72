"""Runs: directories that training writes and all other code reads."""

from bayesattn.runs.checkpoint import Checkpoint, Tensors, load_model_tensors, model_tensors
from bayesattn.runs.metrics import Metrics
from bayesattn.runs.run import TOKENIZER, Run

__all__ = [
    "TOKENIZER",
    "Checkpoint",
    "Metrics",
    "Run",
    "Tensors",
    "load_model_tensors",
    "model_tensors",
]
