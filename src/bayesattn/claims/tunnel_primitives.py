"""tunnel-primitives: which architecture can accumulate, transport and bind?

    share = 1 - KL(Bayes ‖ model) / KL(Bayes ‖ uniform)

of the divergence that the uniform predictor leaves, on three tasks: bijections (accumulation of
evidence), hidden Markov models (transport of belief) and recall (random-access binding). Unlike an
entropy error the share rewards only the right distribution; it is 1 for Bayes and 0 for uniform.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from bayesattn.claims.equal_terms import TRANSFORMER, EqualRecipe, Scores
from bayesattn.claims.registry import register
from bayesattn.claims.tunnel_mlp import TunnelMLP
from bayesattn.ledger.study import Claim, Picture, Study, Tier, Verdict
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.stats import judge_all, judge_below, judge_effect

TASKS = ("accumulation", "transport", "binding")
OTHERS = ("mamba", "lstm", "mlp convolution", "mlp position")
SHARE = 0.9
"""An architecture has a primitive if it removes so much of the divergence."""


@register
class TunnelPrimitives(Study[EqualRecipe, Scores]):
    """Trains five architectures of one size on the tasks of three primitives."""

    claim = Claim(
        id="tunnel-primitives",
        statement="Only the transformer has all three primitives of inference: accumulation, "
        "transport and random-access binding.",
        source="Agarwal et al., The Bayesian Geometry of Transformer Attention, arXiv 2512.22471: "
        "version 3, abstract",
        reported="transformer 3 of 3, Mamba 2, LSTM 1, MLP 0",
    )
    method = (
        "Five architectures with as many parameters (within 2%) are trained on the same sequences "
        "of each task with the same optimiser. An architecture has a primitive if it removes 90% "
        "of the divergence from Bayes that the uniform predictor leaves. The claim holds if the "
        "transformer has all three and no other architecture has."
    )
    null = "The uniform predictor, share 0."
    # The quick tier shares its models with tunnel-mlp. Beyond, the transformer begins with slopes
    # that single out a token's neighbours: with ALiBi's it did not find recall in 3,000 steps.
    recipes = MappingProxyType(
        {
            Tier.QUICK: TunnelMLP.recipes[Tier.QUICK],
            Tier.FULL: replace(TunnelMLP.recipes[Tier.FULL], init="sharp", recall_steps=6000),
            Tier.PAPER: replace(TunnelMLP.recipes[Tier.PAPER], init="sharp"),
        }
    )

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """Every architecture on every task."""
        return self.recipes[tier].trainings(TASKS, (TRANSFORMER, *OTHERS), seed)

    def measure(self, tier: Tier, seed: int) -> Scores:
        """Everyone on every task."""
        return self.recipes[tier].scores(TASKS, (TRANSFORMER, *OTHERS), seed)

    def judge(self, tier: Tier, found: Mapping[int, Scores]) -> Verdict:
        """The transformer's weakest primitive, then the others' weakest."""
        by_task = {
            name: {task: [one[task][name].share for one in found.values()] for task in TASKS}
            for name in (TRANSFORMER, *OTHERS)
        }
        weakest = {
            name: min(TASKS, key=lambda task, own=own: sum(own[task]))
            for name, own in by_task.items()
        }
        shares = {name: by_task[name][task] for name, task in weakest.items()}
        own = judge_effect(shares[TRANSFORMER], minimum=SHARE)
        parts = {TRANSFORMER: own} | {n: judge_below(shares[n], limit=SHARE) for n in OTHERS}
        labels = {TRANSFORMER: f"{TRANSFORMER}, {weakest[TRANSFORMER]}"}
        labels |= {name: f"{name} lacks {weakest[name]}" for name in OTHERS}
        judgement = judge_all({labels[name]: part for name, part in parts.items()})
        decides = next(name for name, part in parts.items() if part.value == judgement.value)
        count = ", ".join(
            f"{name} {sum(np.mean(values) >= SHARE for values in own.values())}"
            for name, own in by_task.items()
        )
        return self.verdict(
            judgement._replace(reason=f"{judgement.reason} Primitives by the mean: {count}."),
            tier=tier,
            seeds=tuple(found),
            unit=f"share of the weakest primitive of {decides}",
            null=0.0,
        )

    def draw(self, tier: Tier, found: Mapping[int, Scores]) -> list[Picture]:
        """A table of shares."""
        from matplotlib.figure import Figure

        names = (TRANSFORMER, *OTHERS)
        figure = Figure(figsize=(8, 2.8), layout="constrained")
        for axes, task in zip(figure.subplots(1, 3, sharey=True), TASKS, strict=True):
            for row, name in enumerate(names):
                shares = [one[task][name].share for one in found.values()]
                axes.plot(shares, [row] * len(shares), "o", color=f"C{row}", alpha=0.7)
            axes.axvline(SHARE, color="grey", ls=":")
            axes.set(title=task, xlabel="share of divergence removed", xlim=(-0.1, 1.05))
            axes.set_yticks(range(len(names)), names)
        caption = "Share of the uniform predictor's divergence removed; each point is a seed."
        alt = "Shares from 0 to 1 per task and architecture, the threshold as a dotted line."
        return [Picture("primitives", figure, caption, alt)]
