"""How far a state moves from one step to the next: the geometry of a chain of thought.

    axis     linear read-out of the exact entropy from the last layer's values, from other sequences
    c_t      its reading at step t, as a share of log2 of the symbols
    hop_t    |c_t - c_{t-1}|;   path = Σ hop_t

Steps are the places of the scratch and the answer. Without a scratch the layers are the steps: c is
the entropy at the answer if norm and head follow directly after that layer. This is also measured
with a scratch, for comparison. Short hops alone prove nothing, because a network that computes
nothing has short hops, too: read them beside the error of the answer.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.evals.prediction import evaluating
from bayesattn.linear import spearman
from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.readout import fit, split
from bayesattn.tunnels import Hops


@dataclass(frozen=True, kw_only=True)
class Way:
    """Means over sequences."""

    largest: float
    """Longest hop, as a share of log2 of the symbols."""
    path: float


@dataclass(frozen=True, kw_only=True)
class ChainGeometry:
    """Results of sequences with the largest number of hops of a tunnel."""

    layers: Way
    """From layer to layer at the answer."""
    steps: Way | None
    """From step to step; None if there is no scratch."""
    order: float | None
    """Spearman's correlation of c_t with the exact entropy; None if the entropy is constant."""


def measure_chain(model: Predictor, tunnel: Hops, *, sequences: int = 1024) -> ChainGeometry:
    """The hops along the entropy axis in sequences with the largest number of hops.

    The scratch is the true one. `sequences` are over all numbers of hops together; a quarter is
    held out from the fit.
    """
    batch = tunnel.sample(sequences, Generator().manual_seed(EVAL_SEED))
    train, test = split(sequences)
    chosen = batch.metadata["hops"][test] == tunnel.hops
    if not bool(chosen.any()):
        raise ValueError(f"none of {sequences} sequences asks for {tunnel.hops} hops: take more")
    inputs = batch.inputs[test][chosen]
    layers = _way(lens(model, inputs, tunnel.positions - 1) / math.log2(tunnel.alphabet))
    if len(tunnel.written) == 0:
        return ChainGeometry(layers=layers, steps=None, order=None)
    name = f"layers.{anatomy(model).attending[-1]}.v"
    states = capture(model, batch.inputs, [name], tunnel.scored)[name].flatten(2)
    bits = entropy(batch.posterior)[..., None]
    readout = fit(states[train], bits[train])
    read = (states[test][chosen].double() @ readout.weight + readout.offset)[..., 0]
    true = bits[test][chosen][..., 0]
    flat = float(true.var(correction=0)) < 1e-9
    return ChainGeometry(
        layers=layers,
        steps=_way(read / math.log2(tunnel.alphabet)),
        order=None if flat else float(spearman(read.flatten(), true.flatten())),
    )


def lens(model: Predictor, inputs: Tensor, position: int) -> Tensor:
    """[N, layers + 1] entropy in bits that norm and head give after each layer at `position`."""
    with evaluating(model):
        stages = [stage[:, position] for stage in model.hidden(inputs)]
        read = [model.head(model.norm(stage)).double().softmax(-1) for stage in stages]
    return torch.stack([entropy(chances) for chances in read], dim=1)


def _way(coordinates: Tensor) -> Way:
    hops = coordinates.diff(dim=1).abs()
    return Way(largest=float(hops.amax(1).mean()), path=float(hops.sum(1).mean()))
