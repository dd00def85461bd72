"""How well a number can be read off states, each prompt by what was learnt from the others.

R²      1 - Σ error² / Σ (y_i - mean of the others)², with the errors of `held_out_errors`
"""

import torch
from torch import Tensor

from bayesattn.linear import held_out_errors
from bayesattn.probes.measured import Measured, chance, percentiles
from bayesattn.stats import resampling_weights


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
