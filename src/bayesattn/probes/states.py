"""Do states have a dominant axis, and is it ordered by predictive entropy?

Measurements of values (the value projection, all key/value heads side by side), outputs of heads or
the residual stream at the last token:

    share           of the variance on the first component, and on the first two
    participation   (Σλ)² / Σλ²
                    both of standardised columns, the authors' choice, and of columns that are only
                    centred, where a few massive dimensions decide
    order           correlation of the first component (standardised) with the entropy of the next
                    token, of ranks and of numbers
    norm            correlation with the length of the state: a first component is often only this
    unit length     share and order after every state is scaled to length 1
    decodability    held-out R² of the entropy from all components

each beside

    noise           Gaussian numbers, as many prompts and dimensions
    shuffled        every column in its own random order: p of shares
    other prompts   entropies of other prompts of the same source: p of orders
    random init     the same network with fresh weights, on the same prompts
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Generator, Tensor

from bayesattn.linear import Shares, chunks, correlation, gram, scores, shares, spearman
from bayesattn.probes.measured import (
    Measured,
    chance,
    require_samples,
    shuffled_columns,
    shuffled_inside,
)
from bayesattn.probes.readout import decodability
from bayesattn.stats import percentiles, resampling_weights

DRAWS = 200
PERMUTATIONS = 199
FEWEST = 8
"""Least number of prompts."""
KINDS = ("values", "outputs", "residual")
DECODABILITY = "held-out R² of entropy"
CONTROL = "random init"
NOISES = 100
SHARE, TWO, PARTICIPATION = "share of PC 1", "share of PC 1 and 2", "participation ratio"
SPEARMAN, PEARSON = "Spearman with entropy", "correlation with entropy"
NORM = "correlation with norm"
UNIT_SHARE, UNIT_SPEARMAN = "share of PC 1, unit length", "Spearman with entropy, unit length"
STANDARDISED = (SHARE, TWO, PARTICIPATION)
CENTRED = tuple(f"{name}, centred only" for name in STANDARDISED)
NAMES = (*STANDARDISED, *CENTRED, SPEARMAN, PEARSON, NORM, UNIT_SHARE, UNIT_SPEARMAN)


@dataclass(frozen=True, kw_only=True)
class States:
    """States of one kind in one layer."""

    layer: int
    kind: str
    """values, outputs or residual."""
    width: int
    prompts: int
    measured: dict[str, Measured]
    """Measurements by name: those of `NAMES`, and `DECODABILITY`."""
    plane: list[list[float]]
    """First two components, standardised, of each prompt."""
    control_plane: list[list[float]] | None
    """The same for the network with fresh weights."""

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
    """All measurements of states [n, ...]; `bits` [n] are the entropies of the next token.

    Entropies are exchanged between prompts of one source only. The control has states and entropies
    of the same network with fresh weights.
    """
    rows, bits = states.flatten(1).double(), bits.double()
    require_samples("prompts", len(rows), FEWEST)
    value = point(rows, bits)
    reference = first_scores(rows, bits)
    resampled = quantities(rows, bits, resampling_weights(len(rows), draws), reference)
    others = exchanged(sources or [""] * len(rows), permutations)
    measured = {
        name: Measured(value=value[name], interval=percentiles(resampled[name], value[name]))
        for name in NAMES
    }
    measured |= dict(_beside_nulls(measured, rows, bits, others))
    measured[DECODABILITY] = decodability(rows, bits, others, draws=draws)
    control_plane = None
    if control is not None:
        fresh_rows, fresh_bits = control[0].flatten(1).double(), control[1].double()
        fresh = point(fresh_rows, fresh_bits)
        fresh[DECODABILITY] = decodability(fresh_rows, fresh_bits, others[:1], draws=2).value
        measured = {name: x.beside(random_init=fresh[name]) for name, x in measured.items()}
        control_plane = plane(fresh_rows, fresh_bits)
    return States(
        layer=layer,
        kind=kind,
        width=rows.shape[1],
        prompts=len(rows),
        measured=measured,
        plane=plane(rows, bits),
        control_plane=control_plane,
    )


def exchanged(sources: Sequence[str], count: int) -> Tensor:
    """[count, n] permutations inside sources."""
    names = {name: number for number, name in enumerate(dict.fromkeys(sources))}
    groups = torch.tensor([names[name] for name in sources])
    return shuffled_inside(groups, count, Generator().manual_seed(1))


def _beside_nulls(
    measured: Mapping[str, Measured], rows: Tensor, bits: Tensor, others: Tensor
) -> Iterator[tuple[str, Measured]]:
    """Each quantity beside its nulls, with p."""
    generator = Generator().manual_seed(0)
    spectra = {
        STANDARDISED: (rows, True),
        CENTRED: (rows, False),
        (UNIT_SHARE,): (unit_length(rows), True),
    }
    for names, (x, standardise) in spectra.items():
        mixed = permuted_shares(x, len(others), generator, standardise=standardise)
        white = noise(*x.shape, standardise)
        for name, null, flat in zip(names, mixed, white, strict=False):
            # few components are what is looked for
            few = name.startswith(PARTICIPATION)
            yield name, measured[name].beside(noise=flat).against(null, "shuffled", less=few)
    first, unit = first_scores(rows, bits)
    orders = {
        SPEARMAN: spearman(first, bits[others]),
        PEARSON: correlation(first, bits[others]),
        NORM: correlation(first, rows.norm(dim=1)[others]),
        UNIT_SPEARMAN: spearman(unit, bits[others]),
    }
    for name, null in orders.items():
        # the sign of a component is free, so null and sample both take the better sign
        p = chance(abs(measured[name].value), null.abs())
        found = measured[name].beside(other_prompts=float(null.abs().mean()))
        yield name, replace(found, p=p)


def quantities(
    rows: Tensor, bits: Tensor, weights: Tensor, reference: Tensor | None = None
) -> dict[str, Tensor]:
    """[R] each of `NAMES`, of states [n, d] and entropies [n] under weights [R, n].

    Resamples take the sign of the `reference` [2, n], what `first_scores` gives for the whole
    sample. If None, the sign is the one that lets the component rise with entropy.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    norms, unit = rows.norm(dim=1), unit_length(rows)
    for part in chunks(weights, rows.shape[1]):
        centred = gram(rows, part, standardise=False)
        scaled = gram(rows, part, standardise=True)
        at_unit = gram(unit, part, standardise=True)
        for names, grams in ((STANDARDISED, scaled), (CENTRED, centred)):
            for name, share in zip(names, shares(grams, part), strict=True):
                found[name].append(share)
        found[UNIT_SHARE].append(shares(at_unit, part).first)
        own, own_unit = (None, None) if reference is None else reference
        first = _signed(scores(scaled, part)[..., 0], bits, part, own)
        found[SPEARMAN].append(spearman(first, bits, part))
        found[PEARSON].append(correlation(first, bits, part))
        found[NORM].append(correlation(first, norms, part).abs())
        first = _signed(scores(at_unit, part)[..., 0], bits, part, own_unit)
        found[UNIT_SPEARMAN].append(spearman(first, bits, part))
    return {name: torch.cat(parts) for name, parts in found.items()}


