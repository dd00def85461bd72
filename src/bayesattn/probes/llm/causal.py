"""Is the axis needed, or only read? Cuts of it beside cuts of random axes.

Prompts of SULA in the fixed-length design; one layer, or several at once, each with its own axis.

    doses        v - (1 - keep)(v·u)u for several keeps
    random       whole cuts of random axes among the next components, orthogonal to u
    components   whole cuts of the next components themselves
    matched      share of random cuts that cost at least as much KL as a cut of u of the same size;
                 no direction varies as much as the first component, so a whole cut of it is larger,
                 and what it would cost at their size is read off the doses

The size of a cut is the root mean square of v·u over all positions, where it is made; the axis is
that of last tokens. What an edit does:

    divergence     KL(before ‖ after), bits, of the next token: all tokens, or the two labels alone
    error          mean |H_model - H|, H of Bayes, as in SULA
    order          |Spearman| of the first component of a later layer's values, found anew after the
                   edit, with the model's entropy after the edit: does the axis come back?
    decodability   held-out R² of that entropy from all of those values

An edit that cuts an axis makes v·u = 0 by construction; nothing here measures that. A edits, N
prompts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from bayesattn.bits import kl_divergence, log_probabilities
from bayesattn.linear import correlation
from bayesattn.probes.examination import Row, measured_row
from bayesattn.probes.llm.interventions import (
    Axis,
    Edit,
    cut,
    estimate_axis,
    mean_squares,
    next_components,
    only,
    random_axes,
    shift,
)
from bayesattn.probes.llm.replay import Replay, record
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula import binary_entropy
from bayesattn.probes.llm.sula_answers import Answers, label_pair, read_labels
from bayesattn.probes.measured import Measured, chance
from bayesattn.probes.readout import order_of, readable

KEEPS = (1.0, 0.75, 0.5, 0.25, 0.0, -1.0)
RANDOM_AXES = 100
FEWEST_PROMPTS = 16
TOKENS = 4096

MakeEdits = Callable[[slice], Mapping[int, Edit]]
"""From some of A edits to functions by layer."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one edit does. Lists go by later layer."""

    divergence: float
    label_divergence: float
    error_posterior: float
    error_predictive: float
    correlation: float
    """Of H_model and H_pred (Pearson)."""
    order: list[float]
    decodability: list[float]


@dataclass(frozen=True, kw_only=True)
class Against:
    """A number of the whole cut beside those of random cuts."""

    value: float
    random: float
    deviation: float | None
    z: float | None
    """(value - mean) / deviation; None if random cuts do not differ."""
    p: float | None
    """Share of random cuts that give at least as much."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What the whole cut does beside random cuts; more is more damage."""

    divergence: Against
    label_divergence: Against
    error: Against
    """Rise of the error to H_pred."""
    fall_of_order: Against | None
    """Mean over later layers; None where there are none."""
    fall_of_decodability: Against | None


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """Edits of one or several layers at once."""

    layers: tuple[int, ...]
    later: list[int]
    """Layers after the first edited one."""
    prompts: int
    axes: list[Axis]
    local_decodability: tuple[float, float]
    """In the first edited layer: before and after its values lose the axis."""
    doses: dict[float, Effect]
    """By the part of the axis that is kept; 1 is no edit, 0 the whole cut."""
    edits: dict[str, Effect]
    """only, shift +1 and shift -1."""
    components: list[Effect]
    """Cuts of the next components."""
    against: Damage
    random_order: list[float]
    """Mean order in each later layer after random cuts."""
    matched: float
    relative_size: float
    """Mean size of random cuts as a share of that of the axis."""

    @property
    def before(self) -> Effect:
        """No edit: errors, order and decodability as they are."""
        return self.doses[1.0]

    @property
    def whole(self) -> Effect:
        return self.doses[0.0]

    def rows(self) -> Iterator[Row]:
        before, after = self.local_decodability
        shown = {
            name.replace("_", " "): Measured(
                value=one.value, nulls={"random axes": one.random}, p=one.p
            )
            for name, one in vars(self.against).items()
            if one is not None
        }
        shown["random cuts as costly at equal size"] = Measured(
            value=self.matched, nulls={"mean relative size": self.relative_size}
        )
        shown[f"R² of H from L{self.layers[0]}"] = Measured(value=after, nulls={"before": before})
        where = f"cut of L{', L'.join(map(str, self.layers))}"
        return (measured_row("intervention", where, name, one) for name, one in shown.items())


