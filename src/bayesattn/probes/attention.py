"""Does attention sharpen with depth? Entropy of the last query's row, layer by layer.

    entropy        H = -Σ_j α_j log2 α_j of each head, then the mean over heads, bits
    evenness       H / log2 n over the n visible keys, so that a window counts: 1 if even, 0 if all
                   on one
    without sink   evenness over the keys after the first, which takes what has nowhere else to go
    reduction      1 - H(last layer) / H(first layer), the authors' number
    depth          Spearman correlation of the layer's number with its evenness
    falling        share of steps from layer to layer at which evenness falls

Where only one key is visible there is nothing to spread over, and the prompt is left out.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.bits import LN2
from bayesattn.probes.llm.resampled import weighted_spearman
from bayesattn.probes.measured import Measured, NotApplicableError, chance, plain
from bayesattn.stats import percentiles, resampling_weights

KINDS = ("entropy", "evenness", "without_sink", "sink")
PERMUTATIONS = 199


class Rows(NamedTuple):
    """Attention rows of the last query of every prompt, reduced to one number per layer."""

    entropy: Tensor
    """[N, L] bits."""
    evenness: Tensor
    """[N, L] NaN where one key is visible."""
    without_sink: Tensor
    """[N, L] NaN where fewer than two keys are left."""
    sink: Tensor
    """[N, L] share of the first key; 0 where a window hides it."""


@dataclass(frozen=True, kw_only=True)
class AttentionLayer:
    """How one layer attends."""

    layer: int
    entropy: Measured
    evenness: Measured
    without_sink: Measured
    sink: Measured


@dataclass(frozen=True, kw_only=True)
class Focusing:
    """How attention changes from layer to layer."""

    layers: list[AttentionLayer]
    reduction: Measured
    """Of entropy: the authors' number."""
    reduction_evenness: Measured
    reduction_without_sink: Measured
    depth: Measured
    falling: Measured

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return plain(self)


def summarise(attention: list[Tensor], visible: list[Tensor], lengths: Tensor) -> Rows:
    """From rows [N, H, Tmax] and visible keys [N] of every layer."""
    layers: list[tuple[Tensor, ...]] = []
    for rows, seen in zip(attention, visible, strict=True):
        rows = rows.double()
        rows = rows / rows.sum(-1, keepdim=True).clamp(min=1e-300)
        seen_first = seen >= lengths
        rest = rows.clone()
        rest[seen_first, :, 0] = 0.0
        rest = rest / rest.sum(-1, keepdim=True).clamp(min=1e-300)
        others = torch.where(seen_first, seen - 1, seen)
        entropy = _entropy(rows)
        layers.append(
            (
                entropy,
                entropy / _most(seen),
                _entropy(rest) / _most(others),
                torch.where(seen_first, rows[:, :, 0].mean(1), 0.0),
            )
        )
    return Rows(*(torch.stack(parts, dim=1) for parts in zip(*layers, strict=True)))


def measure_depth(
    rows: Rows, control: Rows | None = None, *, draws: int, permutations: int = PERMUTATIONS
) -> Focusing:
    """Curves over the layers and what becomes of them, with intervals over prompts."""
    weights = resampling_weights(len(rows.entropy), draws)
    ones = torch.ones(1, len(rows.entropy), dtype=torch.float64)
    curves = {kind: _curve(getattr(rows, kind), ones) for kind in KINDS}
    drawn = {kind: _curve(getattr(rows, kind), weights) for kind in KINDS}
    fresh = {kind: _curve(getattr(control, kind), ones) for kind in KINDS} if control else None
    even = {"entropy": None, "evenness": 1.0, "without_sink": 1.0, "sink": None}

    def at(kind: str, layer: int) -> Measured:
        nulls = {} if even[kind] is None else {"even attention": even[kind]}
        found = Measured(
            value=float(curves[kind][0, layer]),
            interval=percentiles(drawn[kind][:, layer]),
            nulls={name: value for name, value in nulls.items() if value is not None},
        )
        return found if fresh is None else found.beside(random_init=float(fresh[kind][0, layer]))

    def overall(what: Any, kind: str, **nulls: float) -> Measured:
        found = Measured(
            value=float(what(curves[kind])[0]), interval=percentiles(what(drawn[kind]))
        ).beside(**nulls)
        return found if fresh is None else found.beside(random_init=float(what(fresh[kind])[0]))

    depth = overall(_depth, "evenness", other_orders=0.0)
    mixed = curves["evenness"].expand(permutations, -1)
    order = torch.rand(mixed.shape, generator=Generator().manual_seed(0)).argsort(1)
    # a fall is what is looked for, so here less is more
    p = chance(-depth.value, -_depth(mixed.gather(1, order)))
    return Focusing(
        layers=[
            AttentionLayer(layer=layer, **{kind: at(kind, layer) for kind in KINDS})
            for layer in range(rows.entropy.shape[1])
        ],
        reduction=overall(_reduction, "entropy", no_change=0.0),
        reduction_evenness=overall(_reduction, "evenness", no_change=0.0),
        reduction_without_sink=overall(_reduction, "without_sink", no_change=0.0),
        depth=Measured(value=depth.value, interval=depth.interval, nulls=depth.nulls, p=p),
        falling=overall(_falling, "evenness", other_orders=0.5),
    )


def _entropy(rows: Tensor) -> Tensor:
    """[N] mean over heads of the entropy of rows [N, H, T], bits."""
    return (-torch.xlogy(rows, rows).sum(-1) / LN2).mean(1)


def _most(count: Tensor) -> Tensor:
    """The largest entropy over `count` keys; NaN where there is one key or none."""
    return torch.where(count > 1, count.double().log2(), torch.nan)


def _curve(values: Tensor, weights: Tensor) -> Tensor:
    """[R, L] mean over prompts of [N, L], NaN left out, each prompt weights [R, N] times."""
    known = ~values.isnan()
    if not bool(known.any(0).all()):
        raise NotApplicableError("the prompts are too short: no query sees two keys or more")
    total, count = weights @ values.nan_to_num(), weights @ known.double()
    # a resample may miss every prompt that is long enough; the sample's mean stands in
    mean = values.nan_to_num().sum(0) / known.sum(0)
    return torch.where(count > 0, total / count.clamp(min=1), mean)


def _reduction(curves: Tensor) -> Tensor:
    return 1 - curves[:, -1] / curves[:, 0].clamp(min=1e-12)


def _depth(curves: Tensor) -> Tensor:
    depth = torch.arange(curves.shape[1]).double()
    return weighted_spearman(depth, curves, torch.ones_like(curves))


def _falling(curves: Tensor) -> Tensor:
    return (curves.diff(dim=1) < 0).double().mean(1)
