"""cot-extender: does a written step buy a model another round of inference?

    error = | H(model) - H(Bayes) | of the answer, in bits, by number of hops k

of small transformers that follow a partly revealed permutation for k hops (`tunnels/hops.py`),
directly or with a scratch that they write themselves. k*(L), the knee, is the number of hops up to
which a model of L layers has an error below 0.05 bits.

The rule, stated before any run. At the smallest depth the claim needs all of

    knee      direct runs out of layers: its error at the largest k exceeds 0.05 bits
    filler    the scratch is more than room: the error with blanks exceeds that with chain of
              thought by 0.05 bits, on average over k >= 2
    mastery   chain of thought has no knee: its largest error over k is below 0.05 bits
    use       the written symbol is what counts: after one is overwritten, the answer is nearer to
              the posterior that follows from it than to the old one, by 1 bit of KL or more

and is falsified if filler equals chain of thought, or if direct shows no knee. All of it is judged
only if direct has learnt one hop, which needs no chain. Depth, other scratches, groups, geometry
and a language model are recorded beside it and decide nothing.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from bayesattn.claims.chain_arms import ChainRecipe, arm_name, track_name
from bayesattn.claims.chain_language import measure_language
from bayesattn.claims.registry import register
from bayesattn.evals.chains import (
    LIMIT,
    Bayes,
    knee,
    measure_hops,
    measure_overwriting,
    measure_tracking,
)
from bayesattn.ledger.study import Claim, Numbers, Picture, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.probes.chain import measure_chain
from bayesattn.stats import judge_all, judge_below, judge_effect, judge_given, mean_interval
from bayesattn.tunnels import GroupFilter, Hops

FOLLOWED = 1.0
"""Bits by which the overwritten symbol must explain the answer better than the old one."""


@register
class CotExtender(Study[ChainRecipe, Numbers]):
    """Trains models on hops with and without scratch, and lets them write it themselves."""

    claim = Claim(
        id="cot-extender",
        statement="Chain of thought extends inference: each written step is another pass, so that "
        "a model that runs out of layers goes on exactly.",
        source="Misra, Attention Is Bayesian Inference, essay of December 2025 on arXiv 2512.22471",
        reported="no experiment: a picture of short moves along the manifold against one long jump",
    )
    method = (
        "Small transformers of one size follow a partly revealed permutation for a number of hops, "
        "directly, with each hop written down, with as many blanks, with the hops of another "
        "sequence or with each second hop. They write their scratch themselves, many times, and "
        "the mean of their answers is compared with the exact posterior. The claim needs a knee "
        "without a scratch, none with it, blanks that do not help, and answers that follow an "
        "overwritten symbol."
    )
    null = "Blanks in place of the written hops: they save nothing over themselves."
    recipes = MappingProxyType(
        {
            Tier.QUICK: ChainRecipe(
                seeds=2,
                alphabet=6,
                hops=3,
                arms=(("direct", 2), ("cot", 2), ("filler", 2)),
                width=48,
                steps=600,
                lr=4e-3,
                sequences=240,
                chains=32,
                prompts=2,
            ),
            Tier.FULL: ChainRecipe(
                seeds=3,
                alphabet=8,
                hops=6,
                arms=(
                    *(("direct", depth) for depth in (2, 3, 4)),
                    *(("cot", depth) for depth in (2, 4)),
                    *(("filler", depth) for depth in (2, 4)),
                    ("shuffled", 2),
                    *(("short", depth) for depth in (2, 4)),
                ),
                tracks=(("S5", "none"), ("S5", "filler"), ("S5", "product"), ("Z5", "none")),
                track_steps=3000,
                width=64,
                steps=4500,
                sequences=1200,
                prompts=50,
            ),
            Tier.PAPER: ChainRecipe(
                seeds=5,
                alphabet=16,
                hops=8,
                arms=tuple(
                    (mode, depth)
                    for mode in ("direct", "cot", "filler", "shuffled", "short")
                    for depth in (2, 3, 4, 6)
                ),
                tracks=tuple(
                    (group, scratch)
                    for group in ("S5", "Z5")
                    for scratch in ("none", "filler", "product", "argmax")
                ),
                width=128,
                steps=20_000,
                track_steps=20_000,
                batch_size=128,
                lr=2e-3,
                sequences=1600,
                prompts=50,
            ),
        }
    )

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """Every arm at its depths, then the groups."""
        return self.recipes[tier].trainings(seed)

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Errors by number of hops, overwritten scratch, geometry; errors by step of groups."""
        recipe = self.recipes[tier]
        found: dict[str, float | Sequence[float]] = {}
        for arm in recipe.arms:
            found |= _measure_arm(recipe, arm_name(arm), recipe.hops_training(arm, seed))
        bayes = Hops(recipe.alphabet, recipe.hops, mode="cot")
        ideal = measure_hops(Bayes(bayes), bayes, sequences=recipe.sequences, chains=recipe.chains)
        found["noise of chains: error"] = [score.mae for score in ideal]
        for track in recipe.tracks:
            training = recipe.track_training(track, seed)
            assert isinstance(training.tunnel, GroupFilter)
            errors = measure_tracking(training.model(), training.tunnel)
            found |= {f"{track_name(track)}: {name}": values for name, values in errors.items()}
        return found | measure_language(recipe.prompts, seed)

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """By the rule at the top of this file."""
        recipe = self.recipes[tier]
        depth = recipe.depths[0]
        direct, cot, filler = (arm_name((mode, depth)) for mode in ("direct", "cot", "filler"))
        errors = {name: _errors(numbers, name) for name in (direct, cot, filler)}
        gain = (errors[filler] - errors[cot])[:, 1:].mean(1)
        parts = {
            "knee": judge_effect(errors[direct][:, -1], minimum=LIMIT),
            "filler": judge_effect(gain, minimum=LIMIT),
            "mastery": judge_below(errors[cot].max(1), limit=LIMIT),
            "use": judge_effect(by_seed(numbers, f"{cot}: followed"), minimum=FOLLOWED),
        }
        learnt = judge_below(errors[direct][:, 0], limit=LIMIT)
        judgement = judge_given("One hop without scratch", learnt, judge_all(parts))
        # whichever part decides, the number to show is what written hops save over blanks
        shown = judgement._replace(
            value=parts["filler"].value,
            interval=parts["filler"].interval,
            reason=f"{judgement.reason} {_summary(recipe, numbers)}",
        )
        return self.verdict(
            shown,
            tier=tier,
            seeds=tuple(numbers),
            unit="bits of error that written hops save over blanks",
            null=0.0,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Errors by number of hops, one panel for each depth; of groups by step."""
        from matplotlib.figure import Figure

        recipe = self.recipes[tier]
        depths = sorted({depth for _, depth in recipe.arms})
        modes = list(dict.fromkeys(mode for mode, _ in recipe.arms))
        hops = range(1, recipe.hops + 1)
        figure = Figure(figsize=(2.2 + 2.6 * len(depths), 3.6), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(depths), sharey=True))
        for axes, depth in zip(panels, depths, strict=True):
            for arm in (arm for arm in recipe.arms if arm[1] == depth):
                name, colour = f"{arm_name(arm)}: error", f"C{modes.index(arm[0])}"
                for seed, found in numbers.items():
                    axes.plot(hops, curve({seed: found}, name), lw=0.6, alpha=0.5, color=colour)
                axes.plot(hops, curve(numbers, name), "o-", ms=3, color=colour, label=arm[0])
            floor = curve(numbers, "noise of chains: error")
            axes.plot(hops, floor, color="grey", lw=1, label="Bayes, sampled")
            axes.axhline(LIMIT, color="grey", ls=":")
            axes.set(title=f"{depth} layers", xlabel="hops", xticks=hops)
            axes.set(yscale="log", ylim=(5e-4, 5))
        panels[0].set_ylabel("|H(model) - H(Bayes)|, bits")
        # the smallest depth has every arm
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
        caption = (
            "Error of the answer by number of hops, scratch written by the model itself; dotted: "
            "what counts as mastered; means over seeds, and each seed in a thin line."
        )
        alt = "One panel per depth, one line per arm over the number of hops."
        pictures = [Picture("hops", figure, caption, alt)]
        if recipe.tracks:
            pictures.append(_draw_tracks(recipe, numbers))
        return pictures


def _measure_arm(
    recipe: ChainRecipe, name: str, training: TunnelTraining
) -> dict[str, float | Sequence[float]]:
    tunnel, model = training.tunnel, training.model()
    assert isinstance(tunnel, Hops)
    scores = measure_hops(model, tunnel, sequences=recipe.sequences, chains=recipe.chains)
    errors = [score.mae for score in scores]
    found: dict[str, float | Sequence[float]] = {
        f"{name}: error": errors,
        f"{name}: kl": [score.kl for score in scores],
        f"{name}: error given the chain": [score.conditional_mae for score in scores],
        f"{name}: kl given the chain": [score.conditional_kl for score in scores],
        f"{name}: accuracy": [score.accuracy for score in scores],
        f"{name}: knee": float(knee(errors)),
    }
    if scores[-1].scratch_mae:
        found[f"{name}: scratch error"] = list(scores[-1].scratch_mae)
    if tunnel.mode == "cot":
        changed = measure_overwriting(model, tunnel, sequences=recipe.sequences)
        found[f"{name}: kl to overwritten"] = changed.kl_followed
        found[f"{name}: kl to old"] = changed.kl_ignored
        found[f"{name}: followed"] = changed.kl_ignored - changed.kl_followed
    way = measure_chain(model, tunnel)
    found[f"{name}: longest hop over layers"] = way.layers.largest
    found[f"{name}: path over layers"] = way.layers.path
    if way.steps is not None:
        found[f"{name}: longest hop over steps"] = way.steps.largest
        found[f"{name}: path over steps"] = way.steps.path
    if way.order is not None:
        found[f"{name}: order by entropy"] = way.order
    return found


def _errors(
    numbers: Mapping[int, Numbers], name: str
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """[seeds, hops]."""
    return np.array([found[f"{name}: error"] for found in numbers.values()])


def _summary(recipe: ChainRecipe, numbers: Mapping[int, Numbers]) -> str:
    """Knees of all arms with their intervals, and what became of an overwritten symbol."""
    knees: list[str] = []
    for arm in recipe.arms:
        values = by_seed(numbers, f"{arm_name(arm)}: knee")
        interval = mean_interval(values)
        ends = f" [{interval.low:.2g}, {interval.high:.2g}]" if interval else ""
        knees.append(f"{arm_name(arm)} {np.mean(values):.2g}{ends}")
    cot = arm_name(("cot", recipe.depths[0]))
    return (
        f"Knees of {recipe.hops} hops: {'; '.join(knees)}. Overwritten symbol: "
        f"{average(numbers, f'{cot}: kl to overwritten'):.2g} bits from what follows from it, "
        f"{average(numbers, f'{cot}: kl to old'):.2g} from the old answer."
    )


def _draw_tracks(recipe: ChainRecipe, numbers: Mapping[int, Numbers]) -> Picture:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot(yscale="log")
    for track in recipe.tracks:
        errors = curve(numbers, f"{track_name(track)}: mae")
        axes.plot(range(1, len(errors) + 1), errors, label=track_name(track))
    axes.set(xlabel="step", ylabel="|H(model) - H(Bayes)|, bits")
    axes.legend(fontsize=8)
    caption = (
        f"Tracking a point moved by a group, {recipe.depths[0]} layers: products of S5 are serial, "
        "those of Z5 are sums; means over seeds."
    )
    return Picture("groups", figure, caption, "One line per group and scratch over the steps.")