def intervene(
    subject: Subject,
    answers: Answers,
    layers: Sequence[int],
    *,
    axes: int = RANDOM_AXES,
    keeps: Sequence[float] = KEEPS,
    seed: int = 0,
) -> Intervention:
    """Edit `layers` together while the model reads the prompts of `answers`.

    Answers hold the values of these layers; of prompts of several lengths the most frequent is
    taken. The doses 1 and 0 are always among `keeps`.
    """
    chosen = tuple(sorted({subject.parts.resolve(layer) for layer in layers}))
    if not chosen or axes < 2:
        raise ValueError("an intervention needs at least one layer and two random axes")
    stage, usual = _stage(subject, answers, chosen[0])
    values = {layer: answers.values[layer][usual].double() for layer in chosen}
    bits = answers.bits[usual]
    found = {layer: estimate_axis(x, bits, layer) for layer, x in values.items()}
    own = {layer: direction for layer, (direction, _) in found.items()}
    keeps = list(dict.fromkeys([1.0, *keeps, 0.0]))
    dosed = stage.effects(_dosed(own, torch.tensor(keeps).double()), len(keeps))
    doses = dict(zip(keeps, dosed, strict=True))
    others = {
        layer: random_axes(x, own[layer], axes, Generator().manual_seed(seed + layer))
        for layer, x in values.items()
    }
    random = stage.effects(_cutting(others), axes)
    following = {layer: next_components(x, own[layer]) for layer, x in values.items()}
    everywhere = stage.replay.values(chosen)
    size = _squared_sizes(everywhere, {n: direction[None] for n, direction in own.items()})
    sizes = _squared_sizes(everywhere, others)
    first = chosen[0]
    without = cut(own[first])(values[first][:, None, None])[:, 0, 0]
    return Intervention(
        layers=chosen,
        later=stage.later,
        prompts=len(bits),
        axes=[axis for _, axis in found.values()],
        local_decodability=(
            float(readable(values[first][None], bits[None])),
            float(readable(without[None], bits[None])),
        ),
        doses=doses,
        edits=_other_edits(stage, found),
        components=stage.effects(_cutting(following), min(map(len, following.values()))),
        against=_against(doses[1.0], doses[0.0], random),
        random_order=_column(random, lambda one: one.order).mean(0).tolist(),
        matched=_matched(doses, float(size), random, sizes),
        relative_size=float((sizes / size).sqrt().mean()),
    )


