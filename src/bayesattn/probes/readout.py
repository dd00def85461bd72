"""Linear read-outs, judged on sequences they were not fitted on.

    R²         1 - Σ ‖y - ŷ‖² / Σ ‖y - ȳ‖², ȳ the mean where it was fitted

Tokens of one sequence depend on each other, so whole sequences are held out, and intervals are over
them. Shapes: N sequences, S steps, d inputs, c targets.

How well a number can be read off states, each prompt by what was learnt from the others.

R²      1 - Σ error² / Σ (y_i - mean of the others)², with the errors of `held_out_errors`
"""

import torch
from torch import Generator, Tensor

from bayesattn.linear import Readout, fit, held_out_errors
from bayesattn.probes.measured import (
    RESAMPLES,
    Measured,
    require_samples,
    shuffled_sequences,
)
from bayesattn.stats import percentiles, resampling_weights

HELD_OUT = 0.25
FEWEST_SEQUENCES = 16


def split(sequences: int) -> tuple[slice, slice]:
    """Sequences to fit on, and those held out."""
    require_samples("sequences", sequences, FEWEST_SEQUENCES)
    at = round(sequences * (1 - HELD_OUT))
    return slice(0, at), slice(at, None)


def r_squared(readout: Readout, x: Tensor, y: Tensor) -> Measured:
    """R² over all targets together, with its interval over sequences."""
    error, spread = (squares.sum(1) for squares in readout.squares(x, y))
    draws = resampling_weights(len(error), RESAMPLES)
    interval = percentiles(1 - (draws @ error) / (draws @ spread).clamp(min=1e-30))
    return Measured(value=float(1 - error.sum() / spread.sum()), interval=interval)


def decode(x: Tensor, y: Tensor, *, permutations: int = 99, seed: int = 0) -> Measured:
    """Held-out R² of y [N, S, c] from x [N, S, d], beside targets of other sequences.

    The null fits targets that were exchanged between sequences at every step: it keeps what the
    step alone tells, which any code of the position can read.
    """
    train, test = split(len(x))
    y = y.double()
    found = r_squared(fit(x[train], y[train]), x[test], y[test])
    generator = Generator().manual_seed(seed)
    orders = shuffled_sequences(
        torch.arange(len(y))[:, None].expand(y.shape[:2]), permutations, generator
    )
    steps = torch.arange(y.shape[1])
    others = torch.stack([y[order, steps] for order in orders], dim=-2)  # [N, S, M, c]
    flat = others.flatten(2)
    error, spread = fit(x[train], flat[train]).squares(x[test], flat[test])
    shape = (-1, permutations, y.shape[2])
    ratio = error.view(shape).sum((0, 2)) / spread.view(shape).sum((0, 2)).clamp(min=1e-30)
    return found.against(1 - ratio)


def step_alone(y: Tensor) -> float:
    """Held-out R² of the mean at each step, of y [N, S, c]: what the position tells."""
    train, test = split(len(y))
    y = y.double()
    error = (y[test] - y[train].mean(0)).square().sum()
    return float(1 - error / (y[test] - y[train].mean((0, 1))).square().sum().clamp(min=1e-30))


def decodability(states: Tensor, bits: Tensor, others: Tensor, *, draws: int) -> Measured:
    """Held-out R² of bits [n] from states [n, d], beside bits in the orders `others` [M, n]."""
    count, bits = len(bits), bits.double()
    targets = torch.cat([bits[:, None], bits[others].T], dim=1)
    errors = held_out_errors(states, targets).square()
    spread = ((targets - targets.mean(0)) * count / (count - 1)).square()
    found = 1 - errors.sum(0) / spread.sum(0).clamp(min=1e-30)
    weights = resampling_weights(count, draws)
    resampled = 1 - (weights @ errors[:, 0]) / (weights @ spread[:, 0]).clamp(min=1e-30)
    measured = Measured(value=float(found[0]), interval=percentiles(resampled))
    return measured.against(found[1:], "other prompts")
