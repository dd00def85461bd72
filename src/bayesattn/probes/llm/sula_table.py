"""SULA as rows for people: the whole of it is in the JSON."""

from collections.abc import Iterator

from bayesattn.probes.llm.causal import Intervention
from bayesattn.probes.llm.sula_examination import SulaFound
from bayesattn.probes.llm.sula_measures import Calibration, Movement
from bayesattn.probes.measured import Measured
from bayesattn.probes.table import Row, measured_row


def rows(found: SulaFound) -> list[Row]:
    """Calibration, then movement, then interventions."""
    table = [row for one in found.calibrations for row in _calibration(one)]
    table += [row for one in found.movements for row in _movement(one)]
    return table + (list(_intervention(found.intervention)) if found.intervention else [])


def _calibration(one: Calibration) -> Iterator[Row]:
    where = one.condition if one.shots is None else f"{one.condition}, k = {one.shots}"
    bayes = {"H_post": one.posterior, "H_pred": one.predictive}
    if abs(one.unaware - one.posterior) > 1e-9:
        bayes["unaware"] = one.unaware
    model = Measured(value=one.model.value, interval=one.model.interval, nulls=bayes)
    yield measured_row("calibration", where, "H of the model, bits", model)
    if one.shots is None:
        yield measured_row("calibration", where, "|H - H_post|, bits", one.error_posterior)
        yield measured_row("calibration", where, "|H - H_pred|, bits", one.error_predictive)
        for name, value in (
            ("r with H_post", one.correlation_posterior),
            ("r with H_pred", one.correlation_predictive),
        ):
            if value is not None:
                yield measured_row("calibration", where, name, Measured(value=value))
        yield measured_row(
            "calibration", where, "probability of both labels", Measured(value=one.mass)
        )


def _movement(one: Movement) -> Iterator[Row]:
    if one.axis != "centred":
        return
    where = f"{one.condition}, L{one.layer}"
    named = {
        "|ρ(PC 1, H)|": one.order,
        "|ρ(PC 1, H)| given k": one.given_shots,
        **{f"|ρ(PC 1, H)| at k = {k}": found for k, found in one.by_shots.items()},
        "|ρ(PC 1, H of the model)|": one.own,
    }
    for name, measured in named.items():
        if measured is not None:
            yield measured_row("movement", where, name, measured)
    for name, value in (("ρ(PC 1, k)", one.shots), ("ρ(PC 1, length)", one.length)):
        if value is not None:
            yield measured_row("movement", where, name, Measured(value=value))


def _intervention(found: Intervention) -> Iterator[Row]:
    where = f"cut of L{', L'.join(map(str, found.layers))}"
    for name, one in found.against.items():
        nulls = {"random axes": one.random}
        measured = Measured(value=one.value, nulls=nulls, p=one.p)
        yield measured_row("intervention", where, name, measured)
    same = Measured(value=found.matched, nulls={"mean relative size": found.relative_size})
    yield measured_row("intervention", where, "random cuts as costly at equal size", same)
    local = found.local_decodability
    left = Measured(value=local["after"], nulls={"before": local["before"]})
    yield measured_row("intervention", where, f"R² of H from L{found.layers[0]}", left)
