"""Samplers for tunnels: integers, orders, rows of probabilities and Markov chains.

Each function samples a whole batch at once, on the device of its generator.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


def integers(below: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Uniform integers from 0 to `below` - 1."""
    return torch.randint(below, tuple(shape), generator=generator, device=generator.device)


def uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Float64 numbers from 0 to 1, 1 excluded."""
    return torch.rand(
        tuple(shape), dtype=torch.float64, generator=generator, device=generator.device
    )


def random_orders(
    rows: int, size: int, generator: torch.Generator, *, take: int | None = None
) -> Tensor:
    """[rows, take] int64: the first `take` numbers of uniformly random orders of 0 .. size-1."""
    drawn = torch.rand(rows, size, generator=generator, device=generator.device)
    # On a CPU numpy sorts short rows several times as fast as torch.
    orders = torch.as_tensor(drawn.cpu().numpy().argsort(axis=1)[:, :take])
    return orders.to(generator.device)


def sample_symbols(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """[...] symbols, one from each distribution of probabilities [..., symbols]."""
    drawn = probabilities.flatten(0, -2).multinomial(1, generator=generator)
    return drawn.view(probabilities.shape[:-1])


def sample_chain(
    first: Tensor, transition: Tensor, length: int, generator: torch.Generator
) -> Tensor:
    """[B, length] states: s_0 = first [B], P(s_{t+1} = j | s_t = i) = transition[b, i, j]."""
    rows = torch.arange(len(first), device=first.device)
    states = [first]
    for _ in range(length - 1):
        states.append(sample_symbols(transition[rows, states[-1]], generator))
    return torch.stack(states, dim=1)


def sample_observations(states: Tensor, emission: Tensor, generator: torch.Generator) -> Tensor:
    """[B, length] symbols: P(o_t = k | s_t = i) = emission[b, i, k]."""
    rows = torch.arange(len(states), device=states.device)[:, None]
    return sample_symbols(emission[rows, states], generator)


class Rows(NamedTuple):
    """Samples rows of probabilities, and reads them back from inputs."""

    alpha: float
    """Dirichlet concentration, the same for all entries."""
    min_prob: float
    """Smallest probability: smaller ones are clipped before renormalising."""
    grid: float | None
    """Entries are multiples of this, and at least `min_prob`; None: continuous entries."""

    @property
    def units(self) -> int | None:
        """Number of grid steps in 1."""
        return None if self.grid is None else round(1 / self.grid)

    @property
    def least(self) -> int:
        """Number of grid steps in the smallest probability."""
        return 0 if self.units is None else round(self.min_prob * self.units)

    def check(self, columns: int) -> None:
        """Raise ValueError if rows of so many columns cannot be sampled."""
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha must be positive, not {self.alpha}")
        if not 0 <= self.min_prob * columns <= 1 + 1e-9:
            raise ValueError(
                f"min_prob must lie between 0 and 1/{columns}, since {columns} entries make a row, "
                f"not {self.min_prob}"
            )
        if self.grid is None:
            return
        if not 0 < self.grid <= 1 or not _whole(1 / self.grid):
            raise ValueError(f"grid must be 1 divided by a whole number, not {self.grid}")
        if self.min_prob <= 0 or not _whole(self.min_prob / self.grid):
            raise ValueError(
                f"min_prob must be a positive multiple of the grid {self.grid}, not {self.min_prob}"
            )

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Float64 `shape`; rows are the last dimension."""
        rows = _gamma(shape, self.alpha, generator)
        rows = (rows / rows.sum(-1, keepdim=True)).clamp(min=self.min_prob)
        rows = rows / rows.sum(-1, keepdim=True)
        return rows if self.units is None else round_rows(rows, self.units, self.least) / self.units

    def read(self, logs: Tensor) -> Tensor:
        """Float64 rows from their float32 logarithms.

        Exact if they are on a grid; otherwise to the precision of the logarithms, with sum 1.
        """
        rows = logs.double().exp()
        if self.units is None:
            return rows / rows.sum(-1, keepdim=True)
        return (rows * self.units).round() / self.units


def round_rows(rows: Tensor, units: int, least: int) -> Tensor:
    """Float64 rows of whole units, at least `least` each, that sum to `units`.

    After rounding, the sum may be too small or too large. Missing units are added to the smallest
    entries and extra units taken from the largest, one each in turn, but not from entries at
    `least`.
    """
    values, order = (rows * units).round().clamp(min=least).sort(dim=-1, stable=True)
    from_smallest = torch.arange(rows.shape[-1], device=rows.device)
    while bool((missing := units - values.sum(-1, keepdim=True)).any()):
        able = values > least
        from_largest = able.sum(-1, keepdim=True) - able.cumsum(-1)
        given, taken = from_smallest < missing, able & (from_largest < -missing)
        values = values + given.double() - taken.double()
    return torch.zeros_like(values).scatter_(-1, order, values)


def _gamma(shape: tuple[int, ...], alpha: float, generator: torch.Generator) -> Tensor:
    if alpha == 1:  # Gamma(1) is the exponential distribution, which is drawn several times faster
        return -torch.log1p(-uniform(shape, generator))
    concentration = torch.full(shape, alpha, dtype=torch.float64, device=generator.device)
    # torch.distributions has no generator argument; this is the sampler that it calls.
    sampler = torch._standard_gamma  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return sampler(concentration, generator=generator)


def _whole(value: float) -> bool:
    return abs(value - round(value)) < 1e-9 * max(1.0, abs(value))
