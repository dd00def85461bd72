"""Do hidden states cluster by belief, and is the belief a linear image of them?

    silhouette   mean of (b - a) / max(a, b): a the mean distance to states of the same most
                 probable outcome, b that to the nearest other outcome's, in the first ten
                 principal components; 1 if clusters are far apart, 0 if there are none
    simplex      held-out R² of the exact posterior, a point of the simplex, from the states
    entropy      held-out R² of its entropy

after every layer, at the scored positions. A model that predicts well through a linear head must
separate outcomes linearly in its last layer, so clusters there follow from good predictions.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from bayesattn.bits import entropy
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.measured import (
    Measured,
    NotApplicableError,
    Untrained,
    mean_over_sequences,
    measure_each,
    shuffled_columns,
)
from bayesattn.probes.readout import decode, split, step_alone
from bayesattn.probes.values import components
from bayesattn.tunnels import Batch

TIED = 1e-9
DIRECTIONS = 10
MOST_TOKENS = 1500
"""Silhouettes compare all pairs of tokens."""
PERMUTATIONS = 99


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """States after one layer; layer -1 is the embedding."""

    layer: int
    outcomes: int
    """Number of distinct most probable outcomes."""
    silhouette: Measured
    """Silhouette, beside outcomes of other sequences and the untrained network."""
    simplex: Measured
    """R² of the posterior, beside other sequences' posteriors and the untrained network."""
    entropy: Measured
    """R² of the entropy, beside the step alone, other sequences and the untrained network."""


def measure_clusters(
    model: nn.Module, batch: Batch, initial: Untrained = None, permutations: int = PERMUTATIONS
) -> list[Clusters]:
    """Clusters before the first layer and after every layer, for any kind of layer."""
    split(len(batch.inputs))
    labels = modes(batch.posterior)
    if bool((labels < 0).any(1).all()):
        raise NotApplicableError(
            "the posterior of this tunnel has ties, so there are no outcomes to cluster by"
        )
    names = ["embedding"]
    names += [f"layers.{at}.residual_after" for at in range(len(anatomy(model).layers))]

    def measure(name: str, states: Tensor, permutations: int) -> Clusters:
        layer = names.index(name) - 1
        return clusters(states, batch.posterior, layer=layer, permutations=permutations)

    def states_of(network: nn.Module) -> dict[str, Tensor]:
        return capture(network, batch.inputs, names, batch.scored).tensors

    before = None if initial is None else states_of(initial)
    return measure_each(measure, states_of(model).items(), before, permutations)


def clusters(
    x: Tensor, posterior: Tensor, *, layer: int = 0, permutations: int = PERMUTATIONS, seed: int = 0
) -> Clusters:
    """Clusters of states x [N, S, d] by posterior [N, S, C]."""
    labels = modes(posterior)
    bits = entropy(posterior)[..., None]
    return Clusters(
        layer=layer,
        outcomes=int(labels[labels >= 0].unique().numel()),
        silhouette=_silhouette(x, labels, permutations, seed),
        simplex=decode(x, posterior, permutations=permutations).beside(
            step_alone=step_alone(posterior)
        ),
        entropy=decode(x, bits, permutations=permutations).beside(step_alone=step_alone(bits)),
    )


def modes(posterior: Tensor) -> Tensor:
    """[N, S] the most probable outcome, -1 where two are equally probable."""
    top = posterior.topk(2, dim=-1)
    return torch.where(top.values[..., 0] - top.values[..., 1] > TIED, top.indices[..., 0], -1)


def silhouettes(distance: Tensor, labels: Tensor) -> Tensor:
    """[n] silhouette of each of n points with distances [n, n]; 0 for one alone with its label.

    Points with label -1 count for nothing and get 0.
    """
    known = labels >= 0
    if not bool(known.all()):
        each = torch.zeros(len(labels), dtype=distance.dtype)
        each[known] = silhouettes(distance[known][:, known], labels[known])
        return each
    _, own = labels.unique(return_inverse=True)
    members = nn.functional.one_hot(own).to(distance.dtype)
    count = members.sum(0)
    total = distance @ members
    inside = total.gather(1, own[:, None])[:, 0] / (count[own] - 1).clamp(min=1)
    outside = (total / count).scatter(1, own[:, None], float("inf")).amin(1)
    value = (outside - inside) / torch.maximum(outside, inside).clamp(min=1e-300)
    return torch.where(count[own] > 1, value, 0.0)


def _silhouette(x: Tensor, labels: Tensor, permutations: int, seed: int) -> Measured:
    """As many whole sequences as the limit on pairs of tokens allows."""
    keep = max(1, MOST_TOKENS // x.shape[1])
    labels = labels[:keep]
    if labels[labels >= 0].unique().numel() < 2:
        raise NotApplicableError("all posteriors have the same most probable outcome")
    rows = components(x).scores[:keep, :, :DIRECTIONS].flatten(0, 1)
    distance = torch.cdist(rows, rows)
    each = silhouettes(distance, labels.flatten()).view_as(labels)
    known = labels >= 0
    generator = Generator().manual_seed(seed)
    null = torch.stack(
        [
            silhouettes(distance, other.flatten()).sum() / known.sum()
            for other in shuffled_columns(labels, permutations, generator)
        ]
    )
    return mean_over_sequences(each, known).against(null)
