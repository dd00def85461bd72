"""Linear read-outs and rank correlations of states.

    R²      1 - Σ ‖y - ŷ‖² / Σ ‖y - ȳ‖², ȳ the mean over the data of the fit
    order   |r| of the ranks of two quantities, after the mean of each group is subtracted from both

In tunnels tokens of one sequence depend on each other, so whole sequences are held out, and
intervals are over sequences: N sequences, S steps, d inputs, c targets. Each prompt of a language
model is read by a fit to all other prompts. The sign of a component has no meaning. Groups are
confounds of an order, such as the number of pairs in a prompt, which determines its length. A sets
of states at once, N prompts each.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.linear import (
    Readout,
    correlation,
    fit,
    gram,
    held_out_errors,
    ranks,
    scores,
    shares,
)
from bayesattn.probes.measured import (
    RESAMPLES,
    Measured,
    require_samples,
    shuffled_columns,
    shuffled_inside,
)
from bayesattn.stats import percentiles, resampling_weights

HELD_OUT = 0.25
FEWEST_SEQUENCES = 16
PERMUTATIONS = 499
ORDER_RESAMPLES = 200
NO_SPREAD = 1e-9
FEWEST_PROMPTS = 4
"""Least number of prompts for an order."""


def split(sequences: int) -> tuple[slice, slice]:
    """Numbers of sequences for the fit and for the evaluation."""
    require_samples("sequences", sequences, FEWEST_SEQUENCES)
    at = round(sequences * (1 - HELD_OUT))
    return slice(0, at), slice(at, None)


def r_squared(readout: Readout, x: Tensor, y: Tensor) -> Measured:
    """R² over all targets together, with its interval over sequences."""
    error, spread = (squares.sum(1) for squares in readout.squares(x, y))
    return explained(error, spread)


def explained(error: Tensor, spread: Tensor) -> Measured:
    """R² of squared errors and deviations [N], with its interval over sequences."""
    draws = resampling_weights(len(error), RESAMPLES)
    interval = percentiles(1 - (draws @ error) / (draws @ spread).clamp(min=1e-30))
    return Measured(value=float(1 - error.sum() / spread.sum()), interval=interval)


def decode(x: Tensor, y: Tensor, *, permutations: int = 99) -> Measured:
    """Held-out R² of y [N, S, c] from x [N, S, d], beside targets of other sequences.

    The null fits targets that were exchanged between sequences at every step: it keeps the
    information of the step, which any code of the position has.
    """
    train, test = split(len(x))
    y = y.double()
    found = r_squared(fit(x[train], y[train]), x[test], y[test])
    places = torch.arange(len(y))[:, None].expand(y.shape[:2])
    orders = shuffled_columns(places, permutations, Generator().manual_seed(0))
    steps = torch.arange(y.shape[1])
    others = torch.stack([y[order, steps] for order in orders], dim=-2)  # [N, S, M, c]
    flat = others.flatten(2)
    error, spread = fit(x[train], flat[train]).squares(x[test], flat[test])
    shape = (-1, permutations, y.shape[2])
    ratio = error.view(shape).sum((0, 2)) / spread.view(shape).sum((0, 2)).clamp(min=1e-30)
    return found.against(1 - ratio)


def step_alone(y: Tensor) -> float:
    """Held-out R² of the mean at each step, of y [N, S, c]: the information of the position."""
    train, test = split(len(y))
    y = y.double()
    error = (y[test] - y[train].mean(0)).square().sum()
    return float(1 - error / (y[test] - y[train].mean((0, 1))).square().sum().clamp(min=1e-30))


def decodability(states: Tensor, bits: Tensor, others: Tensor, *, draws: int) -> Measured:
    """Held-out R² of bits [n] from states [n, d], beside bits in the orders `others` [M, n]."""
    bits = bits.double()
    targets = torch.cat([bits[:, None], bits[others].T], dim=1)
    errors = held_out_errors(states, targets).square()
    # of the mean, too, each row is left out
    spread = ((targets - targets.mean(0)) * len(bits) / (len(bits) - 1)).square()
    found = 1 - errors.sum(0) / spread.sum(0).clamp(min=1e-30)
    weights = resampling_weights(len(bits), draws)
    resampled = 1 - (weights @ errors[:, 0]) / (weights @ spread[:, 0]).clamp(min=1e-30)
    measured = Measured(value=float(found[0]), interval=percentiles(resampled))
    return measured.against(found[1:], "other prompts")


class Component(NamedTuple):
    """The first principal component."""

    scores: Tensor
    """[A, N]."""
    share: Tensor
    """[A] share of the variance."""


def first_component(states: Tensor, *, standardise: bool = False) -> Component:
    """The component of centred states [A, N, d]; `standardise` divides by deviations first."""
    ones = torch.ones(states.shape[:2], dtype=torch.float64)
    grams = gram(states.double(), ones, standardise=standardise)
    return Component(scores(grams, ones)[..., 0], shares(grams, ones).first)


def order(x: Tensor, bits: Tensor, groups: Tensor | None = None) -> Measured | None:
    """|Spearman| of x and bits [N] given `groups` [N], beside bits exchanged inside groups.

    None if one of the two is constant inside all groups.
    """
    groups = torch.zeros(len(x), dtype=torch.long) if groups is None else groups
    a, b = (within(ranks(z), groups) for z in (x, bits))
    if len(x) < FEWEST_PROMPTS or min(float(z.square().mean()) for z in (a, b)) < NO_SPREAD:
        return None
    value = float(correlation(a, b).abs())
    exchanged = b[shuffled_inside(groups, PERMUTATIONS, Generator().manual_seed(0))]
    null = correlation(a, exchanged).abs()
    resampled = correlation(a, b, resampling_weights(len(x), ORDER_RESAMPLES))
    measured = Measured(value=value, interval=percentiles(resampled.abs()))
    return measured.against(null, "exchanged")


def within(values: Tensor, groups: Tensor) -> Tensor:
    """[N, …] values minus the mean of their group [N]."""
    _, place, count = groups.unique(return_inverse=True, return_counts=True)
    total = torch.zeros(len(count), *values.shape[1:], dtype=values.dtype)
    total.index_add_(0, place, values)
    return values - (total / count.view(-1, *[1] * (values.dim() - 1)))[place]
