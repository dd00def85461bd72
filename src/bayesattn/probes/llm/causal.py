"""Is the axis needed, or only read? Cuts of it beside cuts of random axes.

Prompts of SULA in the fixed-length design; one layer, or several at once, each with its own axis.

    doses        v - (1 - keep)(v·u)u for several keeps
    random       whole cuts of random axes among the next components, orthogonal to u
    components   whole cuts of the next components themselves
    matched      share of random cuts that cost at least as much KL as a cut of u of the same size;
                 no direction varies as much as the first component, so a whole cut of it is larger,
                 and what it would cost at their size is read off the doses

The size of a cut is the root mean square of v·u over all positions, where it is made; the axis is
that of last tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from bayesattn.probes.llm.editing import Edit
from bayesattn.probes.llm.effects import Effects, Stage
from bayesattn.probes.llm.interventions import (
    Axis,
    cut,
    estimate_axis,
    next_components,
    only,
    random_axes,
    shift,
    sizes_of,
)
from bayesattn.probes.llm.ordering import order_of, readable
from bayesattn.probes.llm.replay import record
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula_answers import Answers, label_pair
from bayesattn.probes.measured import chance

KEEPS = (1.0, 0.75, 0.5, 0.25, 0.0, -1.0)
RANDOM_AXES = 100
FEWEST_PROMPTS = 16


@dataclass(frozen=True, kw_only=True)
class Against:
    """A number of the whole cut beside those of random cuts."""

    value: float
    random: float
    """Mean."""
    deviation: float
    """Standard deviation."""
    z: float | None
    """(value - mean) / deviation; None if random cuts do not differ."""
    p: float
    """Share of random cuts that give at least as much."""


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """Edits of one or several layers at once."""

    layers: tuple[int, ...]
    later: list[int]
    """Layers after the first edited one."""
    prompts: int
    axes: list[dict[str, float]]
    """Layer, share, spread and correlation with the entropy of each axis."""
    before: dict[str, Any]
    """Effects of no edit: errors, order and decodability as they are."""
    local_decodability: dict[str, float]
    """In the first edited layer: before and after its values lose the axis."""
    edits: dict[str, dict[str, Any]]
    """Effects by name: "keep 0", "only", "shift +1", …"""
    components: list[dict[str, Any]]
    """Effects of cuts of the next components."""
    against: dict[str, Against]
    """divergence, label divergence, error, fall of order and of decodability."""
    random_order: list[float]
    """Mean order in each later layer after random cuts."""
    matched: float
    """See the module."""
    relative_size: float
    """Mean size of random cuts as a share of that of the axis."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        against = {name: vars(one) for name, one in self.against.items()}
        return {**vars(self), "layers": list(self.layers), "against": against}


def intervene(
    subject: Subject,
    answers: Answers,
    layers: Sequence[int],
    *,
    axes: int = RANDOM_AXES,
    keeps: Sequence[float] = KEEPS,
    seed: int = 0,
) -> Intervention:
    """Edit `layers` while the model reads the prompts of `answers`.

    Args:
        subject: the model.
        answers: to prompts of one length; of several lengths the most frequent is taken. They have
            the values of these layers.
        layers: edited together.
        axes: random axes.
        keeps: doses; 1 and 0 are always among them.
        seed: of the random axes.
    """
    chosen = tuple(sorted({subject.parts.resolve(layer) for layer in layers}))
    if not chosen or axes < 2:
        raise ValueError("an intervention needs at least one layer and two random axes")
    stage, usual = _stage(subject, answers, chosen[0])
    values = {layer: answers.values[layer][usual].double() for layer in chosen}
    bits = answers.bits[usual]
    own = {layer: estimate_axis(x, bits, layer) for layer, x in values.items()}
    keeps = list(dict.fromkeys([1.0, *keeps, 0.0]))
    doses = stage.effects(_dosed(own, torch.tensor(keeps).double()), len(keeps))
    others = {
        layer: random_axes(x, own[layer], axes, Generator().manual_seed(seed + layer))
        for layer, x in values.items()
    }
    following = {layer: next_components(x, own[layer]) for layer, x in values.items()}
    count = min(map(len, following.values()))
    random = stage.effects(_cutting(others), axes)
    whole = keeps.index(0.0)
    everywhere = stage.replay.values(chosen)
    size = _squared_sizes(everywhere, {n: axis.direction[None] for n, axis in own.items()})
    sizes = _squared_sizes(everywhere, others)
    named = {f"keep {keep:g}": doses.row(at) for at, keep in enumerate(keeps)}
    first = chosen[0]
    without = cut(own[first].direction)(values[first][:, None, None])[:, 0, 0]
    return Intervention(
        layers=chosen,
        later=stage.later,
        prompts=len(bits),
        axes=[
            {
                "layer": layer,
                "share": axis.share,
                "spread": axis.spread,
                "correlation": axis.correlation,
                "order": float(order_of(values[layer][None], bits[None])),
            }
            for layer, axis in own.items()
        ],
        before=doses.row(0),
        local_decodability={
            "before": float(readable(values[first][None], bits[None])),
            "after": float(readable(without[None], bits[None])),
        },
        edits=named | _other_edits(stage, own),
        components=_rows(stage.effects(_cutting(following), count), count),
        against=_against(doses, whole, random),
        random_order=random.order.mean(0).tolist(),
        matched=_matched(doses, keeps, float(size), random.divergence, sizes),
        relative_size=float((sizes / size).sqrt().mean()),
    )


