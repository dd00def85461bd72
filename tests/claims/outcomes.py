"""The verdicts of a claim, measured here and now."""

from bayesattn.claims import Tier


def outcomes(study, seeds, tier=Tier.QUICK):
    """The word for each statement."""
    said = study.said(tier, {seed: study.measure(tier, seed) for seed in range(seeds)})
    judged = {own: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    return {own.name: own.word(found.outcome) for own, found in judged.items()}
