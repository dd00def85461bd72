"""All probes of one run of a tunnel, beside the network before training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bayesattn.models.architectures import Predictor, build
from bayesattn.models.open import open_tunnel
from bayesattn.probes.ablation import Ablations, measure_ablations
from bayesattn.probes.beliefs import BeliefReadout, measure_beliefs
from bayesattn.probes.clusters import Clusters, measure_clusters
from bayesattn.probes.drift import Drift, measure_drift
from bayesattn.probes.examination import Examination, Finding, attempt
from bayesattn.probes.focusing import Focus, measure_focusing
from bayesattn.probes.keys import KeyFrame, measure_keys
from bayesattn.probes.measured import Measured, held_out, plain
from bayesattn.probes.selfcheck import check_capture
from bayesattn.probes.sublayers import Sublayer, measure_sublayers
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.training import Run
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Tunnel

FEWEST_SEQUENCES = 64
CHECKED = 16
"""Sequences that the self-check reads."""
RESULTS = ("ablation", "keys", "focusing", "values", "sublayers", "clusters", "beliefs", "drift")


@dataclass(frozen=True, kw_only=True)
class TunnelSubject:
    """A trained model, the same before training, and its task."""

    run: Run
    model: Predictor
    initial: Predictor
    tunnel: Tunnel
    step: int

    @classmethod
    def load(cls, run: Run, step: int | None = None) -> "TunnelSubject":
        model, tunnel = open_tunnel(run, step)
        _, architecture, config = parse_config(run)
        initial = build(architecture, tunnel, config.seed).eval()
        at = run.checkpoint(step).step
        return cls(run=run, model=model, initial=initial, tunnel=tunnel, step=at)

    @property
    def about(self) -> dict[str, Any]:
        return {
            "tunnel": self.tunnel.to_dict(),
            "architecture": self.model.architecture.to_dict(),
            "step": self.step,
            "parameters": sum(p.numel() for p in self.model.parameters() if p.requires_grad),
        }


@dataclass(frozen=True, kw_only=True)
class TunnelExamination(Examination):
    """Findings of all probes; None, or an empty list, for skipped ones."""

    subject: TunnelSubject
    sequences: int
    ablation: Ablations | None = None
    keys: list[KeyFrame] = field(default_factory=list[KeyFrame])
    focusing: list[Focus] = field(default_factory=list[Focus])
    values: list[Manifold] = field(default_factory=list[Manifold])
    sublayers: list[Sublayer] = field(default_factory=list[Sublayer])
    clusters: list[Clusters] = field(default_factory=list[Clusters])
    beliefs: list[BeliefReadout] = field(default_factory=list[BeliefReadout])
    drift: Drift | None = None

    @property
    def title(self) -> str:
        kind = self.subject.model.architecture.name
        return f"{self.name}: inside a model of {self.subject.tunnel.name} ({kind})"

    @property
    def subtitle(self) -> str:
        about = self.about
        fields = (f"{name} {value}" for name, value in about["tunnel"].items() if name != "name")
        return (
            f"{about['parameters']:,} parameters after {about['step']:,} training steps · "
            f"{', '.join(fields)} · {self.sequences} held-out sequences"
        )

    @property
    def findings(self) -> list[Finding]:
        """One per layer and measurement; the whole of it is in the JSON."""
        makers = (
            *(_fidelity, _keys, _focusing, _values, _clusters),
            *(_beliefs, _ablation, _sublayers, _drift),
        )
        return [Finding(make.__name__[1:], *found) for make in makers for found in make(self)]

    def results(self) -> dict[str, Any]:
        found = {name: plain(getattr(self, name)) for name in RESULTS}
        if self.drift is not None:
            found["drift"] |= self.drift.summaries()
        return {"sequences": self.sequences, **found}


def examine_tunnel(
    subject: TunnelSubject,
    name: str,
    *,
    sequences: int = 256,
    tell: Callable[[str], None] = lambda _: None,
) -> TunnelExamination:
    """Run every probe that applies."""
    if sequences < FEWEST_SEQUENCES:
        raise ValueError(f"sequences must be {FEWEST_SEQUENCES} or more, not {sequences}")
    model, tunnel = subject.model, subject.tunnel
    batch = held_out(tunnel, sequences)
    check = check_capture(model, batch.inputs[:CHECKED])
    check.require()
    initial = subject.initial
    probes: dict[str, Callable[[], Any]] = {
        "keys": lambda: measure_keys(model, tunnel, batch, initial),
        "focusing": lambda: measure_focusing(model, tunnel, batch, initial),
        "values": lambda: measure_values(model, batch, initial),
        "clusters": lambda: measure_clusters(model, batch, initial),
        "beliefs": lambda: measure_beliefs(model, tunnel, batch, initial).readouts,
        "ablation": lambda: measure_ablations(model, batch),
        "sublayers": lambda: measure_sublayers(model, batch, initial),
        "drift": lambda: measure_drift(subject.run, sequences=min(sequences, 128)),
    }
    skipped: dict[str, str] = {}
    found: dict[str, Any] = {}
    for probe, measure in probes.items():
        tell(f"{name}: {probe}")
        found[probe] = attempt(skipped, probe, measure)
    return TunnelExamination(
        name=name,
        about=subject.about,
        check=check,
        skipped=skipped,
        subject=subject,
        sequences=sequences,
        **{probe: result for probe, result in found.items() if result is not None},
    )


Found = Iterator[tuple[str, str, Measured]]
"""Where, what, and the measurement."""


def _fidelity(found: TunnelExamination) -> Found:
    if found.ablation is not None:
        yield "model", "KL, bits", found.ablation.kl
        yield "model", "|ΔH|, bits", found.ablation.mae


def _keys(found: TunnelExamination) -> Found:
    for layer, tokens in dict.fromkeys((frame.layer, frame.tokens) for frame in found.keys):
        frames = [f for f in found.keys if (f.layer, f.tokens) == (layer, tokens)]
        first = min(frames, key=lambda frame: frame.cosine.value)
        best = first.cosine
        # one head of several was picked, so its p counts as often as there are heads
        p = None if best.p is None else min(1.0, best.p * len(frames))
        picked = Measured(value=best.value, interval=best.interval, nulls=best.nulls, p=p)
        where = f"L{layer} {tokens}"
        yield f"{where}, most orthogonal H{first.head}", "|cos|", picked
        nulls = {
            name: sum(frame.cosine.nulls[name] for frame in frames) / len(frames)
            for name in best.nulls
        }
        mean = sum(frame.cosine.value for frame in frames) / len(frames)
        yield f"{where}, mean over heads", "|cos|", Measured(value=mean, nulls=nulls)


def _focusing(found: TunnelExamination) -> Found:
    for focus in found.focusing:
        if focus.head is None:
            where = f"L{focus.layer}"
            yield where, "entropy / log visible", focus.entropy
            for role, mass in focus.mass.items():
                yield where, f"mass on {role}", mass
            if focus.alignment is not None:
                yield where, "alignment", focus.alignment


def _values(found: TunnelExamination) -> Found:
    for states in found.values:
        where = f"L{states.layer} {states.states}"
        yield where, "share of PC 1", states.share
        yield where, "participation ratio", states.participation
        if states.given_position is None:
            yield where, "|r(PC 1, entropy)|", states.order
        else:
            yield where, "|r(PC 1, entropy)| given step", states.given_position
        yield where, "R² of entropy", states.decodability


def _clusters(found: TunnelExamination) -> Found:
    for states in found.clusters:
        where = "embedding" if states.layer < 0 else f"L{states.layer}"
        yield where, "silhouette", states.silhouette
        yield where, "R² of belief", states.simplex
        yield where, "R² of entropy", states.entropy


def _beliefs(found: TunnelExamination) -> Found:
    for readout in found.beliefs:
        yield readout.states, "R² of hidden state", readout.r_squared


def _ablation(found: TunnelExamination) -> Found:
    for loss in found.ablation.losses if found.ablation else ():
        if loss.kind in ("zero", "bypass"):
            yield loss.name, "ΔKL, bits", loss.kl


def _sublayers(found: TunnelExamination) -> Found:
    for sublayer in found.sublayers:
        where = f"L{sublayer.layer} {sublayer.sublayer}"
        yield where, f"gain in R² of {sublayer.target}", sublayer.gain


def _drift(found: TunnelExamination) -> Found:
    for kind, numbers in found.drift.summary().items() if found.drift else ():
        for what in ("half-life", "settled"):
            straight = {"straight path": numbers[f"{what}, straight path"]}
            yield kind, f"{what}, step", Measured(value=numbers[what], nulls=straight)
