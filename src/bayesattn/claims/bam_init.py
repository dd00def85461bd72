"""bam-init: how should a learned prior begin?

    lead = accuracy(all heads uniform at first) - accuracy(best other beginning)

at the farthest length, for one small model that is trained alike from each beginning. Beside it
what else a learned prior may do without: moving, negative shapes, one of its own in every layer.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from bayesattn.claims.bam_retrieval import BamRetrieval
from bayesattn.claims.reach import (
    Accuracies,
    ReachRecipe,
    ReachStudy,
    draw_reach,
    farthest,
    inside,
    tell_reach,
)
from bayesattn.claims.registry import register
from bayesattn.ledger.language_models import (
    FROZEN,
    PUBLISHED,
    SOONER,
    UNIFORM,
)
from bayesattn.ledger.study import Claim, Picture, Tier, Verdict
from bayesattn.stats import judge_effect, judge_given

BEGINNINGS = (UNIFORM, "GGD alibi, slow + SSMax", "GGD sampled, slow + SSMax", SOONER)
"""All heads uniform, all local, drawn at random, half local and half uniform."""
ABLATIONS = (
    PUBLISHED,
    "GGD mixed + SSMax",
    FROZEN,
    "GGD mixed, slow + SSMax on content",
    "GGD mixed positive, slow + SSMax",
    "GGD mixed shared, slow + SSMax",
)
"""At the rate of the rest, not at all, and what else may be left out; nothing is judged by them."""
ALL = (*BEGINNINGS, *ABLATIONS)
LENGTHS = ("1x", "2x", "4x", "8x", "16x", "32x", "64x", "128x")
LEARNT = 0.8
"""Accuracy at the training length that one of the beginnings must reach."""


def _recipe(tier: Tier, **changes: Any) -> ReachRecipe:
    return replace(BamRetrieval.recipes[tier], judged=UNIFORM, **changes)


@register
class BamInit(ReachStudy):
    """Trains one model from several beginnings and asks for passkeys at growing lengths."""

    claim = Claim(
        id="bam-init",
        statement="Of all ways to begin, a learned prior that is uniform in every head at first "
        "finds passkeys farthest.",
        source="Bianchessi et al., Bayesian Attention Mechanism, arXiv 2505.22842: ablation H.1",
        reported="all parameters 0 at first are best (third-party notes on the paper)",
    )
    method = (
        "The model of bam-retrieval, with SSMax, is trained alike from priors that are uniform in "
        "all heads, local in all (slopes of ALiBi), drawn at random, or half local and half "
        "uniform; priors learn at an eighth of the rate of the rest in all four. At the farthest "
        "length the uniform beginning must lead the best other one. If none finds 0.8 of the "
        "passkeys at the training length, there is nothing to judge by. The published rate, priors "
        "that never move, SSMax on the content only, shapes that stay positive and one prior for "
        "all layers are measured beside them."
    )
    null = "No lead."
    recipes = MappingProxyType(
        {
            # the same trainings and prompts, so that models are shared
            Tier.QUICK: _recipe(Tier.QUICK, variants=(UNIFORM, SOONER)),
            # as many prompts at every length
            Tier.FULL: _recipe(Tier.FULL, lengths=LENGTHS, variants=ALL, few=20_000),
            Tier.PAPER: _recipe(Tier.PAPER, lengths=LENGTHS, variants=ALL),
        }
    )

    def judge(self, tier: Tier, found: Accuracies) -> Verdict:
        """The lead of the uniform beginning at the farthest length."""
        recipe = self.recipes[tier]
        begun = [name for name in recipe.variants if name in BEGINNINGS]
        others = [name for name in begun if name != UNIFORM]
        best = max(others, key=lambda name: sum(farthest(found, name)))
        own, theirs = farthest(found, UNIFORM), farthest(found, best)
        lead = [mine - other for mine, other in zip(own, theirs, strict=True)]
        ablest = max(begun, key=lambda name: sum(inside(found, name)))
        judgement = judge_given(
            f"{ablest} at the training length",
            judge_effect(inside(found, ablest), minimum=LEARNT),
            judge_effect(lead),
        )
        said = f"{judgement.reason} The best other is {best}. {tell_reach(recipe, found)}"
        return self.verdict(
            judgement._replace(reason=said),
            tier=tier,
            seeds=tuple(found),
            unit=f"accuracy ahead of the best other beginning at {recipe.lengths[-1]}",
            null=0.0,
        )

    def draw(self, tier: Tier, found: Accuracies) -> list[Picture]:
        """Accuracy over length, beginnings and the rest apart."""
        recipe = self.recipes[tier]
        groups = {
            "beginnings": [name for name in recipe.variants if name in BEGINNINGS],
            "other ways": [name for name in recipe.variants if name in (*ABLATIONS, SOONER)],
        }
        return [draw_reach(recipe, found, groups)]
