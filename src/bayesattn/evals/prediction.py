"""Predictions of a model at the scored positions, and their metrics against the exact posterior.

N sequences, S steps (scored positions), R resamples. `Scores` keeps numbers for each sequence and
step, and the metrics are means of them.

Calibration: do outcomes with predicted probability p occur in a share p of all cases? Tokens are
put into bins by the confidence c, the probability of the most probable outcome, and
ECE = Σ_bins (n_bin / n) |mean correct - mean c|. Because labels are sampled, the ECE is above 0
even for the exact posterior: compare it with that of the posterior.
"""

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.bits import entropy, kl_divergence, log_probabilities, total_variation

Model = Callable[..., Tensor]
"""Maps inputs to logits [B, T, outcomes]; if it takes `scored`, at these positions only."""
CERTAIN = 1e-9
"""Tolerance for a posterior to count as a delta, and for outcomes to count as equally probable."""
BINS = 15
"""Number of bins of confidence."""

METRICS = {
    "kl": "mean KL(Bayes ‖ model), bits",
    "tv": "mean total variation",
    "mae_tok": "mean |H_model - H_Bayes| per token, bits",
    "mae_pos": "per position |mean H_model - mean H_Bayes|, averaged, bits",
    "support": "share of tokens whose most probable outcome is possible: posterior > 0",
    "mode": "share of tokens whose most probable outcome has the largest posterior",
    "accuracy": "share of tokens whose most probable outcome is the sampled one",
    "recall": "accuracy where the posterior is a delta",
    "ece": "expected calibration error of the most probable outcome, in probability",
}
"""Metrics; the best value of the first four and of the last is 0, of the others 1."""


@contextmanager
def evaluating(model: Model) -> Generator[None]:
    """Context without gradients and dropout; restores the training mode of a module."""
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


def predict_all(model: Model, inputs: Tensor, scored: Tensor, batch_size: int = 1024) -> Tensor:
    """`predict` for any number of sequences, in batches; the result is on the CPU."""
    device = device_of(model)
    with evaluating(model):
        parts = [
            predict(model, inputs[at : at + batch_size].to(device), scored.to(device)).cpu()
            for at in range(0, max(1, len(inputs)), batch_size)
        ]
    return torch.cat(parts)


def device_of(model: Model) -> torch.device:
    """Device of the model's parameters; the CPU for models without parameters."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


@dataclass(frozen=True)
class Scores:
    """A predictor beside the posterior; every field is [N, S]."""

    kl: Tensor
    tv: Tensor
    entropy: Tensor
    bayes_entropy: Tensor
    confidence: Tensor
    """Probability of the predictor's most probable outcome."""
    bayes_confidence: Tensor
    """Posterior probability of the same outcome."""
    support: Tensor
    mode: Tensor
    correct: Tensor
    certain: Tensor

    @classmethod
    def compare(cls, log_probs: Tensor, posterior: Tensor, labels: Tensor) -> "Scores":
        """Scores from log-probabilities and the posterior, both [N, S, outcomes] float64."""
        guess = log_probs.argmax(dim=-1, keepdim=True)
        chance = posterior.gather(-1, guess)[..., 0]
        largest = posterior.amax(dim=-1)
        return cls(
            kl=kl_divergence(posterior, log_probs),
            tv=total_variation(posterior, log_probs),
            entropy=entropy(log_probs.exp()),
            bayes_entropy=entropy(posterior),
            confidence=log_probs.gather(-1, guess)[..., 0].exp(),
            bayes_confidence=chance,
            support=(chance > 0).double(),
            mode=(chance >= largest - CERTAIN).double(),
            correct=(guess[..., 0] == labels).double(),
            certain=(largest >= 1 - CERTAIN).double(),
        )

    @classmethod
    def concatenate(cls, parts: "list[Scores]") -> "Scores":
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*map(torch.cat, columns))

    def at(self, steps: slice) -> "Scores":
        return Scores(*(getattr(self, field.name)[:, steps] for field in fields(self)))

    @property
    def entropy_error(self) -> Tensor:
        """H_model - H_Bayes, signed, bits."""
        return self.entropy - self.bayes_entropy

    def metrics(self, weights: Tensor) -> dict[str, Tensor]:
        """Every metric [R], with sequence n counted `weights[r, n]` times; weights [R, N].

        `recall` is NaN if no posterior is a delta.
        """
        total = weights.sum(dim=1)
        error = self.entropy_error
        means = {
            "kl": self.kl,
            "tv": self.tv,
            "mae_tok": error.abs(),
            "support": self.support,
            "mode": self.mode,
            "accuracy": self.correct,
        }
        columns = weights @ torch.stack([mean.mean(dim=1) for mean in means.values()], dim=1)
        result = dict(zip(means, (columns.T / total).unbind(), strict=True))
        result["mae_pos"] = (weights @ error).abs().mean(dim=1) / total
        known = weights @ self.certain.sum(dim=1)
        result["recall"] = weights @ (self.certain * self.correct).sum(dim=1) / known
        result["ece"] = calibration_errors(self.confidence, self.correct, weights)
        return {name: result[name] for name in METRICS}

    def reliability(self) -> dict[str, Tensor]:
        """Means over the tokens of each non-empty bin of confidence.

        `frequency` is the share in which the most probable outcome was the sampled one; `bayes` is
        its exact posterior probability: the frequency without sampling noise.
        """
        index = _bins(self.confidence).flatten()
        count = torch.bincount(index, minlength=BINS)
        filled = count > 0
        columns = {
            "confidence": self.confidence,
            "frequency": self.correct,
            "bayes": self.bayes_confidence,
        }
        return {"tokens": count[filled]} | {
            name: torch.bincount(index, column.flatten(), BINS)[filled] / count[filled]
            for name, column in columns.items()
        }


def _bins(confidence: Tensor) -> Tensor:
    return (confidence * BINS).long().clamp(0, BINS - 1)


def calibration_errors(confidence: Tensor, correct: Tensor, weights: Tensor) -> Tensor:
    """ECE [R] of tokens [N, S], with sequence n counted `weights[r, n]` times; weights [R, N]."""
    gaps = confidence.new_zeros(confidence.shape[0], BINS)
    gaps.scatter_add_(1, _bins(confidence), correct - confidence)
    return (weights @ gaps).abs().sum(dim=1) / (weights.sum(dim=1) * confidence.shape[1])