@dataclass(frozen=True)
class _Stage:
    """Where edits are tried out."""

    replay: Replay
    pair: tuple[int, int]
    """Tokens of the two labels."""
    posterior_bits: Tensor
    predictive_bits: Tensor

    @property
    def later(self) -> list[int]:
        return list(range(self.replay.first + 1, len(self.replay.subject.parts.layers)))

    def effects(self, make: MakeEdits, count: int) -> list[Effect]:
        """Of `count` edits, as many at once as fit a pass."""
        at_once = max(1, TOKENS // self.replay.tokens.numel())
        starts = pairwise([*range(0, count, at_once), count])
        return [one for a, b in starts for one in self._some(make(slice(a, b)), b - a)]

    def _some(self, edits: Mapping[int, Edit], count: int) -> list[Effect]:
        values: dict[int, Tensor] = {}
        keeping = {layer: _keep(values, layer, edits.get(layer)) for layer in self.later}
        before = self.replay.logits.cpu()
        after = self.replay.run({**edits, **keeping}, repeats=count).cpu().unflatten(0, (count, -1))
        (base, _), (first, _) = (read_labels(x, self.pair) for x in (before, after))
        bits = binary_entropy(first)
        states = [values[layer].unflatten(0, (count, -1)) for layer in self.later]
        columns: dict[str, Tensor] = {
            "divergence": _divergence(before, after),
            "label_divergence": kl_divergence(_two(base), _two(first).log()).mean(-1),
            "error_posterior": (bits - self.posterior_bits).abs().mean(-1),
            "error_predictive": (bits - self.predictive_bits).abs().mean(-1),
            "correlation": correlation(bits, self.predictive_bits),
            "order": _stack([order_of(x, bits) for x in states], count),
            "decodability": _stack([readable(x, bits) for x in states], count),
        }
        rows: Any = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [Effect(**dict(zip(columns, row, strict=True))) for row in rows]


def _stage(subject: Subject, answers: Answers, first: int) -> tuple[_Stage, Tensor]:
    """Prompts of the most frequent length, read up to layer `first`; and which [N] they are."""
    usual = answers.lengths == answers.lengths.mode().values
    if int(usual.sum()) < FEWEST_PROMPTS:
        raise ValueError(
            f"only {int(usual.sum())} prompts have the same length and {FEWEST_PROMPTS} are "
            "needed: ask for more prompts"
        )
    condition = answers.condition
    texts = [text for text, kept in zip(condition.texts, usual.tolist(), strict=True) if kept]
    stage = _Stage(
        record(subject, [subject.encode(text) for text in texts], first),
        label_pair(subject, condition.pair),
        condition.posterior_bits[usual],
        condition.predictive_bits[usual],
    )
    return stage, usual


def _keep(values: dict[int, Tensor], layer: int, edit: Edit | None) -> Edit:
    """Keep what a layer makes of its states, then do what was asked for."""

    def keep(x: Tensor) -> Tensor:
        values[layer] = x[:, -1].flatten(1).cpu()
        return x if edit is None else edit(x)

    return keep


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """[A] mean KL over prompts of logits [N, V] and [A, N, V]; one edit at a time, V is large."""
    known = log_probabilities(before).exp()
    each = [kl_divergence(known, log_probabilities(one)).mean() for one in after]
    return torch.stack(each)


def _two(first: Tensor) -> Tensor:
    return torch.stack([first, 1 - first], dim=-1)


def _stack(columns: Sequence[Tensor], count: int) -> Tensor:
    return torch.stack(list(columns), -1) if columns else torch.zeros(count, 0)


def _dosed(axes: Mapping[int, Tensor], keeps: Tensor) -> MakeEdits:
    return lambda some: {
        layer: cut(u.expand(len(keeps[some]), -1), keeps[some]) for layer, u in axes.items()
    }


def _cutting(axes: Mapping[int, Tensor]) -> MakeEdits:
    return lambda some: {layer: cut(directions[some]) for layer, directions in axes.items()}


def _squared_sizes(values: Mapping[int, Tensor], axes: Mapping[int, Tensor]) -> Tensor:
    return torch.stack([mean_squares(values[layer], u) for layer, u in axes.items()]).sum(0)


def _other_edits(stage: _Stage, axes: Mapping[int, tuple[Tensor, Axis]]) -> dict[str, Effect]:
    edits: dict[str, dict[int, Edit]] = {
        "only": {n: only(u) for n, (u, _) in axes.items()},
        "shift +1": {n: shift(u, axis.spread or 0.0) for n, (u, axis) in axes.items()},
        "shift -1": {n: shift(u, -(axis.spread or 0.0)) for n, (u, axis) in axes.items()},
    }
    return {name: stage.effects(lambda _, own=own: own, 1)[0] for name, own in edits.items()}


def _column(effects: Sequence[Effect], number: Callable[[Effect], Any]) -> Tensor:
    return torch.tensor([number(one) for one in effects], dtype=torch.float64)


def _against(before: Effect, after: Effect, random: Sequence[Effect]) -> Damage:
    def beside(number: Callable[[Effect], float]) -> Against:
        value, others = number(after), _column(random, number)
        mean, deviation = float(others.mean()), float(others.std())
        return Against(
            value=value,
            random=mean,
            deviation=deviation,
            z=(value - mean) / deviation if deviation > 0 else None,
            p=chance(value, others),
        )

    def fall(numbers: Callable[[Effect], list[float]]) -> Against | None:
        if not numbers(before):
            return None
        return beside(lambda one: float(np.mean(np.subtract(numbers(before), numbers(one)))))

    return Damage(
        divergence=beside(lambda one: one.divergence),
        label_divergence=beside(lambda one: one.label_divergence),
        error=beside(lambda one: one.error_predictive - before.error_predictive),
        fall_of_order=fall(lambda one: one.order),
        fall_of_decodability=fall(lambda one: one.decodability),
    )


def _matched(
    doses: Mapping[float, Effect], size: float, random: Sequence[Effect], sizes: Tensor
) -> float:
    """KL is quadratic in small edits, so costs are interpolated over squared sizes."""
    dosed = sorted(((1 - keep) ** 2 * size, effect.divergence) for keep, effect in doses.items())
    squared, costs = zip(*dosed, strict=True)
    alike = np.interp(sizes.numpy(), squared, costs)
    return float((_column(random, lambda one: one.divergence).numpy() >= alike).mean())
