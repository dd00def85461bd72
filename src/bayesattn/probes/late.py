"""Movement of attention and values late in a training.

    moved   (1 - CKA of a late checkpoint with the end) / (1 - CKA of the end with a sibling's)

A sibling is the same training with another seed, so 1 is the distance between the ends of two
trainings. Both are measured by linear CKA, which does not depend on the order of heads or on
rotations: attention rows at the scored positions, all heads side by side, and values at all
positions. Means over layers.
"""

from collections.abc import Mapping

from bayesattn.linear import linear_cka
from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import Captured, capture
from bayesattn.probes.drift import milestones
from bayesattn.probes.measured import NotApplicableError
from bayesattn.training import Run
from bayesattn.tunnels import Batch

LATE = 2 / 3
"""The authors compare checkpoints after 100,000 and after 150,000 steps."""
KINDS = ("attention", "values")


def late_step(run: Run) -> int:
    """The checkpoint nearest to two thirds of the training."""
    steps = milestones(run)
    late = min(steps, key=lambda step: abs(step - LATE * steps[-1]))
    if late in (steps[0], steps[-1]):
        raise NotApplicableError("the run kept no checkpoint late in training: pass --dynamics")
    return late


def moved(late: Predictor, end: Predictor, sibling: Predictor, batch: Batch) -> dict[str, float]:
    """By kind, the distance of a late model from the end; 1 is the distance of a sibling's end."""
    states = [_states(model, batch) for model in (late, end, sibling)]
    ways = (distances(states[at], states[1]) for at in (0, 2))
    drift, between = next(ways), next(ways)
    return {kind: drift[kind] / max(between[kind], 1e-12) for kind in KINDS}


def distances(first: Mapping[str, Captured], second: Mapping[str, Captured]) -> dict[str, float]:
    """1 - CKA of each kind, mean over layers."""
    found: dict[str, float] = {}
    for kind in KINDS:
        own = first[kind].tensors
        layers = [
            1 - linear_cka(*(side[kind][name].flatten(0, 1).flatten(1) for side in (first, second)))
            for name in own
        ]
        found[kind] = sum(layers) / len(layers)
    return found


def _states(model: Predictor, batch: Batch) -> dict[str, Captured]:
    anatomy(model).require_attention()
    rows = capture(model, batch.inputs, ["layers.*.attention"], batch.scored)
    return {"attention": rows, "values": capture(model, batch.inputs, ["layers.*.v"])}