def _stage(subject: Subject, answers: Answers, first: int) -> tuple[Stage, Tensor]:
    """Prompts of the most frequent length, read up to layer `first`; and which [N] they are."""
    usual = answers.lengths == answers.lengths.mode().values
    if int(usual.sum()) < FEWEST_PROMPTS:
        raise ValueError(
            f"only {int(usual.sum())} prompts have the same length and {FEWEST_PROMPTS} are "
            "needed: ask for more prompts"
        )
    condition = answers.condition
    texts = [text for text, kept in zip(condition.texts, usual.tolist(), strict=True) if kept]
    stage = Stage(
        record(subject, [subject.encode(text) for text in texts], first),
        label_pair(subject, condition.pair),
        condition.posterior_bits[usual],
        condition.predictive_bits[usual],
    )
    return stage, usual


def _dosed(axes: Mapping[int, Axis], keeps: Tensor) -> Callable[[slice], Mapping[int, Edit]]:
    def make(some: slice) -> dict[int, Edit]:
        keep = keeps[some]
        return {
            layer: cut(axis.direction.expand(len(keep), -1), keep) for layer, axis in axes.items()
        }

    return make


def _cutting(axes: Mapping[int, Tensor]) -> Callable[[slice], Mapping[int, Edit]]:
    def make(some: slice) -> dict[int, Edit]:
        return {layer: cut(directions[some]) for layer, directions in axes.items()}

    return make


def _squared_sizes(values: Mapping[int, Tensor], axes: Mapping[int, Tensor]) -> Tensor:
    """[A] of cuts in all layers together."""
    each = [sizes_of(values[layer], directions).square() for layer, directions in axes.items()]
    return torch.stack(each).sum(0)


def _other_edits(stage: Stage, axes: Mapping[int, Axis]) -> dict[str, dict[str, Any]]:
    kinds: dict[str, Callable[[Axis], Edit]] = {
        "only": lambda axis: only(axis.direction),
        "shift +1": lambda axis: shift(axis.direction, axis.spread),
        "shift -1": lambda axis: shift(axis.direction, -axis.spread),
    }
    return {
        name: stage.effects(lambda _, kind=kind: {n: kind(a) for n, a in axes.items()}, 1).row(0)
        for name, kind in kinds.items()
    }


def _rows(effects: Effects, count: int) -> list[dict[str, Any]]:
    return [effects.row(at) for at in range(count)]


def _against(doses: Effects, whole: int, random: Effects) -> dict[str, Against]:
    """Everything oriented so that more is more damage."""

    def beside(value: Tensor, others: Tensor) -> Against:
        deviation = float(others.std())
        z = (float(value) - float(others.mean())) / deviation if deviation > 0 else None
        return Against(
            value=float(value),
            random=float(others.mean()),
            deviation=deviation,
            z=z,
            p=chance(float(value), others),
        )

    found = {
        "divergence": beside(doses.divergence[whole], random.divergence),
        "label divergence": beside(doses.label_divergence[whole], random.label_divergence),
        "error": beside(
            doses.error_predictive[whole] - doses.error_predictive[0],
            random.error_predictive - doses.error_predictive[0],
        ),
    }
    if doses.order.shape[1]:
        for name, before, after, others in (
            ("fall of order", doses.order[0], doses.order[whole], random.order),
            (
                "fall of decodability",
                doses.decodability[0],
                doses.decodability[whole],
                random.decodability,
            ),
        ):
            found[name] = beside((before - after).mean(), (before - others).mean(1))
    return found


def _matched(
    doses: Effects, keeps: Sequence[float], size: float, divergence: Tensor, sizes: Tensor
) -> float:
    """KL is quadratic in small edits, so costs are interpolated over squared sizes."""
    squared = np.array([(1 - keep) ** 2 * size for keep in keeps])
    order = squared.argsort()
    costs = doses.divergence.numpy()[order]
    alike = np.interp(sizes.numpy(), squared[order], costs)
    return float((divergence.numpy() >= alike).mean())
