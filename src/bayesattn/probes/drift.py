"""Drift of attention and values during training, compared with the final checkpoint.

    attention   mean Jensen-Shannon divergence of attention rows to the final ones, bits
    values      1 - CKA of values (and of attention outputs) with the final ones
    frame       overlap of the span of the keys' first r principal directions with the final one:
                1 at the end, r/d for random subspaces
    error       |H(model) - H(Bayes)| and KL(Bayes ‖ model), bits

on the same sequences at every checkpoint. A curve is settled when its distance to its end is a
tenth of the distance at the start, and half-settled at a half.

    dissociation = log2( settling step of the values / settling step of attention )
    precision    = log2( step from which the error is at most twice its end
                         / settling step of attention )

Both are positive if attention settles first. The two drifts are different functions of the weights,
so they do not settle together even on a straight path. The null is the straight line from the first
to the last weights, with the same progress at each checkpoint, measured in the same way.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor

from bayesattn.evals.fidelity import EVAL_SEED, quick_fidelity
from bayesattn.linear import linear_cka, principal_axes
from bayesattn.models.architectures import Predictor
from bayesattn.models.open import open_tunnel
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import Captured, capture
from bayesattn.probes.measured import NotApplicableError
from bayesattn.training import Run, TrainConfig
from bayesattn.training.schedule import checkpoint_steps
from bayesattn.tunnels import Batch

SETTLED, HALF = 0.1, 0.5
TWICE = 2.0
FEWEST_CHECKPOINTS = 3
KINDS = ("attention", "values", "attention outputs", "frame", "mae", "kl")


@dataclass(frozen=True, kw_only=True)
class Path:
    """Curves over the checkpoints, mean over layers; and by layer for the drifts."""

    steps: list[int]
    curves: dict[str, list[float]]
    """Curves by kind of `KINDS`. frame is 1 - overlap, so every curve falls to its end."""
    layers: dict[str, list[list[float]]]
    """The drifts of each layer with attention."""

    def settling(self, kind: str, share: float = SETTLED) -> float:
        """Step at which a curve is within `share` of its end; see `settling_step`."""
        return settling_step(self.steps, self.curves[kind], share)

    def reaching(self, kind: str) -> float:
        """Step from which a falling curve stays below `TWICE` its end."""
        curve = self.curves[kind]
        whole = abs(curve[0] - curve[-1]) or 1.0
        return settling_step(self.steps, curve, (TWICE - 1) * abs(curve[-1]) / whole)

    def dissociation(self, kind: str) -> float:
        """The ratio of its settling step to that of attention, log2."""
        return math.log2(self.settling(kind) / self.settling("attention"))

    def precision(self) -> float:
        """The ratio of the step of a small entropy error to that of settled attention, log2."""
        return math.log2(self.reaching("mae") / self.settling("attention"))


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A training and, as a null, the straight line between its ends."""

    trained: Path
    straight: Path
    frame_null: float
    """1 - r/d: what `frame` is for random subspaces."""

    def summary(self) -> dict[str, dict[str, float]]:
        """Settling steps and half-lives of every kind, in training and on the straight path."""
        return {
            kind: {
                "start": self.trained.curves[kind][0],
                "end": self.trained.curves[kind][-1],
                "half-life": self.trained.settling(kind, HALF),
                "settled": self.trained.settling(kind),
                "half-life, straight path": self.straight.settling(kind, HALF),
                "settled, straight path": self.straight.settling(kind),
            }
            for kind in KINDS
        }

    def summaries(self) -> dict[str, Any]:
        kinds = [kind for kind in KINDS if kind != "attention"]
        found: dict[str, Any] = {"summary": self.summary()}
        for name, path in {"": self.trained, ", straight path": self.straight}.items():
            found[f"dissociation{name}"] = {kind: path.dissociation(kind) for kind in kinds}
            found[f"precision{name}"] = path.precision()
        return found


def measure_drift(run: Run, *, sequences: int = 128, seed: int = EVAL_SEED) -> Drift:
    """Drift of the training of `run`, from its checkpoints."""
    steps = milestones(run)
    if len(steps) < FEWEST_CHECKPOINTS:
        kept = "no checkpoint" if not steps else f"{len(steps)} checkpoints, of the end only"
        kept = "one checkpoint only" if len(steps) == 1 else kept
        raise NotApplicableError(f"the run kept {kept}: train with --dynamics to follow a training")
    final, tunnel = open_tunnel(run, steps[-1])
    anatomy(final).require_attention()
    batch = tunnel.sample(sequences, Generator().manual_seed(seed))
    models = [open_tunnel(run, step)[0] for step in steps[:-1]]
    return follow(steps, [*models, final], batch)


