"""Studies with a planted effect: what each statement must say of it."""

import math

from bayesattn.verdicts import Outcome

SEEDS = 8
SMALL = (0.97, 1.02, 0.99, 1.03, 1.0, 0.98, 1.01, 0.96)
"""Seeds differ a little, or a lot."""
LARGE = (0.2, 4.0, 0.3, 5.0, 0.25, 3.0, 0.4, 3.5)


def effects(own, outcome):
    """Effects of so many seeds that a statement must judge like this."""
    if own.rule == "within":
        low, high = own.limit
        middle, far = (low + high) / 2, high + (high - low)
        centre = far if outcome is Outcome.NO else middle
        width = 3 * (high - low) if outcome is Outcome.UNDECIDED else 0.1 * (high - low)
        return [centre + width * math.log(factor) for factor in _factors(outcome)]
    up = (own.rule == "above") == (outcome is Outcome.YES)
    if own.transform == "log":
        shift = 1 if outcome is Outcome.UNDECIDED else 1.5 if up else 1 / 1.5
        return [own.limit * shift * factor for factor in _factors(outcome)]
    shift = 0.0 if outcome is Outcome.UNDECIDED else 0.2 if up else -0.2
    return [own.limit + shift + 0.1 * math.log(factor) for factor in _factors(outcome)]


def judged(study, own, results):
    """What a statement says of the results of seeds, in their order."""
    said = study.said("full", dict(enumerate(results)))
    return own.judge([*said[own.name].values()])


def _factors(outcome):
    return LARGE if outcome is Outcome.UNDECIDED else SMALL
