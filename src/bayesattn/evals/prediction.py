"""Predictions of a model at the scored positions, by one causal pass."""

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.bits import log_probabilities

Model = Callable[..., Tensor]
"""From inputs to logits [B, T, outcomes]; or, if it takes `scored`, at those positions only."""


@contextmanager
def evaluating(model: Model) -> Generator[None]:
    """No gradients, no dropout; a module goes back to training afterwards if it was."""
    if not isinstance(model, nn.Module):
        with torch.no_grad():
            yield
        return
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def predict(model: Model, inputs: Tensor, scored: Tensor) -> Tensor:
    """Log-probabilities [B, S, outcomes], float64."""
    call: Any = model.forward if isinstance(model, nn.Module) else model
    if "scored" in inspect.signature(call).parameters:
        logits = model(inputs, scored=scored)
    else:
        logits = model(inputs)[:, scored]
    return log_probabilities(logits)


def device_of(model: Model) -> torch.device:
    """Where the model's parameters are; the CPU for what has none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))
