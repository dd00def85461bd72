"""How well calibrated a model is on SULA, and whether evidence moves its states along an axis."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from bayesattn.probes.llm.ordering import (
    Component,
    correlation,
    first_component,
    order,
    spearman,
)
from bayesattn.probes.llm.sula_answers import Answers
from bayesattn.probes.measured import Measured, chance, mean_over_sequences, plain

PERMUTATIONS = 499


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Entropies of a model beside those of Bayes; all in bits."""

    condition: str
    shots: int | None
    """Pairs shown; None: all prompts together."""
    prompts: int
    model: Measured
    """Mean H_model."""
    posterior: float
    """Mean H_post."""
    predictive: float
    """Mean H_pred."""
    unaware: float
    """Mean H_post of who does not know that labels are coins or masked."""
    error_posterior: Measured
    """Mean |H_model - H_post|, beside 1 bit always, ideal predictions, and exchanged answers."""
    error_predictive: Measured
    """Mean |H_model - H_pred|, beside the same."""
    correlation_posterior: float | None
    """Pearson; None where H_post does not vary."""
    correlation_predictive: float | None
    mass: float
    """Mean probability of the two labels among all tokens: is the task understood at all?"""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return plain(self)


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Is the first component of values in the order of the entropy that the labels leave?

    Of ranks, for which H_post and H_pred are one; where labels are coins or masked, the entropy is
    that of an unaware observer. Beside every number: entropies exchanged among prompts.
    """

    condition: str
    layer: int
    axis: str
    """centred, or standardised by column."""
    share: float
    """Of the variance on the component."""
    order: Measured | None
    """|Spearman| over all prompts; None where the entropy is constant."""
    given_shots: Measured | None
    """The same given the number of pairs, and so, nearly, the length."""
    by_shots: dict[int, Measured]
    """For each number of pairs where the entropy varies."""
    shots: float | None
    """Spearman of the component and the number of pairs; None where that is fixed."""
    length: float | None
    """Spearman with the number of tokens."""
    own: Measured | None
    """|Spearman| with the model's own entropy."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return plain(self)


def calibrate(answers: Answers) -> list[Calibration]:
    """All prompts together, then those of each number of pairs."""
    shots = answers.condition.shots
    numbers = shots.unique().tolist()
    whole = torch.ones_like(shots, dtype=torch.bool)
    found = [_calibration(answers, whole, None)]
    return found + [_calibration(answers, shots == k, k) for k in numbers if len(numbers) > 1]


def move(answers: Answers, layer: int) -> list[Movement]:
    """Along both axes."""
    states = answers.values[layer][None]
    return [
        movement(answers, layer, name, first_component(states, standardise=flag))
        for name, flag in (("centred", False), ("standardised", True))
    ]


def movement(answers: Answers, layer: int, name: str, component: Component) -> Movement:
    """Along one axis, on which every prompt has a score."""
    condition, scores = answers.condition, component.scores[0]
    bits, shots = condition.unaware_bits, condition.shots
    by_shots = {
        k: found
        for k in shots.unique().tolist()
        if (found := order(scores[shots == k], bits[shots == k])) is not None
    }
    several = len(shots.unique()) > 1
    uneven = len(answers.lengths.unique()) > 1
    return Movement(
        condition=condition.name,
        layer=layer,
        axis=name,
        share=float(component.share[0]),
        order=order(scores, bits),
        given_shots=order(scores, bits, shots) if several else None,
        by_shots=by_shots if several else {},
        shots=_spearman(shots, scores) if several else None,
        length=_spearman(answers.lengths, scores) if uneven else None,
        own=order(scores, answers.bits),
    )


def _calibration(answers: Answers, some: Tensor, shots: int | None) -> Calibration:
    condition, bits = answers.condition, answers.bits[some]
    post, pred = condition.posterior_bits[some], condition.predictive_bits[some]
    return Calibration(
        condition=condition.name,
        shots=shots,
        prompts=int(some.sum()),
        model=mean_over_sequences(bits[:, None]),
        posterior=float(post.mean()),
        predictive=float(pred.mean()),
        unaware=float(condition.unaware_bits[some].mean()),
        error_posterior=_error(bits, post, pred),
        error_predictive=_error(bits, pred, pred),
        correlation_posterior=_pearson(bits, post),
        correlation_predictive=_pearson(bits, pred),
        mass=float(answers.mass[some].mean()),
    )


def _error(bits: Tensor, target: Tensor, ideal: Tensor) -> Measured:
    """Mean |bits - target| [N]; p: how often exchanged answers are as near."""
    found = mean_over_sequences((bits - target).abs()[:, None])
    generator = Generator().manual_seed(0)
    exchanged = bits[torch.rand(PERMUTATIONS, len(bits), generator=generator).argsort(dim=1)]
    null = (exchanged - target).abs().mean(1)
    return Measured(
        value=found.value,
        interval=found.interval,
        nulls={
            "always 1 bit": float((1 - target).abs().mean()),
            "ideal predictions": float((ideal - target).abs().mean()),
            "exchanged": float(null.mean()),
        },
        p=chance(-found.value, -null),
    )


def _pearson(x: Tensor, y: Tensor) -> float | None:
    if len(x) < 3 or float(y.var()) < 1e-12 or float(x.var()) < 1e-12:
        return None
    return float(correlation(x[None], y[None]))


def _spearman(x: Tensor, y: Tensor) -> float:
    return float(spearman(x[None], y[None]))
