"""tunnel-mlp: do MLPs of the same size fail where a transformer succeeds?

An MLP that sees one position only cannot infer anything from the context; that it equals the
uniform predictor says nothing about attention. So three more see the context: all embeddings side
by side, their running mean, and a stack of causal convolutions.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from bayesattn.claims.equal_terms import TRANSFORMER, EqualRecipe, Scores
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Claim, Picture, Study, Tier, Verdict
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.stats import judge_all, judge_effect

TASKS = ("accumulation", "transport")
CONTEXTS = ("mlp flattened", "mlp mean", "mlp convolution")
BLIND = "mlp position"
FACTOR = 10.0
"""To fail is to be off by so many times the transformer's error."""


@register
class TunnelMLP(Study[EqualRecipe, Scores]):
    """Trains a transformer and four MLPs of its size on bijections and hidden Markov models."""

    claim = Claim(
        id="tunnel-mlp",
        statement="MLPs of the same capacity fail at inference that transformers do: attention is "
        "necessary.",
        source="Agarwal et al., The Bayesian Geometry of Transformer Attention, arXiv 2512.22471: "
        "sections 3 and 4, table 1",
        reported="bijection 1.85 bits and hidden Markov model 0.40 bits, both the uniform "
        "predictor's error",
    )
    method = (
        "A transformer and four MLPs with as many parameters (within 2%) are trained on the same "
        "sequences with the same optimiser. An MLP fails a task if its entropy error is more than "
        "ten times the transformer's. The claim holds if every MLP that can see the context fails "
        "both tasks."
    )
    null = (
        "The transformer itself, ratio 1. The MLP that sees no context and the uniform predictor, "
        "which it should equal, are recorded beside it."
    )
    recipes = MappingProxyType(
        {
            Tier.QUICK: EqualRecipe(
                seeds=2,
                alphabet=10,
                states=3,
                length=10,
                pairs=2,
                layers=2,
                width=64,
                steps=300,
                recall_steps=300,
                batch_size=32,
            ),
            Tier.FULL: EqualRecipe(
                seeds=3,
                alphabet=20,
                states=5,
                length=20,
                pairs=4,
                layers=3,
                width=64,
                steps=2000,
                recall_steps=3000,
            ),
            Tier.PAPER: EqualRecipe(
                seeds=5,
                alphabet=20,
                states=5,
                length=20,
                pairs=64,
                layers=6,
                width=192,
                heads=6,
                steps=50_000,
                recall_steps=50_000,
                batch_size=256,
                lr=1e-3,
            ),
        }
    )

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """The transformer and every MLP on both tasks."""
        return self.recipes[tier].trainings(TASKS, (TRANSFORMER, BLIND, *CONTEXTS), seed)

    def measure(self, tier: Tier, seed: int) -> Scores:
        """Everyone on both tasks."""
        return self.recipes[tier].scores(TASKS, (TRANSFORMER, BLIND, *CONTEXTS), seed)

    def judge(self, tier: Tier, found: Mapping[int, Scores]) -> Verdict:
        """The MLP that comes nearest to the transformer decides."""
        ratios = {
            f"{name}, {task}": [
                one[task][name].error / one[task][TRANSFORMER].error for one in found.values()
            ]
            for task in TASKS
            for name in CONTEXTS
        }
        ordered = sorted(ratios.items(), key=lambda item: sum(item[1]))
        judgement = judge_all(
            {name: judge_effect(values, minimum=FACTOR) for name, values in ordered}
        )
        blind = max(
            abs(one[task][BLIND].error - one[task][BLIND].uniform_error)
            for one in found.values()
            for task in TASKS
        )
        reason = (
            f"{judgement.reason} The MLP without context is within {blind:.2g} bits of the "
            "uniform predictor."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(found),
            unit="times the transformer's error",
            null=1.0,
        )

    def draw(self, tier: Tier, found: Mapping[int, Scores]) -> list[Picture]:
        """Errors of everyone, one panel per task."""
        from matplotlib.figure import Figure

        names = (TRANSFORMER, *CONTEXTS, BLIND)
        figure = Figure(figsize=(8, 2.8), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            for row, name in enumerate(names):
                errors = [one[task][name].error for one in found.values()]
                axes.plot(errors, [row] * len(errors), "o", color=f"C{row}", alpha=0.7)
            uniform = [one[task][TRANSFORMER].uniform_error for one in found.values()]
            axes.axvline(float(np.mean(uniform)), color="grey", ls=":")
            axes.set(xscale="log", title=task, xlabel="entropy error, bits (dotted: uniform)")
            axes.set_yticks(range(len(names)), names)
        caption = "Entropy error of models of one size; each point is a seed."
        alt = "Errors on a logarithmic axis, the uniform predictor as a dotted line."
        return [Picture("errors", figure, caption, alt)]
