"""Fidelity: the distance of a model's predictions to the exact posterior, in bits.

`measure` samples held-out sequences, runs the model over each once, and compares it with Bayes at
every scored position, beside predictors that do not infer. The horizon is the number of steps in
training. Steps inside and beyond the horizon are never averaged together.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesattn.bits import entropy, entropy_errors, kl_divergence
from bayesattn.evals.prediction import METRICS, Model, Scores, device_of, evaluating, predict
from bayesattn.stats import Estimate, Interval, percentiles, resampling_weights
from bayesattn.tunnels.base import Batch, Tunnel

EVAL_SEED = 7_000_000_002
"""Seed of the sequences for fidelity, which no training and no early stop uses.

torch keeps 32 bits of a seed. Evaluations have the highest bit set, trainings do not.
"""


@dataclass(frozen=True)
class Part:
    """Scores inside or beyond the horizon: of the model, the posterior and trivial predictors."""

    first: int
    """Step of the first column, from 1."""
    scores: dict[str, Scores]
    """By predictor: model, bayes, uniform, constant, instance."""
    entropy_mae: dict[str, float]
    """mae_tok of the best constant entropy, over all sequences and for each of them."""

    @property
    def steps(self) -> range:
        return range(self.first, self.first + self.scores["model"].kl.shape[1])

    @cached_property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every predictor with its interval over sequences."""
        sequences = self.scores["model"].kl.shape[0]
        weights = resampling_weights(sequences)  # the same for all: their differences are paired
        return {name: _estimates(scores, weights) for name, scores in self.scores.items()}

    def curves(self, predictor: str = "model") -> dict[str, list[float]]:
        scores = self.scores[predictor]
        columns = {
            "entropy_model": scores.entropy,
            "entropy_bayes": scores.bayes_entropy,
            "kl": scores.kl,
            "tv": scores.tv,
            "mae_tok": scores.entropy_error.abs(),
            "accuracy": scores.correct,
        }
        return {
            "step": list(self.steps),
            **{name: column.mean(dim=0).numpy().tolist() for name, column in columns.items()},
            "mae_pos": scores.entropy_error.mean(dim=0).abs().numpy().tolist(),
        }

    def reliability(self, predictor: str = "model") -> dict[str, list[float]]:
        """Confidence against frequency, by bins of confidence."""
        bins = self.scores[predictor].reliability()
        return {name: column.double().numpy().tolist() for name, column in bins.items()}


@dataclass(frozen=True)
class Fidelity:
    """Result of `measure`."""

    tunnel: dict[str, Any]
    sequences: int
    seed: int
    parts: dict[str, Part]
    """inside, beyond, or both."""

    def rows(self) -> list[dict[str, Any]]:
        """One row per part and predictor; each metric with its interval as `_low` and `_high`.

        A metric that a predictor does not have is None.
        """
        rows: list[dict[str, Any]] = []
        for name, part in self.parts.items():
            for predictor, estimates in part.estimates.items():
                rows.append(_row(name, part, predictor, estimates))
            for kind, mae in part.entropy_mae.items():
                only = {"mae_tok": Estimate(mae, Interval(mae, mae))}
                rows.append(_row(name, part, f"{kind} entropy", only))
        return rows

    def to_json(self) -> dict[str, Any]:
        return {
            "tunnel": self.tunnel,
            "sequences": self.sequences,
            "seed": self.seed,
            "metrics": METRICS,
            "rows": self.rows(),
            "curves": {name: part.curves() for name, part in self.parts.items()},
            "reliability": {
                name: {predictor: part.reliability(predictor) for predictor in ("model", "bayes")}
                for name, part in self.parts.items()
            },
        }


def measure(
    model: Model,
    tunnel: Tunnel,
    *,
    sequences: int = 2000,
    seed: int = EVAL_SEED,
    horizon: int | None = None,
    batch_size: int = 256,
) -> Fidelity:
    """Compare `model` with the exact posterior on held-out sequences of `tunnel`.

    Args:
        model: from inputs to logits [B, T, outcomes], or a `Predictor`.
        tunnel: to sample from; `trained.stretched(10)` also measures beyond the horizon.
        sequences: number of sequences.
        seed: of the sequences.
        horizon: number of steps in training; all steps of the tunnel if not given.
        batch_size: sequences in one pass of the model; does not change the result.
    """
    horizon = tunnel.horizon if horizon is None else horizon
    if sequences < 2 or batch_size < 1 or horizon < 0:
        raise ValueError(
            f"sequences must be 2 or more, batch_size 1 or more and horizon 0 or more, "
            f"not {sequences}, {batch_size} and {horizon}"
        )
    batch = tunnel.sample(sequences, torch.Generator().manual_seed(seed))
    scores = _model_scores(model, batch, batch_size)
    sides = {"inside": slice(0, horizon), "beyond": slice(horizon, None)}
    parts = {
        name: Part(
            steps.start + 1,
            _all_scores(scores, batch, steps),
            constant_entropy_maes(batch.posterior[:, steps]),
        )
        for name, steps in sides.items()
        if len(batch.scored[steps])
    }
    return Fidelity(tunnel.to_dict(), sequences, seed, parts)