def point(rows: Tensor, bits: Tensor) -> dict[str, float]:
    """Each of `NAMES`, for the sample without resampling."""
    return {name: float(x[0]) for name, x in quantities(rows, bits, once(rows)).items()}


def first_scores(rows: Tensor, bits: Tensor) -> Tensor:
    """[2, n] first component of states, and of states at unit length, rising with entropy."""
    ones = once(rows)
    found = [
        _signed(scores(gram(x, ones, standardise=True), ones)[..., 0], bits, ones, None)
        for x in (rows, unit_length(rows))
    ]
    return torch.cat(found)


def plane(rows: Tensor, bits: Tensor) -> list[list[float]]:
    """First two components of each state, the first rising with entropy."""
    ones = once(rows)
    found = scores(gram(rows, ones, standardise=True), ones, components=2)
    first = _signed(found[..., 0], bits, ones, None)
    return torch.stack([first[0], found[0, :, 1]], dim=1).tolist()


def unit_length(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-300)


def once(rows: Tensor) -> Tensor:
    """[1, n] weights that take every prompt once."""
    return torch.ones(1, len(rows), dtype=torch.float64)


def _signed(first: Tensor, bits: Tensor, weights: Tensor, like: Tensor | None) -> Tensor:
    """Scores [R, n], turned to rise with `like`, or with entropy."""
    sign = spearman(first, bits, weights) if like is None else correlation(first, like, weights)
    return first * torch.where(sign < 0, -1.0, 1.0)[:, None]


def permuted_shares(rows: Tensor, count: int, generator: Generator, *, standardise: bool) -> Shares:
    """[count] shares after each column of rows [n, d] is shuffled separately."""
    return _shares(
        lambda number: shuffled_columns(rows, number, generator), count, rows.shape, standardise
    )


@cache
def noise(count: int, width: int, standardise: bool = True) -> tuple[float, float, float]:
    """Mean first share, share of two and participation of Gaussian noise [count, width]."""
    options = {"generator": Generator().manual_seed(0), "dtype": torch.float64}
    found = _shares(
        lambda number: torch.randn(number, count, width, **options),
        NOISES,
        (count, width),
        standardise,
    )
    first, two, effective = (float(x.mean()) for x in found)
    return first, two, effective


def _shares(
    sample: Callable[[int], Tensor], count: int, shape: Sequence[int], standardise: bool
) -> Shares:
    """[count] shares of random matrices that `sample` makes."""
    found: list[Shares] = []
    for weights in chunks(torch.ones(count, shape[0], dtype=torch.float64), shape[1]):
        grams = gram(sample(len(weights)), weights, standardise=standardise)
        found.append(shares(grams, weights))
    return Shares(*(torch.cat(parts) for parts in zip(*found, strict=True)))
