"""Which sublayer brings the prediction nearer to the answer? Linear probes before and after each.

    gain        R² of a probe refitted after the sublayer - R² of one fitted before it
    carried     R² after the sublayer of the probe fitted before it: whether the sublayer writes
                along the direction that already has the answer

for the entropy of the exact posterior and for the posterior itself, on held-out sequences. Two
places need refitted probes, because a sublayer may rotate the code without loss.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from bayesattn.bits import entropy
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.measured import (
    RESAMPLES,
    Measured,
    NotApplicableError,
    Untrained,
    beside_each,
)
from bayesattn.probes.readout import fit, r_squared, split
from bayesattn.stats import percentiles, resampling_weights
from bayesattn.tunnels import Batch


@dataclass(frozen=True)
class Sublayer:
    """One sublayer and one target."""

    layer: int
    sublayer: str
    """attention or feed-forward."""
    target: str
    """entropy or posterior."""
    before: float
    """Held-out R² before the sublayer."""
    after: float
    """Held-out R² of a probe refitted after it."""
    gain: Measured
    """after - before, beside the untrained network."""
    carried: float


def measure_sublayers(model: nn.Module, batch: Batch, initial: Untrained = None) -> list[Sublayer]:
    """Every sublayer of every layer, for both targets."""
    if not anatomy(model).attending:
        raise NotApplicableError(f"this {anatomy(model).kind} has no sublayers to tell apart")
    split(len(batch.inputs))
    targets = {"entropy": entropy(batch.posterior)[..., None], "posterior": batch.posterior}
    found = _probe(model, batch.inputs, batch.scored, targets)
    if initial is None:
        return found
    start = _probe(initial, batch.inputs, batch.scored, targets)
    return [beside_each(one, untrained=other) for one, other in zip(found, start, strict=True)]


def compare(
    before: Tensor, after: Tensor, y: Tensor, layer: int = 0, sublayer: str = "", target: str = ""
) -> Sublayer:
    """The sublayer between states [N, S, d] before and after, for targets y [N, S, c]."""
    train, test = split(len(y))
    y = y.double()
    probes = fit(before[train], y[train]), fit(after[train], y[train])
    errors = [
        probe.squares(x[test], y[test])[0].sum(1)
        for probe, x in zip(probes, (before, after), strict=True)
    ]
    spread = probes[0].squares(before[test], y[test])[1].sum(1)
    draws = resampling_weights(len(spread), RESAMPLES)
    resampled = (draws @ (errors[0] - errors[1])) / (draws @ spread).clamp(min=1e-30)
    first, second = (float(1 - error.sum() / spread.sum()) for error in errors)
    gain = Measured(value=second - first, interval=percentiles(resampled))
    carried = r_squared(probes[0], after[test], y[test]).value
    return Sublayer(layer, sublayer, target, first, second, gain, carried)


def _probe(
    model: nn.Module, inputs: Tensor, positions: Tensor, targets: dict[str, Tensor]
) -> list[Sublayer]:
    found: list[Sublayer] = []
    for layer in range(len(anatomy(model).layers)):
        names = [f"layers.{layer}.residual_{place}" for place in ("before", "mid", "after")]
        captured = capture(model, inputs, names, positions)
        attends = layer in anatomy(model).attending
        places = {"attention": names[:2], "feed-forward": names[1:]}
        for sublayer, (first, second) in places.items():
            if sublayer == "attention" and not attends:
                continue
            found += [
                compare(captured[first], captured[second], y, layer, sublayer, target)
                for target, y in targets.items()
            ]
    return found
