"""dynamics-frame-precision: does attention settle in training before the values do?

    settled        when what separates a curve from its end is a tenth of what it was at the start
    dissociation   log2( settling step of the values / settling step of attention )
    precision      log2( step from which the error is at most twice its end / the same )

Attention is compared with its end by Jensen-Shannon divergence, values by 1 - CKA. These measure
different things, so even weights that move straight to their end would give some dissociation; that
much, measured on the straight path, is taken off.
"""

from collections.abc import Mapping, Sequence

from bayesattn.claims.geometry_subjects import NEVER, GeometryStudy, training
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Exhibit, Numbers, Picture, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.probes.drift import KINDS, measure_drift
from bayesattn.stats import judge_all, judge_effect

SLOW = ("values", "precision")
"""What is said to go on when attention has settled: the values, and with them the error."""
DRAWN = {"attention": "C0", "values": "C1", "mae": "C3"}


@register("dynamics-frame-precision")
class DynamicsFramePrecision(GeometryStudy[Numbers]):
    """Follows attention, values and error through the checkpoints of trainings."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """With its checkpoints, which models that come along do not have."""
        return {NEVER: training(tier, NEVER, seed)}

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Curves over the checkpoints, settling steps and half-lives."""
        run = training(tier, NEVER, seed).train()
        drift = measure_drift(run, sequences=min(128, self.recipes[tier].sequences))
        found: dict[str, float | Sequence[float]] = {"step": drift.trained.steps}
        for kind, numbers in drift.summary().items():
            found |= {f"{kind}: {name}": value for name, value in numbers.items()}
            found[f"{kind}: curve"] = drift.trained.curves[kind]
            found[f"{kind}: curve, straight path"] = drift.straight.curves[kind]
        pairs = {
            kind: (drift.dissociation(kind), drift.dissociation_null(kind))
            for kind in KINDS
            if kind != "attention"
        }
        pairs["precision"] = (drift.precision(), drift.precision_null())
        for kind, (measured, straight) in pairs.items():
            found[f"{kind}: dissociation"] = measured
            found[f"{kind}: dissociation, straight path"] = straight
            found[f"{kind}: dissociation beyond the straight path"] = measured - straight
        found["mae: twice the end"] = drift.trained.reaching("mae")
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Values after attention, and error after attention."""
        parts = {
            f"{kind} after attention": judge_effect(
                by_seed(numbers, f"{kind}: dissociation beyond the straight path")
            )
            for kind in SLOW
        }
        judgement = judge_all(parts)
        steps = ", ".join(f"{kind} {average(numbers, f'{kind}: settled'):.0f}" for kind in DRAWN)
        twice = average(numbers, "mae: twice the end")
        beyond = average(numbers, "precision: dissociation beyond the straight path")
        reason = (
            f"{judgement.reason} Settled at step: {steps}; error at most twice its end from step "
            f"{twice:.0f} on, {beyond:.2g} doublings later than attention settles, beyond the "
            "straight path."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="doublings of training, beyond the straight path",
            null=0.0,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """What is left of the way, in training and on the straight path."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3), layout="constrained")
        titles = {"training": "", "straight path": ", straight path"}
        steps = curve(numbers, "step")
        for axes, (title, ending) in zip(
            figure.subplots(1, 2, sharey=True), titles.items(), strict=True
        ):
            for kind, colour in DRAWN.items():
                values = curve(numbers, f"{kind}: curve{ending}")
                whole = abs(values[0] - values[-1]) or 1.0
                left = [abs(value - values[-1]) / whole for value in values]
                label = "entropy error" if kind == "mae" else kind
                axes.plot(steps, left, "o-", ms=3, color=colour, label=label)
            axes.axhline(0.1, color="grey", ls=":")
            axes.set_xscale("symlog", linthresh=steps[1])
            axes.set(title=title, xlabel="step", xlim=(0, steps[-1]))
        figure.axes[0].set_ylabel("left of the way to the end")
        figure.axes[1].legend(fontsize=8)
        caption = "Attention, values and error on their way to where they end; means over seeds."
        return [Picture("settling", figure, caption, "Falling curves over the steps, two panels.")]

    def exhibits(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Exhibit]:
        """The same curves, to read off."""
        series: list[dict[str, object]] = []
        for kind in DRAWN:
            values = curve(numbers, f"{kind}: curve")
            whole = abs(values[0] - values[-1]) or 1.0
            left = [round(abs(value - values[-1]) / whole, 5) for value in values]
            series.append({"name": "entropy error" if kind == "mae" else kind, "y": left})
        data = {
            "x": curve(numbers, "step"),
            "series": series,
            "xLabel": "step of training",
            "yLabel": "left of the way to the end",
            "logX": True,
        }
        caption = "Attention, values and error on their way to where they end; means over seeds."
        title = "Drift through training"
        return [Exhibit(kind="curves", title=title, caption=caption, data=data)]
