"""Do states have a dominant axis, and does predictive entropy order it?

What `axes.py` computes of values (the value projection, all key/value heads side by side), outputs
of heads or the residual stream, and how well the entropy can be read off them; each beside

    noise           Gaussian numbers, as many prompts and dimensions
    shuffled        every column in an order of its own: p of shares
    other prompts   entropies of other prompts of the same source: p of orders
    random init     the same network with fresh weights, on the same prompts

What principal components show where there is nothing to find: noise and shuffled columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator, Tensor

from bayesattn.linear import Shares, chunks, correlation, gram, shares, spearman
from bayesattn.probes.llm import axes
from bayesattn.probes.llm.ordering import shuffled_inside
from bayesattn.probes.measured import (
    Measured,
    chance,
    require_samples,
    shuffled_columns,
)
from bayesattn.probes.readout import decodability
from bayesattn.stats import percentiles, resampling_weights

DRAWS = 200
PERMUTATIONS = 199
FEWEST = 8
"""Fewer prompts than this have no geometry to speak of."""
KINDS = ("values", "outputs", "residual")
DECODABILITY = "held-out R² of entropy"
CONTROL = "random init"


@dataclass(frozen=True, kw_only=True)
class States:
    """States of one kind in one layer."""

    layer: int
    kind: str
    """values, outputs or residual."""
    width: int
    prompts: int
    measured: dict[str, Measured]
    """By name: those of `axes.NAMES`, and `DECODABILITY`."""
    plane: list[list[float]]
    """First two components, standardised, of each prompt."""
    control_plane: list[list[float]] | None
    """The same of the network with fresh weights."""

    def __getitem__(self, name: str) -> Measured:
        return self.measured[name]


def measure_states(
    states: Tensor,
    bits: Tensor,
    *,
    layer: int,
    kind: str,
    sources: Sequence[str] | None = None,
    control: tuple[Tensor, Tensor] | None = None,
    draws: int = DRAWS,
    permutations: int = PERMUTATIONS,
) -> States:
    """Everything about states [n, ...], after which the next token has the entropies `bits` [n].

    Args:
        states: one per prompt; heads are put side by side.
        bits: of the same model after the same prompts.
        layer: where they are from.
        kind: what they are.
        sources: what each prompt was cut out of; entropies are exchanged between prompts of one
            source only. Without it all are alike.
        control: states and entropies of the same network with fresh weights.
        draws: of the bootstrap over prompts.
        permutations: behind each p.
    """
    rows, bits = states.flatten(1).double(), bits.double()
    require_samples("prompts", len(rows), FEWEST)
    value = axes.point(rows, bits)
    reference = axes.first_scores(rows, bits)
    resampled = axes.quantities(rows, bits, resampling_weights(len(rows), draws), reference)
    others = exchanged(sources or [""] * len(rows), permutations)
    nulls, p = _nulls(rows, bits, value, others)
    measured = {
        name: Measured(
            value=value[name],
            interval=percentiles(resampled[name], value[name]),
            nulls=nulls[name],
            p=p[name],
        )
        for name in axes.NAMES
    }
    measured[DECODABILITY] = decodability(rows, bits, others, draws=draws)
    control_plane = None
    if control is not None:
        fresh_rows, fresh_bits = control[0].flatten(1).double(), control[1].double()
        fresh = axes.point(fresh_rows, fresh_bits)
        fresh[DECODABILITY] = decodability(fresh_rows, fresh_bits, others[:1], draws=2).value
        measured = {name: x.beside(random_init=fresh[name]) for name, x in measured.items()}
        control_plane = axes.plane(fresh_rows, fresh_bits)
    return States(
        layer=layer,
        kind=kind,
        width=rows.shape[1],
        prompts=len(rows),
        measured=measured,
        plane=axes.plane(rows, bits),
        control_plane=control_plane,
    )


def exchanged(sources: Sequence[str], count: int) -> Tensor:
    """[count, n] orders in which every prompt goes to the place of one of its own source."""
    names = {name: number for number, name in enumerate(dict.fromkeys(sources))}
    groups = torch.tensor([names[name] for name in sources])
    return shuffled_inside(groups, count, Generator().manual_seed(1))


def _nulls(
    rows: Tensor, bits: Tensor, value: Mapping[str, float], others: Tensor
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """The nulls of each quantity, and the chance of as much where there is nothing."""
    generator, permutations = Generator().manual_seed(0), len(others)
    nulls: dict[str, dict[str, float]] = {}
    p: dict[str, float] = {}
    spectra = {
        axes.STANDARDISED: (rows, True),
        axes.CENTRED: (rows, False),
        (axes.UNIT_SHARE,): (axes.unit_length(rows), True),
    }
    for names, (x, standardise) in spectra.items():
        mixed = permuted_shares(x, permutations, generator, standardise=standardise)
        white = noise(*x.shape, standardise)
        for name, null, flat in zip(names, mixed, white, strict=False):
            nulls[name] = {"noise": flat, "shuffled": float(null.mean())}
            # few components are what is looked for, so here less is more
            sign = -1 if name.startswith(axes.PARTICIPATION) else 1
            p[name] = chance(sign * value[name], sign * null)
    first, unit = axes.first_scores(rows, bits)
    orders = {
        axes.SPEARMAN: spearman(first, bits[others]),
        axes.PEARSON: correlation(first, bits[others]),
        axes.NORM: correlation(first, rows.norm(dim=1)[others]),
        axes.UNIT_SPEARMAN: spearman(unit, bits[others]),
    }
    for name, null in orders.items():
        # the sign of a component is free, so null and sample both take the better one
        nulls[name] = {"other prompts": float(null.abs().mean())}
        p[name] = chance(abs(value[name]), null.abs())
    return nulls, p


NOISES = 100


def permuted_shares(rows: Tensor, count: int, generator: Generator, *, standardise: bool) -> Shares:
    """[count] shares after each column of rows [n, d] is put in an order of its own."""
    ones = torch.ones(count, len(rows), dtype=rows.dtype)
    found: list[Shares] = []
    for weights in chunks(ones, rows.shape[1]):
        mixed = shuffled_columns(rows, len(weights), generator)
        found.append(shares(gram(mixed, weights, standardise=standardise), weights))
    return _joined(found)


@cache
def noise(count: int, width: int, standardise: bool = True) -> tuple[float, float, float]:
    """Mean first share, share of two and participation of Gaussian noise [count, width]."""
    generator = Generator().manual_seed(0)
    found: list[Shares] = []
    for weights in chunks(torch.ones(NOISES, count, dtype=torch.float64), width):
        drawn = torch.randn(len(weights), count, width, generator=generator, dtype=torch.float64)
        found.append(shares(gram(drawn, weights, standardise=standardise), weights))
    first, two, effective = (float(x.mean()) for x in _joined(found))
    return first, two, effective


def _joined(found: list[Shares]) -> Shares:
    return Shares(*(torch.cat(parts) for parts in zip(*found, strict=True)))
