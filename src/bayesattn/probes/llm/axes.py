"""The axis along which states at the last token vary most, and what it follows.

    share           of the variance on the first component, and on the first two
    participation   (Σλ)² / Σλ²
                    both of standardised columns, the authors' choice, and of columns that are only
                    centred, where a few massive dimensions decide
    order           correlation of the first component (standardised) with the entropy of the next
                    token, of ranks and of numbers
    norm            the same with the length of the state: often all that a first component is
    unit length     share and order after every state is scaled to length 1

All for R resamplings at once: prompt i of n stands weights[r, i] times.
"""

import torch
from torch import Tensor

from bayesattn.linear import chunks, correlation, gram, scores, shares, spearman

SHARE, TWO, PARTICIPATION = "share of PC 1", "share of PC 1 and 2", "participation ratio"
SPEARMAN, PEARSON = "Spearman with entropy", "correlation with entropy"
NORM = "correlation with norm"
UNIT_SHARE, UNIT_SPEARMAN = "share of PC 1, unit length", "Spearman with entropy, unit length"
STANDARDISED = (SHARE, TWO, PARTICIPATION)
CENTRED = tuple(f"{name}, centred only" for name in STANDARDISED)
NAMES = (*STANDARDISED, *CENTRED, SPEARMAN, PEARSON, NORM, UNIT_SHARE, UNIT_SPEARMAN)


def quantities(
    rows: Tensor, bits: Tensor, weights: Tensor, reference: Tensor | None = None
) -> dict[str, Tensor]:
    """[R] each of `NAMES`, of states [n, d] and entropies [n] under weights [R, n].

    Args:
        rows: states.
        bits: entropies.
        weights: how often each prompt is drawn.
        reference: [2, n] what `first_scores` gives for the whole sample; resamples take its sign.
            If None, the sign is the one that lets the component rise with entropy.
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
    """Each of `NAMES`, of the sample as it is."""
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
    """Every row scaled to length 1."""
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-300)


def once(rows: Tensor) -> Tensor:
    """[1, n] weights that take every prompt once."""
    return torch.ones(1, len(rows), dtype=torch.float64)


def _signed(first: Tensor, bits: Tensor, weights: Tensor, like: Tensor | None) -> Tensor:
    """Scores [R, n], turned to rise with `like`, or with entropy."""
    sign = spearman(first, bits, weights) if like is None else correlation(first, like, weights)
    return first * torch.where(sign < 0, -1.0, 1.0)[:, None]
