"""Does a model depend on the names of the hidden states?

A hidden Markov model whose state i is renamed σ(i), with T'[σi, σj] = T[i, j] and E'[σi, o] =
E[i, o], is the same model: the exact belief is the old one with permuted entries. A network that
filters must permute its prediction in the same way, with the same error. Its hidden states may
change. The size of this change, compared with hidden states of other sequences, shows how much the
network works with names and how much with beliefs.
"""

from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor

from bayesattn.bits import entropy, total_variation
from bayesattn.evals.fidelity import EVAL_SEED, quick_fidelity
from bayesattn.evals.prediction import Model, device_of, evaluating, predict
from bayesattn.linear import linear_cka
from bayesattn.tunnels import HMM, Batch


@dataclass(frozen=True)
class LayerChange:
    """Hidden states after one layer, before and after renaming; nulls pair other sequences."""

    layer: int
    """Number of the layer; 0 is the embedding."""
    distance: float
    """Mean ‖h' - h‖ over the root mean square deviation of h; √2 for unrelated states."""
    distance_null: float
    cka: float
    """Linear centred kernel alignment: 1 if h' is any rotation of h."""
    cka_null: float


@dataclass(frozen=True)
class Relabelling:
    """Effects of renaming, in bits except for total variation."""

    before: dict[str, float]
    """mae_tok, mae_pos and kl of the original sequences."""
    after: dict[str, float]
    """The same for the renamed sequences."""
    tv: float
    """Mean total variation between the new prediction and the permuted old one."""
    tv_null: float
    """The same with the old prediction of another sequence."""
    entropy: float
    """Mean |H_new - H_old| per token."""
    layers: list[LayerChange]
    """Changes by layer; empty for a model without accessible hidden states."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_relabelling(model: Model, tunnel: HMM, *, sequences: int = 512) -> Relabelling:
    """Rename the states of every sequence at random and compare."""
    if sequences < 2:
        raise ValueError(f"sequences must be 2 or more, not {sequences}")
    generator = torch.Generator().manual_seed(EVAL_SEED)
    batch = tunnel.sample(sequences, generator)
    names = random_names(sequences, tunnel.states, generator)
    renamed = tunnel.relabel(batch, names)
    device = device_of(model)
    batch, renamed = batch.to(device), renamed.to(device)
    with evaluating(model):
        old = predict(model, batch.inputs, batch.scored).cpu()
        new = predict(model, renamed.inputs, renamed.scored).cpu()
        layers = _layer_changes(model, batch, renamed)
    # moved[σi] = old[i]
    moved = old.gather(2, names.argsort(1)[:, None].expand_as(old))
    return Relabelling(
        before=quick_fidelity(model, batch),
        after=quick_fidelity(model, renamed),
        tv=float(total_variation(moved.exp(), new).mean()),
        tv_null=float(total_variation(moved.roll(1, 0).exp(), new).mean()),
        entropy=float((entropy(new.exp()) - entropy(old.exp())).abs().mean()),
        layers=layers,
    )


def random_names(sequences: int, states: int, generator: torch.Generator) -> Tensor:
    """[sequences, states] random permutations without the identity."""
    names = torch.rand(sequences, states, generator=generator).argsort(dim=1)
    same = (names == torch.arange(states)).all(dim=1, keepdim=True)
    return torch.where(same, names.roll(1, 1), names)


def relative_distance(first: Tensor, second: Tensor) -> float:
    """Root mean square of ‖x - y‖ over that of ‖x - mean x‖, rows of [n, D]."""
    spread = (first - first.mean(0)).double().square().sum(1).mean()
    return float(((first - second).double().square().sum(1).mean() / spread).sqrt())


def _layer_changes(model: Model, batch: Batch, renamed: Batch) -> list[LayerChange]:
    if not hasattr(model, "hidden"):
        return []
    shows = cast(Any, model)
    changes: list[LayerChange] = []
    pairs = zip(shows.hidden(batch.inputs), shows.hidden(renamed.inputs), strict=True)
    for layer, (old, new) in enumerate(pairs):
        states = (x[:, batch.scored] for x in (old, new, new.roll(1, 0)))
        before, after, null = (x.flatten(0, 1).cpu() for x in states)
        distances = (relative_distance(before, after), relative_distance(before, null))
        changes.append(
            LayerChange(layer, *distances, linear_cka(before, after), linear_cka(before, null))
        )
    return changes
