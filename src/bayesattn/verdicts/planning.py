"""Planning: would the rule support the reported number, and how many seeds would decide?"""

from collections.abc import Sequence

import numpy as np

from bayesattn.verdicts.means import special
from bayesattn.verdicts.rule import (
    LEVELS,
    LOOKS,
    Limit,
    Rule,
    Transform,
    check_design,
    estimate,
    outcomes,
)
from bayesattn.verdicts.values import Array, Value, as_array

CHANCE = 0.8
"""Chance that a study with the seeds of `seeds_needed` decides."""
MOST = 10_000
"""Largest number of seeds; an effect that needs more is at the limit."""


def seeds_needed(
    values: Sequence[Value],
    *,
    transform: Transform,
    rule: Rule,
    limit: Limit,
    resolution: float = 0.0,
) -> int | None:
    """Estimated number of seeds that would decide, if effect and spread stay as in these seeds.

    n such that distance = (t + z) · error(n), with t for the last look's level and z for the chance
    `CHANCE`. None if there is no spread, or if the effect is at the limit.
    """
    counted = [one.effect for one in values if one.learnt]
    if len(counted) < 2:
        return None
    found = estimate(as_array(counted), transform, resolution)
    ends = [limit] if isinstance(limit, int | float) else limit
    away = min(abs(float(found.distance(end)[0])) for end in ends)
    spread = float(found.error[0]) * np.sqrt(len(counted))
    count = np.arange(2, MOST + 1)
    needed = special().stdtrit(count - 1, 1 - LEVELS[-1] / 2) + special().ndtri(CHANCE)
    (enough,) = np.nonzero(away >= needed * spread / np.sqrt(count))
    return int(count[enough[0]]) if enough.size else None


def chance_of_yes(
    reported: float,
    seed_sd: float,
    *,
    transform: Transform,
    rule: Rule,
    limit: Limit,
    looks: Sequence[int] = LOOKS[0],
    trials: int | tuple[int, int] | None = None,
    resolution: float = 0.0,
    studies: int = 2000,
    seed: int = 0,
) -> float:
    """Share of simulated studies that say yes if the reported number is the truth.

    Args:
        reported: number on the scale of the estimand.
        seed_sd: SD between seeds on the transformed scale; for proportions, in addition to the
            binomial SD.
        transform: as in `judge`, like rule, limit, looks and resolution.
        rule: above, below or within.
        limit: least effect of interest, or the margin.
        looks: one of `LOOKS`.
        trials: trials of each seed, for a proportion; two numbers for a difference of two.
        resolution: smallest step of the values.
        studies: number of simulated studies.
        seed: of the simulation.
    """
    check_design(transform, rule, limit, looks)
    rng = np.random.default_rng(seed)
    shape = (studies, looks[-1])
    if transform == "proportion":
        effects = _drawn_counts(rng, shape, reported, seed_sd, trials)
    else:
        logs = transform == "log"
        effects = rng.normal(np.log(reported) if logs else reported, seed_sd, shape)
        if resolution:
            effects = np.round(effects / resolution) * resolution
        effects = np.exp(effects) if logs else effects
    yes, _ = outcomes(effects, transform, rule, limit, looks, resolution)
    return float(yes.mean())


def _drawn_counts(
    rng: np.random.Generator,
    shape: tuple[int, int],
    reported: float,
    seed_sd: float,
    trials: int | tuple[int, int] | None,
) -> Array:
    if trials is None:
        raise ValueError("a proportion needs the trials of each seed: pass trials")
    if isinstance(trials, int):
        return _counts(rng, shape, reported, seed_sd, trials)[..., None, :]
    # Both around one half, where single trials vary most.
    shares = (1 + reported) / 2, (1 - reported) / 2
    arms = [
        _counts(rng, shape, share, seed_sd / np.sqrt(2), count)
        for share, count in zip(shares, trials, strict=True)
    ]
    return np.stack(arms, axis=-2)


def _counts(
    rng: np.random.Generator, shape: tuple[int, int], share: float, sd: float, trials: int
) -> Array:
    """[studies, seeds, 2]: beta-binomial successes, and trials."""
    room = share * (1 - share)
    if not 0 <= share <= 1 or (room > 0 and sd**2 >= room):
        raise ValueError(f"no proportion has mean {share:.3g} and SD {sd:.3g} between seeds")
    if room == 0 or sd == 0:
        chances = np.full(shape, share)
    else:
        size = room / sd**2 - 1
        chances = rng.beta(share * size, (1 - share) * size, shape)
    drawn = rng.binomial(trials, chances)
    return np.stack([drawn, np.full(shape, trials)], axis=-1).astype(np.float64)
