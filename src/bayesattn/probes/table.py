"""An examination as rows for people: the whole of it is in the JSON."""

from collections.abc import Iterator

from bayesattn.probes.examination import Examination
from bayesattn.probes.measured import Measured

Row = dict[str, str]


def rows(found: Examination) -> list[Row]:
    """One line per layer and measurement, each beside its nulls."""
    makers = (_fidelity, _keys, _focusing, _values, _clusters, _ablation, _sublayers, _drift)
    return [row for make in makers for row in make(found)]


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def measured_row(probe: str, where: str, what: str, measured: Measured) -> Row:
    """One measurement as a line."""
    interval = measured.interval
    return {
        "probe": probe,
        "where": where,
        "what": what,
        "measured": number(measured.value),
        "95%": f"{number(interval.low)} … {number(interval.high)}" if interval else "",
        "nulls": ", ".join(f"{name} {number(value)}" for name, value in measured.nulls.items()),
        "p": "" if measured.p is None else f"{measured.p:.2g}",
    }


def _fidelity(found: Examination) -> Iterator[Row]:
    if found.ablation is not None:
        yield measured_row("fidelity", "model", "KL, bits", found.ablation.kl)
        yield measured_row("fidelity", "model", "|ΔH|, bits", found.ablation.mae)


def _keys(found: Examination) -> Iterator[Row]:
    sets = dict.fromkeys((frame.layer, frame.tokens) for frame in found.keys)
    for layer, tokens in sets:
        frames = [f for f in found.keys if (f.layer, f.tokens) == (layer, tokens)]
        first = min(frames, key=lambda frame: frame.cosine.value)
        best = first.cosine
        # one head of several was picked, so its p counts as often as there are heads
        p = None if best.p is None else min(1.0, best.p * len(frames))
        picked = Measured(value=best.value, interval=best.interval, nulls=best.nulls, p=p)
        where = f"L{layer} {tokens}"
        yield measured_row("keys", f"{where}, most orthogonal H{first.head}", "|cos|", picked)
        nulls = {
            name: sum(frame.cosine.nulls[name] for frame in frames) / len(frames)
            for name in best.nulls
        }
        mean = sum(frame.cosine.value for frame in frames) / len(frames)
        together = Measured(value=mean, nulls=nulls)
        yield measured_row("keys", f"{where}, mean over heads", "|cos|", together)


def _focusing(found: Examination) -> Iterator[Row]:
    for focus in found.focusing:
        if focus.head is None:
            where = f"L{focus.layer}"
            yield measured_row("focusing", where, "entropy / log visible", focus.entropy)
            for role, mass in focus.mass.items():
                yield measured_row("focusing", where, f"mass on {role}", mass)
            if focus.alignment is not None:
                yield measured_row("focusing", where, "alignment", focus.alignment)


def _values(found: Examination) -> Iterator[Row]:
    for states in found.values:
        where = f"L{states.layer} {states.states}"
        yield measured_row("values", where, "share of PC 1", states.share)
        yield measured_row("values", where, "participation ratio", states.participation)
        if states.given_position is None:
            yield measured_row("values", where, "|r(PC 1, entropy)|", states.order)
        else:
            yield measured_row(
                "values", where, "|r(PC 1, entropy)| given step", states.given_position
            )
        yield measured_row("values", where, "R² of entropy", states.decodability)


def _clusters(found: Examination) -> Iterator[Row]:
    for states in found.clusters:
        where = "embedding" if states.layer < 0 else f"L{states.layer}"
        yield measured_row("clusters", where, "silhouette", states.silhouette)
        yield measured_row("clusters", where, "R² of belief", states.simplex)
        yield measured_row("clusters", where, "R² of entropy", states.entropy)


def _ablation(found: Examination) -> Iterator[Row]:
    losses = [] if found.ablation is None else found.ablation.losses
    for loss in losses:
        if loss.kind in ("zero", "bypass"):
            yield measured_row("ablation", loss.name, "ΔKL, bits", loss.kl)


def _sublayers(found: Examination) -> Iterator[Row]:
    for sublayer in found.sublayers:
        where = f"L{sublayer.layer} {sublayer.sublayer}"
        yield measured_row("sublayers", where, f"gain in R² of {sublayer.target}", sublayer.gain)


def _drift(found: Examination) -> Iterator[Row]:
    if found.drift is None:
        return
    for kind, numbers in found.drift.summary().items():
        for what in ("half-life", "settled"):
            straight = {"straight path": numbers[f"{what}, straight path"]}
            measured = Measured(value=numbers[what], nulls=straight)
            yield measured_row("drift", kind, f"{what}, step", measured)
