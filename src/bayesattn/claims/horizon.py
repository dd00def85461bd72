"""Errors of a model inside and beyond the horizon that it was trained to."""

from collections.abc import Mapping
from dataclasses import dataclass

from bayesattn.evals.fidelity import Fidelity, Part
from bayesattn.ledger.trained import mean


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Of one model on one side of the horizon."""

    kl: float
    mae_tok: float
    mae_pos: float
    tv: float
    mode: float
    uniform_kl: float
    """Of the uniform predictor."""
    uniform_mae: float
    constant_entropy: float
    """Error of the best constant entropy."""
    by_step: list[float]
    """Entropy error."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Errors of one model."""

    inside: Errors
    beyond: Errors


Found = Mapping[int, Mapping[str, Reached]]
"""By seed and training."""


def reached(fidelity: Fidelity) -> Reached:
    """Both sides."""
    return Reached(
        inside=_errors(fidelity.parts["inside"]), beyond=_errors(fidelity.parts["beyond"])
    )


def _errors(part: Part) -> Errors:
    return Errors(
        kl=mean(part, "kl"),
        mae_tok=mean(part, "mae_tok"),
        mae_pos=mean(part, "mae_pos"),
        tv=mean(part, "tv"),
        mode=mean(part, "mode"),
        uniform_kl=mean(part, "kl", "uniform"),
        uniform_mae=mean(part, "mae_tok", "uniform"),
        constant_entropy=part.entropy_mae["constant"],
        by_step=part.curves()["mae_tok"],
    )
