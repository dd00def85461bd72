"""A number with its interval, its nulls and its p.

Nulls are the values of measurements where there is nothing to find:

random directions      E|cos| = Γ(d/2) / (√π Γ((d+1)/2)) ≈ √(2 / πd)
white noise, n × d     the largest eigenvalue of the covariance is (1 + √(d/n))², so the share of
                       the first component is this over d; the participation ratio is nd / (n + d)
permutations           the same numbers in random order
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Generator, Tensor, nn

from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.stats import Interval, percentiles, resampling_weights
from bayesattn.tunnels import Batch, Tunnel

RESAMPLES = 500
Untrained = nn.Module | None
"""The same network before training, for comparison; None leaves it out."""
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measurement."""

    value: float
    interval: Interval | None = None
    """95% interval over sequences or tokens: it covers other samples from the same network."""
    nulls: dict[str, float] = field(default_factory=dict)
    """Nulls by name: the same quantity where there is nothing to find."""
    p: float | None = None
    """Share of permutations that give at least the measured value."""

    def beside(self, **nulls: float | None) -> "Measured":
        """The same measurement with more nulls; None values are dropped."""
        more = {name.replace("_", " "): value for name, value in nulls.items() if value is not None}
        return replace(self, nulls={**self.nulls, **more})

    def against(
        self, null: Tensor, name: str = "other sequences", *, less: bool = False
    ) -> "Measured":
        """The same with the mean of permutations [M] and p; `less`: small values are remarkable."""
        sign = -1 if less else 1
        beside = self.beside(**{name: float(null.mean())})
        return replace(beside, p=chance(sign * self.value, sign * null))


Found = TypeVar("Found")
Key = TypeVar("Key")


def beside_each(found: Found, **others: Found) -> Found:
    """`found` with the measurements of other networks, such as untrained ones, as nulls."""
    measured = {name: x for name, x in vars(found).items() if isinstance(x, Measured)}
    for null, other in others.items():
        for name, x in measured.items():
            measured[name] = x.beside(**{null: getattr(other, name).value})
    return replace(cast(Any, found), **measured)


def measure_each(
    measure: Callable[[Key, Tensor, int], Found],
    trained: Iterable[tuple[Key, Tensor]],
    untrained: Mapping[Key, Tensor] | None,
    permutations: int,
) -> list[Found]:
    """`measure(key, states, permutations)` of all states, beside those before training."""
    found: list[Found] = []
    for key, states in trained:
        one = measure(key, states, permutations)
        if untrained is not None:
            one = beside_each(one, untrained=measure(key, untrained[key], 1))
        found.append(one)
    return found


def plain(value: Any) -> Any:
    """A result as plain JSON values: dataclasses become dictionaries, NaN becomes None."""
    if is_dataclass(value):
        return {name: plain(item) for name, item in vars(value).items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def held_out(tunnel: Tunnel, sequences: int) -> Batch:
    """Held-out sequences, always the same."""
    return tunnel.sample(sequences, Generator().manual_seed(EVAL_SEED))


def mean_over_sequences(values: Tensor, weights: Tensor | None = None) -> Measured:
    """Mean of all `values` [N, …], with its interval over the N sequences.

    `weights` [N, …], such as a mask; None for equal weights.
    """
    weights = torch.ones_like(values) if weights is None else weights.to(values.dtype)
    total, count = (x.double().flatten(1).sum(1) for x in (values * weights, weights))
    draws = resampling_weights(len(values), RESAMPLES)
    interval = percentiles((draws @ total) / (draws @ count))
    return Measured(value=float(total.sum() / count.sum()), interval=interval)


def chance(value: float, null: Tensor) -> float:
    """P(null >= value), from permutations [M]; never 0, because the sample is one of them.

    Values that differ by rounding count as equal, so p is 1 where an order has no meaning.
    """
    rounding = ROUNDING * max(1.0, abs(value))
    return (1 + int((null >= value - rounding).sum())) / (1 + len(null))


class NotApplicableError(ValueError):
    """A probe has no meaning for this model or tunnel; other probes go on."""


def require_samples(what: str, count: int, least: int) -> None:
    """Refuse a sample that is too small."""
    if count < least:
        raise ValueError(f"{what}: {count} is too few to tell from chance, take {least} or more")


def random_cosine(width: int) -> float:
    """Mean |cos| of two random directions in `width` dimensions."""
    logs = math.lgamma(width / 2) - math.lgamma((width + 1) / 2)
    return math.exp(logs) / math.sqrt(math.pi)


def white_noise(samples: int, width: int) -> tuple[float, float]:
    """Share of the first component, and participation, of white noise [samples, width].

    The share is the edge of the spectrum (Marchenko & Pastur 1967).
    """
    edge = (1 + math.sqrt(width / samples)) ** 2
    return min(1.0, edge / width), samples * width / (samples + width)


def shuffled_columns(rows: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, n, d]: each column of `rows` [n, d] in an order of its own.

    Means and variances of the columns stay the same; rows are mixed. If columns are steps and rows
    are sequences, information of the step stays and information of the sequence is lost.
    """
    order = torch.rand(count, *rows.shape, generator=generator).argsort(dim=1)
    return rows.expand(count, -1, -1).gather(1, order)


def shuffled_inside(groups: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, N, …] orders of N entries in which each goes to one of its own group [N, …]."""
    _, place = groups.unique(return_inverse=True)
    mixed = (place + torch.rand(count, *groups.shape, generator=generator)).argsort(dim=1)
    # both sorted by group: the n-th of the one becomes the n-th of the other
    places = place.argsort(dim=0, stable=True).expand(count, *groups.shape)
    return torch.zeros_like(mixed).scatter_(1, places, mixed)