def milestones(run: Run) -> list[int]:
    """Steps of the planned checkpoints of the run, and its last.

    Others were written after some time, so the machine determines whether they exist.
    """
    steps = run.steps()
    meant = {*checkpoint_steps(TrainConfig(**run.config["training"]).steps), *steps[-1:]}
    return [step for step in steps if step in meant]


def follow(steps: Sequence[int], models: Sequence[Predictor], batch: Batch) -> Drift:
    """Drift of `models`, the weights at `steps`, towards the last of them."""
    width, rank = _frame_size(models[-1])
    return Drift(
        trained=_path(steps, models, batch),
        straight=_path(steps, straight_path(models), batch),
        frame_null=1 - rank / width,
    )


def straight_path(models: Sequence[Predictor]) -> Iterator[Predictor]:
    """Equally many models on the line from the first to the last weights, with equal progress.

    Progress is 1 - ‖θ - θ_end‖ / ‖θ_start - θ_end‖.
    """
    import copy

    start, end = (_weights(models[at]) for at in (0, -1))
    whole = (start - end).norm()
    for model in models:
        left = float((_weights(model) - end).norm() / whole.clamp(min=1e-30))
        between = copy.deepcopy(model)
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(
                end + min(left, 1.0) * (start - end), between.parameters()
            )
        yield between


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """JS(p, q) in bits over the last dimension: between 0 and 1."""
    first, second = first.double(), second.double()
    middle = (first + second) / 2
    divergence = torch.zeros(first.shape[:-1], dtype=torch.float64)
    for p in (first, second):
        divergence += (torch.xlogy(p, p) - torch.xlogy(p, middle)).sum(-1) / 2
    return (divergence / math.log(2)).clamp(min=0)


def subspace_overlap(first: Tensor, second: Tensor, rank: int) -> float:
    """Mean cos² of the angles between the first `rank` principal directions of rows [n, d]."""
    spans = [principal_axes(rows)[1][:rank] for rows in (first, second)]
    return float((spans[0] @ spans[1].T).square().sum() / rank)


def settling_step(steps: Sequence[int], curve: Sequence[float], share: float) -> float:
    """First step from which |curve - end| stays within `share` of |start - end|.

    The curve is interpolated linearly between checkpoints. The result is at least half the first
    interval, so a ratio of two steps exists.
    """
    away = [abs(value - curve[-1]) for value in curve]
    limit = share * away[0]
    least = steps[1] / 2
    for (a, x), (b, y) in reversed([*pairwise(zip(steps, away, strict=True))]):
        if x > limit:
            return max(least, a + (b - a) * (x - limit) / max(x - y, 1e-30))
    return least


def _path(steps: Sequence[int], models: Any, batch: Batch) -> Path:
    names = ["layers.*.attention", "layers.*.v", "layers.*.head_outputs", "layers.*.k"]
    models = list(models)
    end = capture(models[-1], batch.inputs, names, batch.scored)
    layers: dict[str, list[list[float]]] = {kind: [] for kind in KINDS[:4]}
    curves: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for model in models:
        now = capture(model, batch.inputs, names, batch.scored)
        for kind, by_layer in _distances(model, now, end).items():
            layers[kind].append(by_layer)
            curves[kind].append(sum(by_layer) / len(by_layer))
        fidelity = quick_fidelity(model, batch)
        curves["mae"].append(fidelity["mae_tok"])
        curves["kl"].append(fidelity["kl"])
    return Path(steps=[*steps], curves=curves, layers=layers)


def _distances(model: Predictor, now: Captured, end: Captured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {kind: [] for kind in KINDS[:4]}
    _, rank = _frame_size(model)
    for layer in anatomy(model).attending:
        at = f"layers.{layer}."
        rows = jensen_shannon(now[f"{at}attention"], end[f"{at}attention"])
        found["attention"].append(float(rows.mean()))
        for kind, name in (("values", "v"), ("attention outputs", "head_outputs")):
            flat = (states[at + name].flatten(0, 1).flatten(1) for states in (now, end))
            found[kind].append(1 - linear_cka(*flat))
        heads = zip(now[f"{at}k"].unbind(2), end[f"{at}k"].unbind(2), strict=True)
        overlaps = [subspace_overlap(x.flatten(0, 1), y.flatten(0, 1), rank) for x, y in heads]
        found["frame"].append(1 - sum(overlaps) / len(overlaps))
    return found


def _frame_size(model: Predictor) -> tuple[int, int]:
    """Width of a head, and number of directions of the frame: a quarter of the width."""
    parts = anatomy(model)
    width = parts.attention(parts.attending[0]).width
    return width, max(1, width // 4)


def _weights(model: Predictor) -> Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()
