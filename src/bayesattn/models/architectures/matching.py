"""Capacity matching: choose sizes of an architecture for a given number of trained parameters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from bayesattn.models.architectures.base import Architecture, Predictor
from bayesattn.tunnels import Tunnel

A = TypeVar("A", bound=Architecture)
INNER = "intermediate_size"
WIDEST = 1 << 16


def count_parameters(architecture: Architecture, tunnel: Tunnel) -> int:
    """Trained parameters of the whole predictor, embedding and head included."""
    with torch.device("meta"):
        predictor = Predictor(architecture, tunnel)
    return sum(p.numel() for p in predictor.parameters() if p.requires_grad)


def match_parameters(architecture: A, tunnel: Tunnel, budget: int, tolerance: float = 0.02) -> A:
    """The architecture with the width (and inner width) that comes nearest to `budget`.

    It takes the largest width within the budget. If the count is not near enough, the feed-forward
    layers (if there are any) become wider.

    Args:
        architecture: all fields but sizes are kept, and the ratio of inner width to width.
        tunnel: its embedding, head and position tables count, too.
        budget: trained parameters.
        tolerance: largest relative distance from the budget.
    """
    if budget < 1:
        raise ValueError(f"budget must be a positive number of parameters, not {budget}")
    step = architecture.width_multiple()

    def count(multiple: int) -> int:
        return count_parameters(_resized(architecture, multiple * step), tunnel)

    below = _last_within(count, budget)
    candidates = [_resized(architecture, m * step) for m in (below, below + 1) if m > 0]
    nearest = min(candidates, key=lambda a: abs(count_parameters(a, tunnel) - budget))
    if not _near(nearest, tunnel, budget, tolerance) and below > 0:
        nearest = _fill(candidates[0], tunnel, budget)
    if not _near(nearest, tunnel, budget, tolerance):
        sizes = ", ".join(f"width {a.width}: {count_parameters(a, tunnel):,}" for a in candidates)
        raise ValueError(
            f"no {architecture.name} of {architecture.layers} layers comes within "
            f"{tolerance:.0%} of {budget:,} parameters ({sizes}); change layers or the budget"
        )
    return nearest


def _resized(architecture: A, width: int) -> A:
    """Another width, with the inner width (if it was given) in the same ratio."""
    sizes: dict[str, Any] = {"width": width}
    inner = getattr(architecture, INNER, None)
    if inner is not None:
        sizes[INNER] = max(1, round(inner * width / architecture.width))
    return replace(architecture, **sizes)


def _last_within(count: Callable[[int], int], budget: int) -> int:
    """Largest multiple whose count is within the budget, 0 if there is none."""
    low, high = 0, 1
    while count(high) <= budget and high < WIDEST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    return low


def _fill(architecture: A, tunnel: Tunnel, budget: int) -> A:
    """Use the rest of the budget for the inner width; the count is linear in it."""
    if not hasattr(architecture, INNER):
        return architecture
    one, two = (
        count_parameters(replace(architecture, **{INNER: inner}), tunnel) for inner in (1, 2)
    )
    return replace(architecture, **{INNER: 1 + max(0, round((budget - one) / (two - one)))})


def _near(architecture: Architecture, tunnel: Tunnel, budget: int, tolerance: float) -> bool:
    return abs(count_parameters(architecture, tunnel) - budget) <= tolerance * budget
