"""Does a number order states? Rank correlations with their first component, given groups.

    order = |r| of the ranks of two quantities, after the mean of each group is taken off both

The sign of a component means nothing. Groups are what an order must not merely follow, such as the
number of pairs in a prompt, which decides its length. A sets of states at once, N prompts each.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.linear import correlation, gram, held_out_errors, ranks, scores, shares, spearman
from bayesattn.probes.measured import Measured
from bayesattn.stats import percentiles, resampling_weights

PERMUTATIONS = 499
RESAMPLES = 200
NO_SPREAD = 1e-9
FEWEST = 4
"""With fewer prompts there is no order to speak of."""


class Component(NamedTuple):
    """The first principal component."""

    scores: Tensor
    """[A, N]."""
    share: Tensor
    """[A] of the variance."""


def first_component(states: Tensor, *, standardise: bool = False) -> Component:
    """Of states [A, N, d], centred, and each column divided by its deviation if `standardise`."""
    ones = torch.ones(states.shape[:2], dtype=torch.float64)
    grams = gram(states.double(), ones, standardise=standardise)
    return Component(scores(grams, ones)[..., 0], shares(grams, ones).first)


def order_of(states: Tensor, bits: Tensor) -> Tensor:
    """[A] |Spearman| of the first component of states [A, N, d] and bits [A, N]."""
    return spearman(first_component(states).scores, bits).abs()


def readable(states: Tensor, bits: Tensor) -> Tensor:
    """[A] held-out R² of bits [A, N] from all of states [A, N, d]."""
    count = bits.shape[1]
    spread = ((bits - bits.mean(1, keepdim=True)) * count / (count - 1)).square().sum(1)
    errors = torch.stack(
        [held_out_errors(x, y[:, None]).square().sum() for x, y in zip(states, bits, strict=True)]
    )
    return 1 - errors / spread.clamp(min=1e-30)


def order(
    x: Tensor,
    bits: Tensor,
    groups: Tensor | None = None,
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Measured | None:
    """|Spearman| of x and bits [N] given `groups` [N], beside bits exchanged inside groups.

    None where one of the two does not vary inside any group.
    """
    groups = torch.zeros(len(x), dtype=torch.long) if groups is None else groups
    a, b = (within(ranks(z), groups) for z in (x, bits))
    if len(x) < FEWEST or min(float(z.square().mean()) for z in (a, b)) < NO_SPREAD:
        return None
    value = float(correlation(a, b).abs())
    exchanged = b[shuffled_inside(groups, permutations, Generator().manual_seed(seed))]
    null = correlation(a, exchanged).abs()
    resampled = correlation(a, b, resampling_weights(len(x), RESAMPLES))
    measured = Measured(value=value, interval=percentiles(resampled.abs()))
    return measured.against(null, "exchanged")


def within(values: Tensor, groups: Tensor) -> Tensor:
    """[N] values minus the mean of their group."""
    _, place, count = groups.unique(return_inverse=True, return_counts=True)
    total = torch.zeros(len(count), dtype=values.dtype).index_add_(0, place, values)
    return values - (total / count)[place]


def shuffled_inside(groups: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, N] orders of N entries in which each goes to one of its own group."""
    _, place = groups.unique(return_inverse=True)
    mixed = (place + torch.rand(count, len(groups), generator=generator)).argsort(dim=1)
    # both sorted by group: the n-th of the one becomes the n-th of the other
    places = place.argsort(stable=True).expand(count, -1)
    return torch.zeros_like(mixed).scatter_(1, places, mixed)
