"""How well a number can be read off states, each prompt by what was learnt from the others.

fit     ridge regression with a free offset; the penalty is the mean variance of a prompt,
        tr(K) / n for the Gram matrix K of centred states, so that few prompts in many
        dimensions are not learnt by heart
error   e_i / (1 - S_ii) for the smoother S = 1/n + K (K + λ)⁻¹: exactly what leaving out
        prompt i, and fitting with the same penalty, would give

R²      1 - Σ error² / Σ (y_i - mean of the others)²
"""

import torch
from torch import Tensor

from bayesattn.evals.bootstrap import resampling_weights
from bayesattn.probes.measured import Measured, chance, percentiles


def held_out_errors(states: Tensor, targets: Tensor) -> Tensor:
    """[n, c] error on each prompt when left out, of targets [n, c] from states [n, d]."""
    rows = states.double() - states.double().mean(0)
    count = len(rows)
    kernel = rows @ rows.T
    penalty = kernel.diagonal().mean().clamp(min=1e-30)
    ridge = kernel + penalty * torch.eye(count, dtype=kernel.dtype)
    smoother = torch.linalg.solve(ridge, kernel) + 1 / count
    return (targets - smoother @ targets) / (1 - smoother.diagonal())[:, None]


def decodability(states: Tensor, bits: Tensor, others: Tensor, *, draws: int) -> Measured:
    """Held-out R² of bits [n] from states [n, d], beside bits in the orders `others` [M, n]."""
    count, bits = len(bits), bits.double()
    targets = torch.cat([bits[:, None], bits[others].T], dim=1)
    errors = held_out_errors(states, targets).square()
    spread = ((targets - targets.mean(0)) * count / (count - 1)).square()
    found = 1 - errors.sum(0) / spread.sum(0).clamp(min=1e-30)
    weights = resampling_weights(count, draws)
    resampled = 1 - (weights @ errors[:, 0]) / (weights @ spread[:, 0]).clamp(min=1e-30)
    return Measured(
        value=float(found[0]),
        interval=percentiles(resampled),
        nulls={"other prompts": float(found[1:].mean())},
        p=chance(float(found[0]), found[1:]),
    )
