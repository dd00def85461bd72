"""Two ways to sum up: the authors' criteria as they wrote them, and ours against nulls.

The authors (section 4.4): more than 30% of the variance of values on one component or on two; mean
off-diagonal |cos| of W_K below 0.20 in half of the layers; attention entropy falls by more than
30%. Three of three is "present", two "partial". None of it looks at a null, so each line also says
whether the same network with fresh weights passes.

Ours: more than chance (p below 0.01, or an interval beyond the null) and more than fresh weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bayesattn.probes.attention import Focusing
from bayesattn.probes.keys import RANDOM, KeyLayer
from bayesattn.probes.llm import axes
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, States

LEAST_SHARE = 0.30
LARGEST_COSINE = 0.20
LEAST_LAYERS = 0.5
LEAST_REDUCTION = 0.30
ALPHA = 0.01
"""Several kinds of states are looked at, so 0.05 for each would find something by chance."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One line of a summary."""

    name: str
    rule: str
    holds: bool
    found: str
    """What it rests on."""
    control_holds: bool | None = None
    """Whether fresh weights pass as well; None if they were not measured, or are in the rule."""


def paper_criteria(
    states: Sequence[States], keys: Sequence[KeyLayer], focusing: Focusing | None
) -> list[Criterion]:
    """The authors' criteria, those that could be measured."""
    found: list[Criterion] = []
    if values := last_values(states):
        first, two = values[axes.SHARE], values[axes.TWO]
        fresh = [m.nulls[CONTROL] for m in (first, two) if CONTROL in m.nulls]
        found.append(
            Criterion(
                name="value manifold",
                rule="PC 1, or PC 1 and 2, above 30%",
                holds=max(first.value, two.value) > LEAST_SHARE,
                found=f"{first.value:.1%}, {two.value:.1%}",
                control_holds=max(fresh) > LEAST_SHARE if fresh else None,
            )
        )
    cosines = [layer.weights for layer in keys if layer.weights is not None]
    if cosines:
        found.append(
            _by_layers(
                "key orthogonality",
                "|cos| of W_K below 0.20 in half of the layers",
                cosines,
                lambda value, _: value < LARGEST_COSINE,
            )
        )
    if focusing is not None:
        reduction = focusing.reduction
        fresh_reduction = reduction.nulls.get(CONTROL)
        found.append(
            Criterion(
                name="attention focusing",
                rule="entropy of the last layer more than 30% below that of the first",
                holds=reduction.value > LEAST_REDUCTION,
                found=f"{reduction.value:.1%}",
                control_holds=(
                    None if fresh_reduction is None else fresh_reduction > LEAST_REDUCTION
                ),
            )
        )
    return found


def calibrated(
    states: Sequence[States], keys: Sequence[KeyLayer], focusing: Focusing | None
) -> list[Criterion]:
    """Ours: beyond the null, and beyond fresh weights where those were measured."""
    found: list[Criterion] = []
    if values := last_values(states):
        share, order = values[axes.SHARE], values[axes.SPEARMAN]
        found.append(_beyond("dominant axis", "share of PC 1 of values", share))
        found.append(_beyond("ordered by entropy", "|Spearman| of PC 1 with entropy", order))
    cosines = [layer.weights for layer in keys if layer.weights is not None]
    if cosines:
        found.append(
            _by_layers(
                "orthogonal keys",
                "|cos| of W_K below that of random directions in half of the layers",
                cosines,
                lambda value, measured: value < measured.nulls[RANDOM],
            )
        )
    if focusing is not None and focusing.reduction_evenness.interval is not None:
        reduction = focusing.reduction_evenness
        needed = max(0.0, reduction.nulls.get(CONTROL, 0.0))
        low = focusing.reduction_evenness.interval.low
        found.append(
            Criterion(
                name="focusing",
                rule="evenness falls from the first layer to the last, beyond fresh weights",
                holds=low > needed,
                found=f"{reduction.value:.1%}, at least {low:.1%}; needed {needed:.1%}",
            )
        )
    return found


def entropy_axis(states: Sequence[States]) -> bool:
    """Whether values of the last layer have an axis, and entropy orders it, beyond chance."""
    return all(line.holds for line in calibrated(states, [], None)) and bool(last_values(states))


def summary(criteria: Sequence[Criterion]) -> str:
    """The authors' word for how many of the three hold."""
    count = sum(criterion.holds for criterion in criteria)
    if len(criteria) < 3:
        return "not all measured"
    return {3: "present", 2: "partial"}.get(count, "absent")


def last_values(states: Sequence[States]) -> States | None:
    """Values of the last layer that was looked at."""
    values = [one for one in states if one.kind == "values"]
    return max(values, key=lambda one: one.layer, default=None)


def _beyond(name: str, what: str, measured: Measured) -> Criterion:
    fresh = measured.nulls.get(CONTROL)
    p = 1.0 if measured.p is None else measured.p
    beside = "" if fresh is None else f", fresh weights {fresh:.3g}"
    return Criterion(
        name=name,
        rule=f"{what}: p below {ALPHA}, and more than with fresh weights",
        holds=p < ALPHA and (fresh is None or measured.value > fresh),
        found=f"{measured.value:.3g}, p {p:.2g}{beside}",
    )


def _by_layers(
    name: str, rule: str, layers: Sequence[Measured], passes: Callable[[float, Measured], bool]
) -> Criterion:
    """A rule that half of the layers must pass."""
    count = sum(passes(layer.value, layer) for layer in layers)
    fresh = [(layer.nulls[CONTROL], layer) for layer in layers if CONTROL in layer.nulls]
    control = sum(passes(value, layer) for value, layer in fresh)
    return Criterion(
        name=name,
        rule=rule,
        holds=count >= LEAST_LAYERS * len(layers),
        found=f"{count} of {len(layers)} layers",
        control_holds=control >= LEAST_LAYERS * len(fresh) if fresh else None,
    )
