"""dynamics-em: a small sweep for the plumbing, made-up numbers for the verdict."""

import dataclasses
import math
from types import MappingProxyType

import pytest

from bayesattn.claims import dynamics_em
from bayesattn.claims.dynamics_em import (
    OTHER_START,
    PUBLISHED,
    SAME_NORM,
    DynamicsEM,
    EMRecipe,
    Speeds,
    Tuned,
)
from bayesattn.dynamics import em
from bayesattn.dynamics.em import EM, SCHEDULES, SGD, TWO_FORWARDS, Schedule
from bayesattn.ledger.study import Tier
from bayesattn.stats import Outcome

RECIPE = EMRecipe(
    seeds=2,
    length=16,
    sequences=16,
    watched=8,
    steps=24,
    rates=(0.3, 1.0, 1e4),
    norms=(0.03, 0.1),
    looks=8,
)


@pytest.fixture
def study():
    study = DynamicsEM()
    study.recipes = MappingProxyType({Tier.QUICK: RECIPE})
    return study


def test_it_measures_and_draws(study):
    found = study.measure(Tier.QUICK, 0)
    assert len(study.draw(Tier.QUICK, {0: found})) == 1
    for name in (*SCHEDULES, OTHER_START):
        assert found.tuned[name].rate in RECIPE.rates[:2]  # the third one diverges
        assert len(found.tuned[name].validation_loss) == 3
        assert found.tuned[name].validation_loss[2] > 2.2
    for name in SCHEDULES:
        fresh = found.fresh[name]
        assert fresh.loss[0] == pytest.approx(math.log(8), abs=0.03)
        assert len(fresh.loss) == 9
        assert fresh.gap == pytest.approx(min(fresh.loss) - 1.88325, abs=1e-5)
    # everyone starts from the same weights but the one that does not
    assert len({found.fresh[name].loss[0] for name in SCHEDULES}) == 1
    assert found.doublings[OTHER_START] != 0
    assert study.measure(Tier.QUICK, 0) == found


def test_a_larger_rate_is_what_the_published_comparison_finds(study):
    found = study.measure(Tier.QUICK, 0)
    assert found.doublings[PUBLISHED] > 1


def test_two_names_of_one_schedule_are_equally_fast(study, monkeypatch):
    same = MappingProxyType({**dict.fromkeys(SCHEDULES, Schedule())})
    monkeypatch.setattr(dynamics_em, "SCHEDULES", same)
    found = study.measure(Tier.QUICK, 0)
    for name in (EM, "output fast", f"{EM}, {SAME_NORM}", PUBLISHED):
        assert found.doublings[name] == 0


def test_a_schedule_that_is_only_slower_is_tuned_back(study, monkeypatch):
    """A tenth of the rate everywhere is the same schedule, once its rates are ten times larger."""
    tenth = Schedule(query=0.1, key=0.1, value=0.1, output=0.1)
    monkeypatch.setattr(dynamics_em, "SCHEDULES", {**SCHEDULES, EM: tenth})
    recipe = dataclasses.replace(RECIPE, sequences=64, rates=(0.1, 1.0, 10.0))
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    found = study.measure(Tier.QUICK, 0)
    assert found.tuned[SGD].rate == 1.0 and found.tuned[EM].rate == 10.0
    assert found.doublings[EM] == pytest.approx(0, abs=1e-3)
    assert found.tuned[EM].at_the_edge and not found.tuned[SGD].at_the_edge
    assert found.doublings[f"{EM}, {SAME_NORM}"] == pytest.approx(0, abs=1e-3)


def test_rates_are_chosen_without_the_test_sequences(study, monkeypatch):
    chosen = []
    honest = dynamics_em.best_rate
    monkeypatch.setattr(
        dynamics_em, "best_rate", lambda curves: chosen.append(curves.loss) or honest(curves)
    )
    found = study.measure(Tier.QUICK, 0)
    assert chosen[0][:2].mean(-1).tolist() == found.tuned[SGD].validation_loss[:2]
    best = RECIPE.rates.index(found.tuned[SGD].rate)
    assert chosen[0][best].tolist() != found.fresh[SGD].loss


def verdict(doublings, null=(0.1, -0.1, 0.2, -0.2, 0.0)):
    names = [name for name in SCHEDULES if name not in (SGD, EM)]
    names += [f"{TWO_FORWARDS}, equal cost", f"{EM}, {SAME_NORM}", PUBLISHED]

    def tuned(at_the_edge):
        return Tuned(rate=1.0, at_the_edge=at_the_edge, validation_loss=[])

    found = {
        seed: Speeds(
            tuned={SGD: tuned(seed == 0), EM: tuned(seed < 3)},
            fresh={},
            doublings={
                EM: doublings[seed],
                OTHER_START: null[seed],
                **dict.fromkeys(names, 1.5),
            },
        )
        for seed in range(5)
    }
    return DynamicsEM().verdict(Tier.QUICK, found)


@pytest.mark.parametrize(
    ("doublings", "outcome"),
    [
        ([1.0, 1.2, 0.9, 1.1, 1.3], Outcome.SUPPORTED),
        ([-0.3, -0.2, -0.4, -0.3, -0.2], Outcome.REFUTED),
        ([0.5, -0.4, 0.3, -0.6, 0.2], Outcome.INCONCLUSIVE),
    ],
)
def test_only_tuned_schedules_at_equal_steps_decide(doublings, outcome):
    found = verdict(doublings)
    assert found.outcome is outcome
    assert found.measured == pytest.approx(sum(doublings) / 5)
    assert found.null == pytest.approx(0.0)
    assert "published rates +1.50" in found.reason
    assert found.reason.endswith("SGD 1, EM-like 3.")


def test_every_tier_looks_at_the_start_and_at_the_end():
    for recipe in DynamicsEM.recipes.values():
        assert recipe.at[0] == 0 and recipe.at[-1] == recipe.steps
        assert recipe.at == sorted(set(recipe.at))
        assert recipe.seeds >= 5
    assert em.SCHEDULES[TWO_FORWARDS].work > em.SCHEDULES[EM].work == em.SCHEDULES[SGD].work
