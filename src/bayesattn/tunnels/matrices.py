"""Random stochastic matrices whose entries lie on a grid of probabilities.

Rows are Dirichlet(alpha), clipped from below, renormalised, and rounded to multiples of 1/units
so that they still sum to 1: rounding leaves some units too few or too many, and these are given
to the smallest entries, or taken from the largest, one at a time and in turn.
"""

import torch
from torch import Tensor


def sample_rows(
    shape: tuple[int, ...],
    generator: torch.Generator,
    *,
    alpha: float,
    min_prob: float,
    units: int | None,
) -> Tensor:
    """Float64 `shape`, each row (last dimension) a probability vector.

    Args:
        shape: of the result.
        generator: source of randomness.
        alpha: Dirichlet concentration, the same for all entries.
        min_prob: clip below this before renormalising.
        units: entries become multiples of 1 / units, and at least `min_prob`; None: no grid.
    """
    weights = _gamma(shape, alpha, generator)
    rows = (weights / weights.sum(-1, keepdim=True)).clamp_(min=min_prob)
    rows /= rows.sum(-1, keepdim=True)
    if units is None:
        return rows
    return round_rows(rows, units, round(min_prob * units)).double() / units


def round_rows(rows: Tensor, units: int, least: int) -> Tensor:
    """Int64 rows of multiples of 1 / units, at least `least` each, that sum to `units`.

    Missing units are added one at a time in turn, the smallest entry first; surplus units are
    taken in turn, the largest first, passing over entries at `least`. In closed form, with
    surplus u and room r_i = x_i - least: entries with Σ_j min(r_i, r_j) <= u lose all their room,
    the others share the rest equally, and the remainder of that division comes from the largest.
    """
    values = (rows * units).round_().long().clamp_(min=least)
    size = values.shape[-1]
    surplus = values.sum(-1, keepdim=True) - units
    first, second = values[..., :, None], values[..., None, :]
    index = torch.arange(size, device=rows.device)
    ties_before = (first == second) & (index < index[:, None])
    smaller = ((second < first) | ties_before).sum(-1)
    larger = ((second > first) | ties_before).sum(-1)

    missing = (-surplus).clamp(min=0)
    added = missing // size + (smaller < missing % size)

    surplus = surplus.clamp(min=0)
    room = values - least
    emptied = torch.minimum(first, second).sub_(least).sum(-1) <= surplus
    rest = surplus - (room * emptied).sum(-1, keepdim=True)
    sharers = (size - emptied.sum(-1, keepdim=True)).clamp(min=1)
    taken = torch.where(emptied, room, rest // sharers + (larger < rest % sharers))
    return values + added - taken


def _gamma(shape: tuple[int, ...], alpha: float, generator: torch.Generator) -> Tensor:
    device = generator.device
    if alpha == 1:  # exponential: several times faster than the general sampler
        uniform = torch.rand(shape, dtype=torch.float64, generator=generator, device=device)
        return uniform.neg_().log1p_().neg_()
    concentration = torch.full(shape, alpha, dtype=torch.float64, device=device)
    # torch.distributions has no generator argument; this is the sampler that it calls.
    return torch._standard_gamma(concentration, generator=generator)  # pyright: ignore[reportPrivateUsage]
