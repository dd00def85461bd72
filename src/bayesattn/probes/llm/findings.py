"""An examination as a flat list: what was measured, where, beside what, and what was reported.

This list is what `probe.json` holds, what the table prints and what the page shows.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bayesattn.probes.llm import axes
from bayesattn.probes.llm.examination import Examination
from bayesattn.probes.measured import Measured
from bayesattn.probes.table import measured_row, number

SCHEMA = 1
REPORTED = {
    axes.SHARE: "79.6% Pythia-410M, 46.4% Phi-2, 36.6% Llama-3.2-1B (mixed prompts)",
    axes.TWO: "99.7% Pythia-410M, 60.6% Phi-2, 51.4% Llama-3.2-1B (mixed prompts)",
    axes.SPEARMAN: "0.32 Pythia-410M, 0.34 Phi-2, 0.59 Llama-3.2-1B",
    "|cos| of W_K": "0.11–0.13 Pythia-410M, 0.03–0.05 Phi-2, 0.15–0.18 Llama-3.2-1B",
    "reduction of entropy": "82% Pythia-410M, 86% Phi-2, 31% Llama-3.2-1B",
}
"""By the authors (arXiv 2512.23752), of values in the last layer; shown, never compared with."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measurement and its place."""

    probe: str
    where: str
    layer: int | None
    what: str
    measured: Measured
    reported: str | None = None

    @property
    def times_noise(self) -> float | None:
        """Measured over what noise of the same size gives."""
        noise = self.measured.nulls.get("noise")
        return self.measured.value / noise if noise else None

    def to_dict(self) -> dict[str, Any]:
        """As in probe.json."""
        interval = self.measured.interval
        return {
            "probe": self.probe,
            "where": self.where,
            "layer": self.layer,
            "what": self.what,
            "measured": self.measured.value,
            "interval": None if interval is None else list(interval),
            "null": self.measured.nulls,
            "times noise": self.times_noise,
            "p": self.measured.p,
            "reported": self.reported,
        }

    def row(self) -> dict[str, str]:
        """As in the table."""
        row = measured_row(self.probe, self.where, self.what, self.measured)
        times = "" if self.times_noise is None else number(self.times_noise)
        return {**row, "× noise": times}


def findings(found: Examination) -> list[Finding]:
    """All of them, layer by layer."""
    return [*_states(found), *_keys(found), *_attention(found)]


def to_dict(found: Examination) -> dict[str, Any]:
    """One model of probe.json."""
    return {
        "model": found.model,
        "prompts": found.prompts,
        "check": found.check,
        "entropy": found.bits,
        "entropy, random init": found.control_bits,
        "measurements": [finding.to_dict() for finding in findings(found)],
        "planes": [
            {
                "layer": states.layer,
                "states": states.kind,
                "points": states.plane,
                "points, random init": states.control_plane,
            }
            for states in found.states
        ],
        "paper criteria": [asdict(line) for line in found.paper],
        "calibrated": [asdict(line) for line in found.ours],
        "failed": found.failed,
        "notes": found.notes,
    }


def _states(found: Examination) -> Iterator[Finding]:
    last = max((states.layer for states in found.states), default=0)
    for states in found.states:
        theirs = states.kind == "values" and states.layer == last
        for what, measured in states.measured.items():
            yield Finding(
                probe="states",
                where=f"L{states.layer} {states.kind}",
                layer=states.layer,
                what=what,
                measured=measured,
                reported=REPORTED.get(what) if theirs else None,
            )


def _keys(found: Examination) -> Iterator[Finding]:
    for layer in found.keys:
        kinds = {
            "|cos| of W_K": layer.weights,
            "|cos| of tokens, before rotation": layer.tokens,
            "|cos| of tokens, as attended to": layer.turned_tokens,
            "|cos| of heads": layer.heads,
        }
        for what, measured in kinds.items():
            if measured is not None:
                yield Finding(
                    probe="keys",
                    where=f"L{layer.layer}",
                    layer=layer.layer,
                    what=what,
                    measured=measured,
                    reported=REPORTED.get(what),
                )


def _attention(found: Examination) -> Iterator[Finding]:
    if found.focusing is None:
        return
    for layer in found.focusing.layers:
        kinds = {
            "entropy, bits": layer.entropy,
            "entropy / log visible": layer.evenness,
            "entropy / log visible, without the first key": layer.without_sink,
            "mass on the first key": layer.sink,
        }
        for what, measured in kinds.items():
            yield Finding(
                probe="attention",
                where=f"L{layer.layer}",
                layer=layer.layer,
                what=what,
                measured=measured,
            )
    overall = {
        "reduction of entropy": found.focusing.reduction,
        "reduction of entropy / log visible": found.focusing.reduction_evenness,
        "reduction without the first key": found.focusing.reduction_without_sink,
        "Spearman with depth": found.focusing.depth,
        "share of falling steps": found.focusing.falling,
    }
    for what, measured in overall.items():
        yield Finding(
            probe="attention",
            where="all layers",
            layer=None,
            what=what,
            measured=measured,
            reported=REPORTED.get(what),
        )
