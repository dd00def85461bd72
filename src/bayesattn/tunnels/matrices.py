"""Random stochastic matrices whose entries lie on a grid of probabilities.

Rows are Dirichlet(alpha), clipped from below, renormalised, and rounded to multiples of 1/units
so that they still sum to 1: rounding leaves some units too few or too many, and these are given
to the smallest entries, or taken from the largest, one at a time and in turn.
"""

import math

import torch
from torch import Tensor


def check_grid(columns: int, alpha: float, min_prob: float, grid: float | None) -> None:
    """Raise ValueError unless rows of this many columns can be drawn."""
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive, not {alpha}")
    if not 0 <= min_prob * columns <= 1 + 1e-9:
        raise ValueError(
            f"min_prob must lie between 0 and 1/{columns}, since {columns} entries make a row, "
            f"not {min_prob}"
        )
    if grid is None:
        return
    if not 0 < grid <= 1 or not _whole(1 / grid):
        raise ValueError(f"grid must be 1 divided by a whole number, not {grid}")
    if min_prob <= 0 or not _whole(min_prob / grid):
        raise ValueError(f"min_prob must be a positive multiple of the grid {grid}, not {min_prob}")


def units_of(grid: float | None) -> int | None:
    """How many steps of the grid make 1."""
    return None if grid is None else round(1 / grid)


def grid_rows(columns: int, min_prob: float, grid: float | None) -> float:
    """log2 of the number of different rows; infinite without a grid."""
    units = units_of(grid)
    if units is None:
        return math.inf
    free = units - columns * round(min_prob * units)
    return math.log2(math.comb(free + columns - 1, columns - 1))


def read_logs(logs: Tensor, units: int | None) -> Tensor:
    """Float64 rows from their float32 logarithms.

    Exactly, if they are on a grid; else to the precision of the logarithms, summing to 1.
    """
    rows = logs.double().exp_()
    if units is None:
        return rows.div_(rows.sum(-1, keepdim=True))
    return rows.mul_(units).round_().div_(units)


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
    *outer, size = shape
    rows = _gamma((size, math.prod(outer)), alpha, generator)
    rows = rows.div_(rows.sum(0)).clamp_(min=min_prob)
    rows = (rows / rows.sum(0)).T
    if units is not None:
        rows = round_rows(rows, units, round(min_prob * units)).double() / units
    return rows.reshape(shape)


def round_rows(rows: Tensor, units: int, least: int) -> Tensor:
    """Int64 rows of multiples of 1 / units, at least `least` each, that sum to `units`.

    Missing units are added one at a time in turn, the smallest entry first; surplus units are
    taken in turn, the largest first, passing over entries at `least`. In closed form, with
    surplus u and room r_i = x_i - least: entries with Σ_j min(r_i, r_j) <= u lose all their room,
    the others share the rest equally, and the remainder of that division comes from the largest.
    """
    size = rows.shape[-1]
    # Entries first: sums over them are then additions of long vectors.
    values = (rows * units).round().clamp(min=least).long().movedim(-1, 0).contiguous()
    excess = values.sum(0) - units
    missing, surplus = (-excess).clamp(min=0), excess.clamp(min=0)
    # Of equal entries the first counts as the smallest.
    rank = values.argsort(dim=0, stable=True).argsort(dim=0)
    added = missing // size + (rank < missing % size)

    room = values - least
    empties = torch.minimum(room[None], room[:, None]).sum(0) <= surplus
    lost = torch.where(empties, room, 0)
    rest = surplus - lost.sum(0)
    sharers = (~empties).sum(0).clamp(min=1)
    share = rest // sharers + (rank >= size - rest % sharers)
    return (values + added - torch.where(empties, lost, share)).movedim(0, -1)


def _gamma(shape: tuple[int, ...], alpha: float, generator: torch.Generator) -> Tensor:
    device = generator.device
    if alpha == 1:  # exponential: several times faster than the general sampler
        uniform = torch.rand(shape, dtype=torch.float64, generator=generator, device=device)
        return uniform.neg_().log1p_().neg_()
    concentration = torch.full(shape, alpha, dtype=torch.float64, device=device)
    # torch.distributions has no generator argument; this is the sampler that it calls.
    sampler = torch._standard_gamma  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return sampler(concentration, generator=generator)


def _whole(value: float) -> bool:
    return abs(value - round(value)) < 1e-9 * max(1.0, abs(value))
