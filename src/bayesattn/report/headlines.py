"""What the first pictures of a page show, in one sentence each.

A sentence says no more than its number and the nulls beside it.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

from bayesattn.probes.attention import REDUCTION_EVENNESS, SINK
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
            layers = [layer[SINK].value for layer in found.attention.layers]
            yield "attention", _focusing(found.attention[REDUCTION_EVENNESS], fmean(layers))
        kind = AS_ATTENDED if all(AS_ATTENDED in layer for layer in found.keys) else HEADS
        if keys := [layer[kind] for layer in found.keys if kind in layer]:
            yield "keys", _keys(keys, "of different tokens" if kind == AS_ATTENDED else "of heads")
        if found.states:
            yield "plane", _order(found.states[0])
    if isinstance(found, TunnelExamination):
        yield from _of_tunnel(found.findings)


def _focusing(fall: Measured, sink: float) -> str:
    low, high = fall.interval or (fall.value, fall.value)
    fresh = fall.nulls.get(CONTROL)
    if low > 0:
        verb = "attention becomes less even with depth"
    elif high < 0:
        verb = "attention becomes more even with depth"
    else:
        verb = "whether attention becomes more or less even with depth is not clear"
    beside = "" if fresh is None else f", with fresh weights {_percent(fresh)}"
    return (
        f"{verb}: from the first layer to the last its evenness falls by {_percent(fall.value)} "
        f"(95%: {_percent(low)} to {_percent(high)}{beside}), and {_percent(sink)} of all "
        "attention lies on the first token."
    )


def _keys(keys: Sequence[Measured], whose: str) -> str:
    found, chance = (
        fmean(values) for values in zip(*((x.value, x.nulls[RANDOM]) for x in keys), strict=True)
    )
    above = sum(x.value > x.nulls[RANDOM] for x in keys)
    if above > len(keys) / 2:
        verb = "point into a common direction more than chance"
    else:
        verb = "are more orthogonal than chance"
    layers = max(above, len(keys) - above)
    fresh = [x.nulls[CONTROL] for x in keys if CONTROL in x.nulls]
    beside = f", fresh weights {number(fmean(fresh))}" if fresh else ""
    return (
        f"keys {whose} {verb} in {layers} of {len(keys)} layers: their |cos| is {number(found)} "
        f"on average, where random directions have {number(chance)}{beside}."
    )


def _order(states: States) -> str:
    rho = states[SPEARMAN]
    fresh = rho.nulls.get(CONTROL)
    if rho.p is None or rho.p >= CLEAR:
        verb = "is in no clear order of uncertainty"
    elif fresh is not None and rho.value <= fresh:
        verb = "is in an order of uncertainty, but not more than with fresh weights"
    else:
        verb = "is in an order of uncertainty"
    parts = [] if fresh is None else [f"with fresh weights {number(fresh)}"]
    beside = ", ".join(parts if rho.p is None else [*parts, f"p = {rho.p:.2g}"])
    return (
        f"the main axis of the {states.kind} of layer {states.layer} {verb}: its |Spearman "
        f"correlation| with the entropy of the next token is {number(rho.value)}"
        f"{f' ({beside})' if beside else ''}."
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
    """Calibration, movement and cut."""
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
    if found.intervention is not None:
        cost = found.intervention.against.divergence
        said["intervention"] = [
            f"A cut of the axis costs {number(cost.value)} bits, a cut of a random axis "
            f"{number(cost.random)}."
        ]
    return said


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _begun(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
