"""What the first pictures of a page show, in one sentence each.

A sentence says no more than its number and the nulls beside it.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

from bayesattn.probes.attention import (
    REDUCTION_EVENNESS,
    REDUCTION_WITHOUT_SINK,
    SINK,
    Depth,
)
from bayesattn.probes.examination import Examination, Finding, number
from bayesattn.probes.examine_language import LanguageExamination
from bayesattn.probes.examine_tunnel import TunnelExamination
from bayesattn.probes.keys import AS_ATTENDED, HEADS, RANDOM
from bayesattn.probes.llm.sula import FIXED, MAIN
from bayesattn.probes.llm.sula_examination import SulaFound
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, SPEARMAN, States

CLEAR = 0.05
"""Chance below which an order is called one."""
Headlines = dict[str, list[str]]
"""Sentences by the name of the picture that they stand above."""


def headlines(found: Sequence[Examination]) -> Headlines:
    """Of several models, each sentence says of which it is."""
    said: Headlines = {}
    for one in found:
        for name, sentence in _of(one):
            said.setdefault(name, []).append(
                f"{one.name}: {sentence}" if len(found) > 1 else _begun(sentence)
            )
    return said


def _of(found: Examination) -> Iterator[tuple[str, str]]:
    if isinstance(found, LanguageExamination):
        if found.attention is not None:
            yield "attention", _focusing(found.attention)
        kind = AS_ATTENDED if all(AS_ATTENDED in layer for layer in found.keys) else HEADS
        if keys := [layer[kind] for layer in found.keys if kind in layer]:
            yield "keys", _keys(keys, "of different tokens" if kind == AS_ATTENDED else "of heads")
        if found.states:
            yield "plane", _order(found.states[0])
    if isinstance(found, TunnelExamination):
        yield from _of_tunnel(found.findings)


def _focusing(depth: Depth) -> str:
    """Entropy over the most there can be; where the first token takes it all, that is said."""
    fall, others = depth[REDUCTION_EVENNESS], depth[REDUCTION_WITHOUT_SINK]
    sink = fmean(layer[SINK].value for layer in depth.layers)
    low, high = fall.interval or (fall.value, fall.value)
    if low > 0:
        verb = "attention narrows with depth"
    elif high < 0:
        verb = "attention widens with depth"
    else:
        verb = "attention neither clearly narrows nor widens with depth"
    alike = low > 0 and others.interval is not None and others.interval.low > 0
    alone = low > 0 and not alike
    return (
        f"{verb}{', but only towards the first token' if alone else ''}: from the first layer to "
        f"the last its entropy, as a share of the largest possible, {_change(fall)}{_fresh(fall)}. "
        f"The first token takes {_percent(sink)} of all attention; among the others the entropy "
        f"{_change(others)}{_fresh(others)}."
    )


def _change(fall: Measured) -> str:
    """A fall, or the rise that it is if it is negative, with its interval."""
    sign = 1 if fall.value >= 0 else -1
    ends = sorted(sign * end for end in fall.interval or (fall.value, fall.value))
    word = "falls" if sign > 0 else "rises"
    return f"{word} by {_percent(sign * fall.value)} ({_percent(ends[0])} to {_percent(ends[1])})"


def _fresh(fall: Measured) -> str:
    fresh = fall.nulls.get(CONTROL)
    if fresh is None:
        return ""
    return f", with fresh weights it {'falls' if fresh >= 0 else 'rises'} by {_percent(abs(fresh))}"


def _keys(keys: Sequence[Measured], whose: str) -> str:
    found, chance = (
        fmean(values) for values in zip(*((x.value, x.nulls[RANDOM]) for x in keys), strict=True)
    )
    above = sum(x.value > x.nulls[RANDOM] for x in keys)
    if above > len(keys) / 2:
        verb = "share a direction more than by chance"
    else:
        verb = "are more orthogonal than by chance"
    layers = max(above, len(keys) - above)
    fresh = [x.nulls[CONTROL] for x in keys if CONTROL in x.nulls]
    beside = f" and fresh weights {_short(fmean(fresh))}" if fresh else ""
    return (
        f"keys {whose} {verb} in {layers} of {len(keys)} layers: their |cos| is {_short(found)} "
        f"on average, where random directions have {_short(chance)}{beside}."
    )


def _order(states: States) -> str:
    rho = states[SPEARMAN]
    fresh = rho.nulls.get(CONTROL)
    if rho.p is None or rho.p >= CLEAR:
        verb = "does not clearly follow"
    elif fresh is not None and rho.value <= fresh:
        verb = "follows, but not more than with fresh weights,"
    else:
        verb = "follows"
    parts = [] if fresh is None else [f"with fresh weights {_short(fresh)}"]
    beside = ", ".join(parts if rho.p is None else [*parts, f"p = {rho.p:.2g}"])
    return (
        f"the main axis of the {states.kind} in layer {states.layer} {verb} how uncertain the "
        f"model is: its rank correlation with the entropy of the next token is "
        f"{_short(rho.value)}{f' ({beside})' if beside else ''}."
    )


def _of_tunnel(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    # the last of each name is that of the last layer
    found = {(one.probe, one.what): one for one in findings}
    for picture, place, said in (
        ("fidelity", ("fidelity", "KL, bits"), "its beliefs differ from exact Bayes by"),
        (
            "focusing",
            ("focusing", "entropy / log visible"),
            "evenness of attention in the last layer:",
        ),
    ):
        if (one := found.get(place)) is not None:
            unit = " bits" if "bits" in one.what else ""
            yield picture, f"{said} {number(one.measured.value)}{unit}{_beside(one.measured)}."
    if orders := [one for one in findings if one.probe == "values" and "|r(PC 1" in one.what]:
        one = orders[-1]
        yield (
            "manifold",
            f"the main axis of {one.where} follows the entropy of the exact posterior with "
            f"{one.what} = {number(one.measured.value)}{_beside(one.measured)}.",
        )


def _beside(measured: Measured) -> str:
    nulls = ", ".join(f"{name} {number(x)}" for name, x in measured.nulls.items())
    return f" ({nulls})" if nulls else ""


def of_sula(found: SulaFound) -> Headlines:
    """Calibration and movement."""
    said: Headlines = {}
    main = [x for x in found.calibration if x.condition == MAIN and x.shots is None]
    for one in main:
        error = one.error_predictive
        trivial = min(error.nulls.values(), default=None)
        verb = "infers" if trivial is not None and error.value < trivial else "does not infer"
        said["entropy"] = [
            f"The model {verb}: its entropy is {number(error.value)} bits away from that of exact "
            f"Bayes on average{_beside(error)}."
        ]
    moved = [x for x in found.movement if x.axis == "centred" and x.order is not None]
    parts = [
        f"{number(x.order.value)} {name} (p = {x.order.p:.2g})"
        for name, condition in (
            ("where the number of pairs varies", MAIN),
            ("at one length", FIXED),
        )
        for x in moved
        if x.condition == condition and x.order is not None and x.order.p is not None
    ]
    if parts:
        said["movement"] = [
            f"The main axis of the values follows the evidence with |ρ| = {', and '.join(parts)}."
        ]
    return said


def _short(value: float) -> str:
    return f"{value:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%".replace("-0%", "0%")


def _begun(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
