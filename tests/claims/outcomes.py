"""The verdicts of a claim, measured here and now."""

from dataclasses import replace

from bayesattn.claims import Tier


def outcomes(study, seeds, tier=Tier.QUICK):
    """The word for each statement, an identity as if so many seeds were registered."""
    said = study.said(tier, {seed: study.measure(tier, seed) for seed in range(seeds)})
    found = {}
    for own in study.claim.statements:
        rule = own if own.empirical else replace(own, looks=(seeds,))
        found[own.name] = own.word(rule.judge([*said[own.name].values()]).outcome)
    return found
