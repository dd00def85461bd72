"""geometry-focusing: do queries sharpen from layer to layer, onto hypotheses still possible?

    mass      attention on the earlier pairs with the asked key, where there are any
    entropy   of attention, over the log of the number of visible keys

Only where keys return is anything consistent: for a new key every earlier pair speaks of a value
that is taken, and there is no right place to look.
"""

from collections.abc import Mapping, Sequence

from bayesattn.claims.geometry_subjects import AGAIN, GeometryStudy, listed, subjects
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Numbers, Picture, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve
from bayesattn.probes.focusing import measure_focusing
from bayesattn.stats import judge_all, judge_effect

MASS, ENTROPY = "mass on consistent", "entropy"


@register("geometry-focusing")
class GeometryFocusing(GeometryStudy[Numbers]):
    """Follows attention through the layers of models trained with returning keys."""

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Entropy, mass, alignment and what depends on the query, by layer."""
        recipe = self.recipes[tier]
        found: dict[str, float | Sequence[float]] = {}
        for variant, (model, initial, tunnel) in subjects(tier, seed, recipe):
            layers = [
                focus
                for focus in measure_focusing(
                    model, tunnel, initial=initial, sequences=recipe.sequences
                )
                if focus.head is None
            ]
            own: dict[str, list[float]] = {
                ENTROPY: [focus.entropy.value for focus in layers],
                f"{ENTROPY} untrained": [focus.entropy.nulls["untrained"] for focus in layers],
                "own": [focus.own for focus in layers],
            }
            for role in layers[0].mass:
                masses = [focus.mass[role] for focus in layers]
                own[f"mass on {role}"] = [mass.value for mass in masses]
                for null in masses[0].nulls:
                    own[f"mass on {role} {null}"] = [mass.nulls[null] for mass in masses]
            if layers[0].alignment is not None:
                own["alignment"] = [focus.alignment.value for focus in layers if focus.alignment]
            found |= {f"{variant}: {name}": values for name, values in own.items()}
            for name in (MASS, ENTROPY, f"{MASS} untrained", f"{ENTROPY} untrained"):
                if name in own:
                    found[f"{variant}: {name}, last minus first"] = own[name][-1] - own[name][0]
            if MASS in own:
                beyond = own[MASS][-1] - own[f"{MASS} other sequences"][-1]
                found[f"{variant}: {MASS}, last beyond other sequences"] = beyond
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """All three, where keys return; the rise of the mass is what is reported."""
        untrained = {
            name: average(numbers, f"{AGAIN}: {name} untrained, last minus first")
            for name in (MASS, ENTROPY)
        }
        rise = judge_effect(
            by_seed(numbers, f"{AGAIN}: {MASS}, last minus first"), null=max(0.0, untrained[MASS])
        )
        fall = [-value for value in by_seed(numbers, f"{AGAIN}: {ENTROPY}, last minus first")]
        judgement = judge_all(
            {
                "rise of the mass": rise,
                "fall of the entropy": judge_effect(fall, null=max(0.0, -untrained[ENTROPY])),
                "mass beyond other sequences": judge_effect(
                    by_seed(numbers, f"{AGAIN}: {MASS}, last beyond other sequences")
                ),
            }
        )
        masses = " to ".join(f"{mass:.2f}" for mass in curve(numbers, f"{AGAIN}: {MASS}"))
        entropies = " to ".join(f"{bits:.2f}" for bits in curve(numbers, f"{AGAIN}: {ENTROPY}"))
        reason = f"{judgement.reason} Layer by layer, mass {masses}, entropy {entropies}."
        return self.verdict(
            judgement._replace(reason=reason, value=rise.value, interval=rise.interval),
            tier=tier,
            seeds=tuple(numbers),
            unit="more attention on consistent pairs in the last layer than in the first",
            null=untrained[MASS],
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Mass and entropy over the layers."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.5, 3), layout="constrained")
        for axes, name in zip(figure.subplots(1, 2), (MASS, ENTROPY), strict=True):
            for measured in numbers.values():
                axes.plot(listed(measured, f"{AGAIN}: {name}"), "o-", color="C0")
                axes.plot(listed(measured, f"{AGAIN}: {name} untrained"), "o:", color="C1")
            axes.set(xlabel="layer", ylabel=name, ylim=(0, 1.03))
            axes.set_xticks(range(len(curve(numbers, f"{AGAIN}: {name}"))))
        caption = (
            "Attention on earlier pairs with the asked key, and the entropy of attention over the "
            "log of the visible keys, by layer; dotted: before training; one line per seed."
        )
        return [Picture("layers", figure, caption, "Lines over the layers, two panels.")]
