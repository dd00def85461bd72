"""How far a model's predictions are from the exact posterior, in bits."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bayesattn.evals.bits import entropy_errors, kl_divergence, log_probabilities

if TYPE_CHECKING:
    from bayesattn.tunnels import Batch

WATCH_SEED = 7_000_000_001
"""Sequences that a training looks at while it runs, for example to stop early."""
EVAL_SEED = 7_000_000_002
"""Sequences that fidelity is measured on: no training, nor its early stop, has seen them."""

Model = Callable[..., Tensor]
"""From inputs to logits [B, T, outcomes]; or, given `scored`, at those positions only."""


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """No gradients, no dropout; a module goes back to training afterwards if it was."""
    training = isinstance(model, nn.Module) and model.training
    if isinstance(model, nn.Module):
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if isinstance(model, nn.Module):
            model.train(training)


def predict(model: Model, inputs: Tensor, scored: Tensor) -> Tensor:
    """Log-probabilities [B, S, outcomes], float64, by one causal pass over `inputs`."""
    call: Any = model.forward if isinstance(model, nn.Module) else model
    if "scored" in inspect.signature(call).parameters:
        logits = model(inputs, scored=scored)
    else:
        logits = model(inputs)[:, scored]
    return log_probabilities(logits)


def quick_fidelity(model: Model, batch: "Batch") -> dict[str, float]:
    """Three numbers for a training loop, in bits, over one batch.

    `mae_tok` is the mean over tokens of |H_model - H_Bayes|; `mae_pos` the mean over positions of
    |mean H_model - mean H_Bayes|, where errors of different sequences cancel; `kl` the mean of
    KL(Bayes ‖ model).
    """
    with evaluating(model):
        log_probs = predict(model, batch.inputs, batch.scored)
    errors = entropy_errors(log_probs, batch.posterior)
    return {
        "mae_tok": float(errors.abs().mean()),
        "mae_pos": float(errors.mean(dim=0).abs().mean()),
        "kl": float(kl_divergence(batch.posterior, log_probs).mean()),
    }
