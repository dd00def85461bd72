"""A number and what it has to be seen beside: its interval, its nulls, its chance."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesattn.stats import Interval, percentiles, resampling_weights

RESAMPLES = 500
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measurement."""

    value: float
    interval: Interval | None = None
    """95%, over sequences or tokens: what another sample from the same network would give."""
    nulls: dict[str, float] = field(default_factory=dict)
    """The same quantity where there is nothing to find, by kind of nothing."""
    p: float | None = None
    """Share of permutations that give at least as much as was measured."""

    def beside(self, **nulls: float) -> "Measured":
        """The same with more nulls."""
        named = {name.replace("_", " "): value for name, value in nulls.items()}
        more = {**self.nulls, **named}
        return Measured(value=self.value, interval=self.interval, nulls=more, p=self.p)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        interval = None if self.interval is None else list(self.interval)
        return {"value": self.value, "interval": interval, "nulls": self.nulls, "p": self.p}


def plain(value: Any) -> Any:
    """A result as plain JSON values: dataclasses and measurements become dictionaries."""
    if isinstance(value, Measured):
        return value.to_dict()
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def mean_over_sequences(values: Tensor, weights: Tensor | None = None) -> Measured:
    """Mean of `values` [N, …] over everything, with its interval over the N sequences.

    Args:
        values: one number per sequence and whatever else.
        weights: [N, …] how much each counts, such as a mask; all alike if None.
    """
    weights = torch.ones_like(values) if weights is None else weights.to(values.dtype)
    total, count = (x.double().flatten(1).sum(1) for x in (values * weights, weights))
    draws = resampling_weights(len(values), RESAMPLES)
    interval = percentiles((draws @ total) / (draws @ count))
    return Measured(value=float(total.sum() / count.sum()), interval=interval)


def chance(value: float, null: Tensor) -> float:
    """P(null >= value), from permutations [M]; never 0, for the sample is one of them.

    What differs by rounding only is the same: where an order means nothing, p is 1.
    """
    rounding = ROUNDING * max(1.0, abs(value))
    return (1 + int((null >= value - rounding).sum())) / (1 + len(null))
