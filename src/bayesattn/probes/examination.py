"""Every probe of one run; those that mean nothing for it say so, and the others go on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.models.architectures import Predictor, build
from bayesattn.models.open import open_tunnel
from bayesattn.probes.ablation import Ablations, measure_ablations
from bayesattn.probes.clusters import Clusters, measure_clusters
from bayesattn.probes.drift import Drift, measure_drift
from bayesattn.probes.ffn import Sublayer, measure_sublayers
from bayesattn.probes.focusing import Focus, measure_focusing
from bayesattn.probes.keys import KeyFrame, measure_keys
from bayesattn.probes.measured import NotApplicableError, plain
from bayesattn.probes.selfcheck import SelfCheck, check_capture
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.training import Run
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Tunnel

FEWEST_SEQUENCES = 64
CHECKED = 16


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is looked at: a trained model, the same before training, and its task."""

    run: Run
    model: Predictor
    initial: Predictor
    tunnel: Tunnel
    step: int

    @classmethod
    def load(cls, run: Run, step: int | None = None) -> "Subject":
        """The model of `run` at `step`, or at the end."""
        model, tunnel = open_tunnel(run, step)
        _, architecture, config = parse_config(run)
        initial = build(architecture, tunnel, config.seed).eval()
        at = run.checkpoint(step).step
        return cls(run=run, model=model, initial=initial, tunnel=tunnel, step=at)

    @property
    def about(self) -> dict[str, Any]:
        """What it is, in plain values."""
        return {
            "tunnel": self.tunnel.to_dict(),
            "architecture": self.model.architecture.to_dict(),
            "step": self.step,
            "parameters": sum(p.numel() for p in self.model.parameters() if p.requires_grad),
        }


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What all probes found; None, or an empty list, for those that do not apply."""

    about: dict[str, Any]
    sequences: int
    check: SelfCheck
    ablation: Ablations | None = None
    keys: list[KeyFrame] = field(default_factory=list)
    focusing: list[Focus] = field(default_factory=list)
    values: list[Manifold] = field(default_factory=list)
    sublayers: list[Sublayer] = field(default_factory=list)
    clusters: list[Clusters] = field(default_factory=list)
    drift: Drift | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a probe does not apply, by its name."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        found = plain(self)
        found["focusing"] = [focus.to_dict() for focus in self.focusing]
        found["drift"] = None if self.drift is None else self.drift.to_dict()
        return found


def examine(
    subject: Subject,
    *,
    sequences: int = 256,
    seed: int = EVAL_SEED,
    tell: Callable[[str], None] = lambda _: None,
) -> Examination:
    """Make every probe that applies.

    Args:
        subject: what to look at.
        sequences: held-out sequences behind every number.
        seed: of the sequences.
        tell: is told which probe comes next.
    """
    if sequences < FEWEST_SEQUENCES:
        raise ValueError(f"sequences must be {FEWEST_SEQUENCES} or more, not {sequences}")
    model, tunnel = subject.model, subject.tunnel
    batch = tunnel.sample(sequences, torch.Generator().manual_seed(seed))
    check = check_capture(model, batch.inputs[:CHECKED])
    check.require()
    options: dict[str, Any] = {"initial": subject.initial, "sequences": sequences, "seed": seed}
    probes: dict[str, Callable[[], Any]] = {
        "keys": lambda: measure_keys(model, tunnel, **options),
        "focusing": lambda: measure_focusing(model, tunnel, **options),
        "values": lambda: measure_values(model, tunnel, **options),
        "clusters": lambda: measure_clusters(model, tunnel, **options),
        "ablation": lambda: measure_ablations(model, batch),
        "sublayers": lambda: measure_sublayers(model, tunnel, **options),
        "drift": lambda: measure_drift(subject.run, sequences=min(sequences, 128), seed=seed),
    }
    found: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for name, probe in probes.items():
        tell(name)
        try:
            found[name] = probe()
        except NotApplicableError as reason:
            skipped[name] = str(reason)
    return Examination(
        about=subject.about, sequences=sequences, check=check, skipped=skipped, **found
    )