def measure_stretched(model: Model, trained: Tunnel, longer: Tunnel, *, sequences: int) -> Fidelity:
    """Fidelity on a longer tunnel: steps of the training inside, further steps beyond the horizon.

    If a longer tunnel has equally many steps, only further apart, all its steps are beyond the
    horizon, and the steps of the training tunnel are inside.
    """
    if longer.horizon != trained.horizon or longer == trained:
        return measure(model, longer, sequences=sequences, horizon=trained.horizon)
    inside = measure(model, trained, sequences=sequences)
    beyond = measure(model, longer, sequences=sequences, horizon=0)
    return Fidelity(beyond.tunnel, sequences, EVAL_SEED, {**inside.parts, **beyond.parts})


def trivial_predictors(posterior: Tensor) -> dict[str, Tensor]:
    """Probabilities [B, S, C] of predictors that ignore the sequence, or most of it.

    An entropy error such as 0.4 bits has no meaning without that of the uniform predictor.
    Constants are fitted to the same posteriors by which they are judged, so no constant is better.
    """
    return {
        "uniform": torch.full_like(posterior, 1 / posterior.shape[-1]),
        # the constant with the least KL(Bayes ‖ ·)
        "constant": posterior.mean((0, 1), keepdim=True).expand_as(posterior),
        # the best constant of each sequence
        "instance": posterior.mean(1, keepdim=True).expand_as(posterior),
    }


def constant_entropy_maes(posterior: Tensor) -> dict[str, float]:
    """Least mean |h - H| in bits of a constant entropy h, for all sequences or for each of them.

    Wrong probabilities can have the right entropy, so a good entropy error must be below this.
    """
    bits = entropy(posterior)
    best = {"constant": bits.flatten().median(), "instance": bits.median(1, keepdim=True).values}
    return {kind: (bits - median).abs().mean().item() for kind, median in best.items()}


def quick_fidelity(model: Model, batch: Batch) -> dict[str, float]:
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


def _model_scores(model: Model, batch: Batch, batch_size: int) -> Scores:
    device = device_of(model)
    chunks: list[Scores] = []
    with evaluating(model):
        for start in range(0, len(batch.inputs), batch_size):
            rows = slice(start, start + batch_size)
            inputs, scored = batch.inputs[rows].to(device), batch.scored.to(device)
            log_probs = predict(model, inputs, scored).cpu()
            if log_probs.isnan().any():
                raise ValueError("the model's logits contain NaN, so its predictions mean nothing")
            chunks.append(Scores.compare(log_probs, batch.posterior[rows], batch.labels[rows]))
    return Scores.concatenate(chunks)


def _all_scores(model: Scores, batch: Batch, steps: slice) -> dict[str, Scores]:
    posterior, labels = batch.posterior[:, steps], batch.labels[:, steps]
    others = {"bayes": posterior, **trivial_predictors(posterior)}
    return {"model": model.at(steps)} | {
        name: Scores.compare(probs.log(), posterior, labels) for name, probs in others.items()
    }


def _estimates(scores: Scores, weights: Tensor) -> dict[str, Estimate]:
    values = scores.metrics(torch.ones_like(weights[:1]))
    resampled = scores.metrics(weights)
    return {name: _estimate(float(values[name]), resampled[name]) for name in METRICS}


def _estimate(value: float, resampled: Tensor) -> Estimate:
    if not resampled.isfinite().all():  # infinite if one sequence is; without this, 0 · inf
        return Estimate(value, Interval(value, value))
    low, high = percentiles(resampled, value)
    return Estimate(value, Interval(max(0.0, low), max(0.0, high)))


def _row(name: str, part: Part, predictor: str, estimates: dict[str, Estimate]) -> dict[str, Any]:
    steps = f"{part.steps[0]}-{part.steps[-1]}"
    row: dict[str, Any] = {"part": name, "steps": steps, "predictor": predictor}
    for metric in METRICS:
        value, interval = estimates.get(metric, (math.nan, (None, None)))
        numbers = (None, None, None) if math.isnan(value) else (value, *interval)
        row |= zip((metric, f"{metric}_low", f"{metric}_high"), numbers, strict=True)
    return row
