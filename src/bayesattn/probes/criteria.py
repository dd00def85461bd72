"""Two summaries: the authors' criteria as published, and ours against nulls.

The authors (section 4.4): more than 30% of the variance of values on one component or on two; mean
off-diagonal |cos| of W_K below 0.20 in half of the layers; attention entropy falls by more than
30%. Three of three is "present", two "partial". These criteria have no null, so each line also says
whether the same network with fresh weights passes.

Ours: more than chance (p below 0.01, or an interval beyond the null) and more than fresh weights.
"""

from collections.abc import Callable, Sequence

from bayesattn.probes.attention import REDUCTION, REDUCTION_EVENNESS, Depth
from bayesattn.probes.examination import Criterion
from bayesattn.probes.keys import RANDOM, WEIGHTS
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, SHARE, SPEARMAN, TWO, States

LEAST_SHARE = 0.30
LARGEST_COSINE = 0.20
LEAST_LAYERS = 0.5
LEAST_REDUCTION = 0.30
ALPHA = 0.01
"""Level of each test; with several kinds of states, 0.05 would give chance findings."""
Keys = Sequence[dict[str, Measured]]


def paper_criteria(
    states: Sequence[States], keys: Keys, attention: Depth | None
) -> list[Criterion]:
    found: list[Criterion] = []
    if values := last_values(states):
        shares = (values[SHARE], values[TWO])
        found.append(
            _above("value manifold", "PC 1, or PC 1 and 2, above 30%", shares, LEAST_SHARE)
        )
    found += _by_layers(
        "key orthogonality",
        "|cos| of W_K below 0.20 in half of the layers",
        keys,
        lambda value, _: value < LARGEST_COSINE,
    )
    if attention is not None:
        rule = "entropy of the last layer more than 30% below that of the first"
        fall = [attention[REDUCTION]]
        found.append(_above("attention focusing", rule, fall, LEAST_REDUCTION))
    return found


def calibrated(states: Sequence[States], keys: Keys, attention: Depth | None) -> list[Criterion]:
    """Our criteria: beyond the null, and beyond fresh weights if these were measured."""
    found: list[Criterion] = []
    if values := last_values(states):
        share, order = values[SHARE], values[SPEARMAN]
        found.append(_beyond("dominant axis", "share of PC 1 of values", share))
        found.append(_beyond("ordered by entropy", "|Spearman| of PC 1 with entropy", order))
    found += _by_layers(
        "orthogonal keys",
        "|cos| of W_K below that of random directions in half of the layers",
        keys,
        lambda value, measured: value < measured.nulls[RANDOM],
    )
    if attention is not None and (interval := attention[REDUCTION_EVENNESS].interval) is not None:
        reduction = attention[REDUCTION_EVENNESS]
        needed = max(0.0, reduction.nulls.get(CONTROL, 0.0))
        found.append(
            Criterion(
                name="focusing",
                rule="evenness falls from the first layer to the last, beyond fresh weights",
                holds=interval.low > needed,
                found=f"{reduction.value:.1%}, at least {interval.low:.1%}; needed {needed:.1%}",
            )
        )
    return found


def summary(criteria: Sequence[Criterion]) -> str:
    """The authors' word for the number of criteria that hold."""
    count = sum(criterion.holds for criterion in criteria)
    if len(criteria) < 3:
        return "not all measured"
    return {3: "present", 2: "partial"}.get(count, "absent")


def last_values(states: Sequence[States]) -> States | None:
    """Values of the last measured layer."""
    values = [one for one in states if one.kind == "values"]
    return max(values, key=lambda one: one.layer, default=None)


def _above(name: str, rule: str, found: Sequence[Measured], least: float) -> Criterion:
    """The largest of some numbers is above `least`."""
    fresh = [measured.nulls[CONTROL] for measured in found if CONTROL in measured.nulls]
    return Criterion(
        name=name,
        rule=rule,
        holds=max(measured.value for measured in found) > least,
        found=", ".join(f"{measured.value:.1%}" for measured in found),
        control_holds=max(fresh) > least if fresh else None,
    )


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
    name: str, rule: str, keys: Keys, passes: Callable[[float, Measured], bool]
) -> list[Criterion]:
    """A rule that half of the layers must pass, if their weights were measured."""
    layers = [layer[WEIGHTS] for layer in keys if WEIGHTS in layer]
    if not layers:
        return []
    count = sum(passes(layer.value, layer) for layer in layers)
    fresh = [(layer.nulls[CONTROL], layer) for layer in layers if CONTROL in layer.nulls]
    control = sum(passes(value, layer) for value, layer in fresh)
    return [
        Criterion(
            name=name,
            rule=rule,
            holds=count >= LEAST_LAYERS * len(layers),
            found=f"{count} of {len(layers)} layers",
            control_holds=control >= LEAST_LAYERS * len(fresh) if fresh else None,
        )
    ]
