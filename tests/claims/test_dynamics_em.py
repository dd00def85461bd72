"""dynamics-em: a small sweep for the plumbing, planted numbers for the verdicts."""

import dataclasses
import math
from types import MappingProxyType

import pytest
from torch import Generator

from bayesattn.claims import dynamics_em
from bayesattn.claims.dynamics_em import (
    OTHER_START,
    SAME_NORM,
    DynamicsEM,
    EMRecipe,
    Fresh,
    Published,
    Speeds,
    evenly,
)
from bayesattn.dynamics import em
from bayesattn.dynamics.em import (
    CHAIN,
    EM,
    QUERIES_AND_KEYS,
    SCHEDULES,
    SGD,
    TWO_FORWARDS,
    Schedule,
    chain_problem,
    initial_weights,
    step,
)
from bayesattn.ledger.study import Tier
from bayesattn.verdicts import Outcome
from tests.claims.planted import effects, judged
from tests.ledger.toy import run_study

RECIPE = EMRecipe(
    seeds=2,
    length=16,
    sequences=16,
    watched=8,
    steps=24,
    rates=(0.3, 1.0, 1e4),
    norms=(0.03, 0.1),
    evaluations=8,
    published_length=40,
    published_steps=60,
)


@pytest.fixture
def study():
    study = DynamicsEM()
    study.recipes = MappingProxyType({Tier.QUICK: RECIPE})
    return study


def test_it_measures_and_draws(study, tmp_path):
    record = run_study(study, Tier.QUICK, tmp_path)
    assert record.failure is None
    assert len(record.figures) == 1
    found = study.measure(Tier.QUICK, DynamicsEM.claim.first_seed)
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
    assert study.measure(Tier.QUICK, DynamicsEM.claim.first_seed) == found


def test_the_published_comparison_is_that_of_a_loop(study):
    found = study.measure(Tier.QUICK, 0).published
    generator = Generator().manual_seed(0)
    train = chain_problem(RECIPE.published_length, generator)
    start = initial_weights(CHAIN, generator)

    def losses(schedule):
        weights, seen = start, [train.head(start).loss.item()]
        for _ in range(RECIPE.published_steps):
            weights = step(train, weights, schedule, 0.01)
            seen.append(train.head(weights).loss.item())
        return seen

    slow, fast = losses(Schedule()), losses(Schedule(value=10.0))
    assert (found.sgd, found.em) == pytest.approx((slow[-1], fast[-1]), abs=1e-5)
    there = next(at for at, loss in enumerate(fast) if loss <= slow[-1])
    assert found.times == pytest.approx(RECIPE.published_steps / there, rel=0.1)
    assert found.times > 1  # a larger rate is what it finds


def test_two_names_of_one_schedule_are_equally_fast(study, monkeypatch):
    same = MappingProxyType({**dict.fromkeys(SCHEDULES, Schedule())})
    monkeypatch.setattr(dynamics_em, "SCHEDULES", same)
    found = study.measure(Tier.QUICK, 0)
    for name in (EM, "output fast", f"{EM}, {SAME_NORM}"):
        assert found.doublings[name] == 0
    assert found.published.times == pytest.approx(1)


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
    assert found.published.times < 1


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


def plant(name, effect, gaps=(0.1, 0.1, 0.1)):
    """One seed; gaps are those of SGD, EM and fast attention."""
    names = (SGD, EM, QUERIES_AND_KEYS)
    quality = {"loss": [2.0], "accuracy": 0.3, "entropy": 1.9}
    doublings = {EM: 0.0, QUERIES_AND_KEYS: 0.0, OTHER_START: 0.1}
    doublings[QUERIES_AND_KEYS if name == "attention-fast" else EM] = effect
    return Speeds(
        published=Published(sgd=2.0, em=1.9, times=effect if name == "published-rates" else 2.0),
        tuned={},
        fresh={one: Fresh(gap=gap, **quality) for one, gap in zip(names, gaps, strict=True)},
        doublings=doublings,
    )


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("own", DynamicsEM.claim.statements, ids=lambda own: own.name)
def test_a_planted_effect_is_judged_as_it_is(own, outcome):
    results = [plant(own.name, effect) for effect in effects(own, outcome)]
    found = judged(DynamicsEM(), own, results)
    assert found.outcome is outcome, found.reason
    assert found.comparator == (None if own.name == "published-rates" else pytest.approx(0.1))


@pytest.mark.parametrize(
    ("name", "gaps", "counts"),
    [
        ("tuned", (0.1, 0.1, 0.19), True),
        ("tuned", (0.16, 0.1, 0.1), False),
        ("as-fast", (0.1, 0.16, 0.1), False),
        ("attention-fast", (0.1, 0.19, 0.1), True),
        ("attention-fast", (0.1, 0.1, 0.16), False),
    ],
)
def test_each_compared_schedule_must_have_learnt_the_chain(name, gaps, counts):
    own = next(own for own in DynamicsEM.claim.statements if own.name == name)
    results = [plant(name, effect, gaps) for effect in effects(own, Outcome.YES)]
    found = judged(DynamicsEM(), own, results)
    assert (found.outcome is Outcome.YES) is counts
    assert f"{dynamics_em.LEARNT:g} nats" in own.premise


def test_gain_and_equal_speed_are_two_questions():
    """Slower is neither faster nor as fast."""
    gain, equal = (
        next(own for own in DynamicsEM.claim.statements if own.name == name)
        for name in ("tuned", "as-fast")
    )
    slower = [plant("tuned", -1 + 0.01 * at) for at in range(8)]
    assert judged(DynamicsEM(), gain, slower).outcome is Outcome.NO
    assert judged(DynamicsEM(), equal, slower).outcome is Outcome.NO


def test_every_tier_looks_at_the_start_and_at_the_end():
    for recipe in DynamicsEM.recipes.values():
        assert recipe.at[0] == 0 and recipe.at[-1] == recipe.steps
        assert recipe.at == sorted(set(recipe.at))
    assert evenly(10, 4) == [0, 2, 5, 8, 10]
    assert em.SCHEDULES[TWO_FORWARDS].work > em.SCHEDULES[EM].work == em.SCHEDULES[SGD].work
