"""Does attention sharpen with depth? Entropy of the last query's row, layer by layer.

    entropy        H = -Σ_j α_j log2 α_j of each head, then the mean over heads, bits
    evenness       H / log2 n over the n visible keys, so that a window counts: 1 if even, 0 if all
                   on one
    without sink   evenness over the keys after the first, which is often a sink
    reduction      1 - H(last layer) / H(first layer), the authors' number
    depth          Spearman correlation of the layer's number with its evenness
    falling        share of steps from layer to layer at which evenness falls

Prompts with only one visible key are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from bayesattn.bits import LN2
from bayesattn.linear import spearman
from bayesattn.probes.measured import Measured, NotApplicableError, chance, shuffled_columns
from bayesattn.stats import percentiles, resampling_weights

ENTROPY = "entropy, bits"
EVENNESS = "entropy / log visible"
WITHOUT_SINK = "entropy / log visible, without the first key"
SINK = "mass on the first key"
EVEN = {EVENNESS: 1.0, WITHOUT_SINK: 1.0}
"""Values of even attention."""
REDUCTION = "reduction of entropy"
REDUCTION_EVENNESS = "reduction of entropy / log visible"
REDUCTION_WITHOUT_SINK = "reduction without the first key"
DEPTH = "Spearman with depth"
FALLING = "share of falling steps"
PERMUTATIONS = 199

Rows = dict[str, Tensor]
"""[N, L] by name: rows of the last query of N prompts, one number for each of L layers.

NaN where one key, or without the first none or one, is visible.
"""


@dataclass(frozen=True, kw_only=True)
class Depth:
    """Change of attention from layer to layer."""

    layers: list[dict[str, Measured]]
    """Entropy, both evennesses and the mass on the first key, by name."""
    overall: dict[str, Measured]
    """Reductions, order and falls, by name."""

    def __getitem__(self, name: str) -> Measured:
        return self.overall[name]


def row_entropy(rows: Tensor) -> Tensor:
    """-Σ_j α_j ln α_j of attention rows [..., T], nats."""
    return -torch.xlogy(rows, rows).sum(-1)


def summarise(attention: list[Tensor], visible: list[Tensor], lengths: Tensor) -> Rows:
    """From rows [N, H, Tmax] and visible keys [N] of every layer."""
    layers: list[Rows] = []
    for rows, seen in zip(attention, visible, strict=True):
        rows = rows.double()
        rows = rows / rows.sum(-1, keepdim=True).clamp(min=1e-300)
        seen_first = seen >= lengths
        rest = rows.clone()
        rest[seen_first, :, 0] = 0.0
        rest = rest / rest.sum(-1, keepdim=True).clamp(min=1e-300)
        others = torch.where(seen_first, seen - 1, seen)
        entropy, rest_entropy = ((row_entropy(x) / LN2).mean(1) for x in (rows, rest))
        layers.append(
            {
                ENTROPY: entropy,
                EVENNESS: entropy / _most(seen),
                WITHOUT_SINK: rest_entropy / _most(others),
                SINK: torch.where(seen_first, rows[:, :, 0].mean(1), 0.0),
            }
        )
    return {name: torch.stack([layer[name] for layer in layers], dim=1) for name in layers[0]}


def measure_depth(rows: Rows, control: Rows | None = None, *, draws: int) -> Depth:
    """Curves over the layers and their summaries, with intervals over prompts."""
    prompts, layers = rows[ENTROPY].shape
    weights = resampling_weights(prompts, draws)
    ones = torch.ones(1, prompts, dtype=torch.float64)
    curves, fresh = (
        {name: _curve(x, ones) for name, x in (y or {}).items()} for y in (rows, control)
    )
    drawn = {name: _curve(x, weights) for name, x in rows.items()}

    def measured(what: Callable[[Tensor], Tensor], name: str, **nulls: float) -> Measured:
        found = Measured(
            value=float(what(curves[name])[0]), interval=percentiles(what(drawn[name]))
        ).beside(**nulls)
        return found.beside(random_init=float(what(fresh[name])[0])) if fresh else found

    def at(layer: int, name: str) -> Measured:
        even = {"even_attention": EVEN[name]} if name in EVEN else {}
        return measured(lambda curve: curve[:, layer], name, **even)

    depth = measured(_depth, EVENNESS, other_orders=0.0)
    mixed = shuffled_columns(curves[EVENNESS].T, PERMUTATIONS, Generator().manual_seed(0))[..., 0]
    # a fall is what is looked for, so here less is more
    p = chance(-depth.value, -_depth(mixed))
    return Depth(
        layers=[{name: at(layer, name) for name in rows} for layer in range(layers)],
        overall={
            REDUCTION: measured(_reduction, ENTROPY, no_change=0.0),
            REDUCTION_EVENNESS: measured(_reduction, EVENNESS, no_change=0.0),
            REDUCTION_WITHOUT_SINK: measured(_reduction, WITHOUT_SINK, no_change=0.0),
            DEPTH: replace(depth, p=p),
            FALLING: measured(_falling, EVENNESS, other_orders=0.5),
        },
    )


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
    return spearman(depth, curves)


def _falling(curves: Tensor) -> Tensor:
    return (curves.diff(dim=1) < 0).double().mean(1)
