"""Which law does the loss of a model follow as evidence grows?

    Bayesian     -log2( Σ_m ρ_m P_m^(K n + 1) / Σ_m ρ_m P_m^(K n) ), two hypotheses m
    power        floor + C n^-a
    exponential  floor + C e^(-a n)

for the loss after n draws, in bits (the first is arXiv 2410.16531's). Each is fitted to the shorter
half of lengths, and its error is that at the longer half.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]
LN2 = np.log(2.0)
LARGE = 30.0
"""Parameters are kept within this, where nothing overflows."""
FEWEST = 10
"""Lengths without which there is nothing to hold out."""
FALL = 0.02
"""Bits: a curve that falls by less follows every law."""


def bayesian(n: Array, at: Array) -> Array:
    """Parameters: log odds of the first hypothesis, logits of both P, log K."""
    odds, p, q, speed = at
    prior = -np.logaddexp(0, [-odds, odds])  # log ρ
    logs = -np.logaddexp(0, [-p, -q])  # log P
    before = prior[:, None] + np.exp(speed) * n * logs[:, None]
    return (np.logaddexp(*before) - np.logaddexp(*(before + logs[:, None]))) / LN2


def power(n: Array, at: Array) -> Array:
    return at[0] + np.exp(at[1]) * n ** -np.exp(at[2])


def exponential(n: Array, at: Array) -> Array:
    return at[0] + np.exp(at[1] - np.exp(at[2]) * n)


def _starts(first: float, last: float) -> dict[str, list[list[float]]]:
    fall = float(np.log(max(first - last, 1e-3)))
    p, q = (float(-np.log(np.expm1(max(x, 0.01) * LN2))) for x in (last, first + 0.3))
    return {
        "Bayesian": [[odds, p, q, -0.7] for odds in (-2.0, 0.0)],
        "power": [[last, fall, -0.5]],
        "exponential": [[last, fall, -1.5]],
    }


LAWS: dict[str, Callable[[Array, Array], Array]] = {
    "Bayesian": bayesian,
    "power": power,
    "exponential": exponential,
}


def held_out_errors(curve: Sequence[float]) -> dict[str, float] | None:
    """Root mean square error, bits, of each law at the longer half of lengths 1 to N.

    None where the curve is too short, or does not fall: then every law fits.
    """
    losses = np.asarray(curve, dtype=np.float64)
    half = len(losses) // 2
    if len(losses) < FEWEST or losses[0] - losses[half - 1] < FALL:
        return None
    n = np.arange(1.0, len(losses) + 1)
    starts = _starts(float(losses[0]), float(losses[half - 1]))
    return {name: _error(law, starts[name], n, losses, half) for name, law in LAWS.items()}


def _error(
    law: Callable[[Array, Array], Array],
    starts: Sequence[Sequence[float]],
    n: Array,
    losses: Array,
    half: int,
) -> float:
    fits = [
        least_squares(
            lambda at: law(n[:half], at) - losses[:half],
            start,
            bounds=(-LARGE, LARGE),
            max_nfev=100,
        )
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    return float(np.sqrt(np.mean((law(n[half:], best.x) - losses[half:]) ** 2)))
