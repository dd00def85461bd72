"""Do states lie on a curve that is ordered by the entropy of the posterior?

Principal components of states at the scored positions, centred but not z-scored:

    share           of the variance on the first component
    participation   (Σλ)² / Σλ², how many components share it
    order           |correlation| of the first component with the entropy of the exact posterior
    given position  the same after the mean of every step is subtracted from both
    decodability    held-out R² of the entropy from all components

The step is a confound: where keys never return, the entropy is a function of the step, so any
code of the position is "ordered by entropy". There `given position` does not exist.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesattn.bits import entropy
from bayesattn.linear import centred, correlation, participation, principal_axes, spearman
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture, resolve
from bayesattn.probes.measured import (
    Measured,
    Untrained,
    measure_each,
    shuffled_columns,
    white_noise,
)
from bayesattn.probes.readout import decode, split, step_alone
from bayesattn.stats import percentiles, resampling_weights
from bayesattn.tunnels import Batch

PERMUTATIONS = 199
RESAMPLES = 200
KINDS = {"values": "v", "attention outputs": "head_outputs", "residual": "residual_after"}
NO_SPREAD = 1e-9
"""Entropies that differ by less than this, in squared bits, are the same."""


@dataclass(frozen=True, kw_only=True)
class Manifold:
    """States of one kind after one layer."""

    layer: int
    states: str
    """values, attention outputs or residual."""
    width: int
    share: Measured
    """Share of the first component, beside white noise and the untrained network."""
    participation: Measured
    order: Measured
    """Order, beside entropies of other sequences and the untrained network."""
    rank_order: float
    """Order of ranks (Spearman)."""
    given_position: Measured | None
    """Order given the step; None if the entropy is a function of the step."""
    decodability: Measured
    """R² of the entropy, beside the step alone, other sequences and the untrained network."""


class Components(NamedTuple):
    """Principal components of states [N, S, d]."""

    variances: Tensor
    """[d], falling."""
    scores: Tensor
    """[N, S, d]."""


def measure_values(
    model: nn.Module, batch: Batch, initial: Untrained = None, permutations: int = PERMUTATIONS
) -> list[Manifold]:
    """Every kind of state after every layer; models without attention have residuals only."""
    split(len(batch.inputs))
    bits = entropy(batch.posterior)

    def measure(place: tuple[int, str], states: Tensor, permutations: int) -> Manifold:
        layer, kind = place
        return manifold(states, bits, layer=layer, states=kind, permutations=permutations)

    before = None if initial is None else dict(states_of(initial, batch.inputs, batch.scored))
    trained = states_of(model, batch.inputs, batch.scored)
    return measure_each(measure, trained, before, permutations)


def states_of(
    model: nn.Module, inputs: Tensor, positions: Tensor
) -> Iterator[tuple[tuple[int, str], Tensor]]:
    """Layer and kind, and the states [N, P, d] with all heads side by side."""
    parts = anatomy(model)
    for layer in range(len(parts.layers)):
        kinds = {
            kind: f"layers.{layer}.{name}"
            for kind, name in KINDS.items()
            if name == "residual_after" or layer in parts.attending
        }
        captured = capture(model, inputs, resolve(parts, [*kinds.values()]), positions)
        for kind, name in kinds.items():
            yield (layer, kind), captured[name].flatten(2)


def manifold(
    x: Tensor,
    bits: Tensor,
    *,
    layer: int = 0,
    states: str = "states",
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Manifold:
    """The shape of states x [N, S, d] whose posteriors have the entropies `bits` [N, S]."""
    generator = Generator().manual_seed(seed)
    found, bits = components(x), bits.double()
    count, width = x.shape[0] * x.shape[1], x.shape[2]
    flat_share, flat_participation = white_noise(count, width)
    share = float(found.variances[0] / found.variances.sum())
    effective = float(participation(found.variances))
    shares, participations = _resampled(x)
    first = found.scores[..., 0]
    others = shuffled_columns(bits, permutations, generator)
    return Manifold(
        layer=layer,
        states=states,
        width=width,
        share=Measured(value=share, interval=percentiles(shares, share)).beside(
            white_noise=flat_share
        ),
        participation=Measured(
            value=effective, interval=percentiles(participations, effective)
        ).beside(white_noise=flat_participation),
        order=_correlated(first, bits, others),
        rank_order=float(spearman(first.flatten(), bits.flatten()).abs()),
        given_position=_given_position(first, bits, others),
        decodability=decode(x, bits[..., None], permutations=min(permutations, 99)).beside(
            step_alone=step_alone(bits[..., None])
        ),
    )


def components(x: Tensor) -> Components:
    """Principal components of all tokens together."""
    rows, _ = centred(x.flatten(0, 1))
    lengths, directions = principal_axes(rows)
    scores = (rows @ directions.T).unflatten(0, x.shape[:2])
    return Components(lengths.square() / len(rows), scores)


def _correlated(first: Tensor, bits: Tensor, others: Tensor) -> Measured:
    """|r| with its interval over sequences; the sign of a component means nothing."""
    value = float(correlation(first.flatten(), bits.flatten()).abs())
    null = correlation(first.flatten(), others.flatten(1)).abs()
    draws = resampling_weights(len(first), RESAMPLES)
    interval = percentiles(_weighted(first, bits, draws).abs())
    return Measured(value=value, interval=interval).against(null)


def order_given_step(place: Tensor, bits: Tensor) -> float | None:
    """|r| of two quantities [N, S] after the mean of every step is subtracted from both.

    None if the second is a function of the step.
    """
    place, within = (x.double() - x.double().mean(0) for x in (place, bits))
    if float(within.square().mean()) < NO_SPREAD:
        return None
    return float(correlation(place.flatten(), within.flatten()).abs())


def _given_position(first: Tensor, bits: Tensor, others: Tensor) -> Measured | None:
    if order_given_step(first, bits) is None:
        return None
    return _correlated(first - first.mean(0), bits - bits.mean(0), others - bits.mean(0))


def _weighted(x: Tensor, y: Tensor, draws: Tensor) -> Tensor:
    """[R] Pearson's r where sequence n stands draws[r, n] times."""
    sums = [draws @ z.sum(1) for z in (x, y, x * y, x * x, y * y)]
    count = draws.sum(1) * x.shape[1]
    mx, my, mxy, mxx, myy = (total / count for total in sums)
    spread = ((mxx - mx * mx) * (myy - my * my)).clamp(min=1e-300).sqrt()
    return (mxy - mx * my) / spread


def _resampled(x: Tensor) -> tuple[Tensor, Tensor]:
    """[R] first share and participation over resampled sequences."""
    rows = x.double() - x.double().mean((0, 1))
    squares = torch.einsum("nsi,nsj->nij", rows, rows).flatten(1)
    draws = resampling_weights(len(x), RESAMPLES)
    count = draws.sum(1, keepdim=True) * x.shape[1]
    mean = (draws @ rows.sum(1)) / count
    covariance = ((draws @ squares) / count).unflatten(1, (x.shape[2], x.shape[2]))
    covariance = covariance - mean[:, :, None] * mean[:, None, :]
    variances = torch.linalg.eigvalsh(covariance).clamp(min=0)
    return variances[:, -1] / variances.sum(1).clamp(min=1e-300), participation(variances)
