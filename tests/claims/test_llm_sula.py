"""llm-sula and llm-causal on a tiny model for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import llm_causal, llm_sula
from bayesattn.ledger.study import Tier
from bayesattn.probes.llm.causal import intervene
from bayesattn.probes.llm.sula import ALL_WORDS, fixed_conditions
from bayesattn.probes.llm.sula_answers import answer
from bayesattn.verdicts import Outcome
from tests.claims.examples import example
from tests.ledger.toy import run_study
from tests.probes.llm.sula_toys import LABELS, subject

STUDIES = {
    llm_sula: (llm_sula.LLMSula, {"prompts": 4, "each": 4, "controls": True}),
    llm_causal: (
        llm_causal.LLMCausal,
        {"each": 6, "axes": 3, "depths": {"middle": (0.4,), "last": (1.0,), "several": (0.4, 0.7)}},
    ),
}


@pytest.mark.parametrize("module", STUDIES)
def test_a_study_measures_judges_and_draws(module, tmp_path, monkeypatch):
    kind, changes = STUDIES[module]
    monkeypatch.setattr(module, "subject", subject)
    study = kind()
    recipe = dataclasses.replace(study.recipes[Tier.QUICK], seeds=2, **changes)
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    if module is llm_sula:
        record = run_study(study, Tier.QUICK, tmp_path / "report")
        assert record.failure is None, record.failure
        assert record.figures and {*record.rows} == {own.name for own in study.claim.statements}
    else:
        cuts = study.measure(Tier.QUICK, 0)
        assert study.draw(Tier.QUICK, {0: cuts})
        assert [axis.layer for axis in cuts["middle"].axes] == [1]
        assert [axis.layer for axis in cuts["several"].axes] == [1, 2]
        assert cuts["last"].later is None and list(cuts["middle"].later.layers) == [2, 3]


def judged(fixed, masked, own=0.5, error=0.01):
    """The outcomes of four draws of prompts."""
    study, found = llm_sula.LLMSula(), {}
    tier, seeds = example("llm-sula")
    (one,) = seeds.values()
    for seed, noise in enumerate((-0.01, 0.01, 0.0, 0.005)):
        asked = with_order(one.fixed, fixed + noise, own + noise)
        trivial = dataclasses.replace(asked.error_predictive, value=error)
        found[seed] = dataclasses.replace(
            one,
            main=with_order(one.main, 0.7 + noise, 0.5),
            fixed=dataclasses.replace(asked, error_predictive=trivial),
            blind=with_order(one.blind, masked, 0.1),
        )
    said = study.said(tier, found)
    every = {own.name: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    return {name: one.outcome for name, one in every.items()}


def test_evidence_must_order_more_than_its_absence():
    assert {*judged(0.7, 0.1).values()} == {Outcome.YES}
    assert judged(0.7, 0.6)["fixed-length"] is Outcome.NO  # without evidence, too
    assert judged(0.1, 0.1)["fixed-length"] is Outcome.NO
    assert judged(0.7, 0.1, own=0.12)["own-entropy"] is Outcome.NO


def test_a_model_that_does_not_infer_is_not_judged_by_the_posterior():
    found = judged(0.1, 0.1, error=0.5)
    assert found.pop("fixed-length") is Outcome.UNDECIDED
    assert {*found.values()} == {Outcome.YES}


def with_order(asked, value, own):
    order = dataclasses.replace(asked.centred.order, value=value)
    owned = dataclasses.replace(asked.centred.own, value=own)
    moved = dataclasses.replace(asked.centred, order=order, own=owned)
    return dataclasses.replace(asked, centred=moved)


def test_order_lost_is_what_random_cuts_leave():
    model = subject()
    shown, _ = fixed_conditions(ALL_WORDS, LABELS, each=5, shots=6)
    found = intervene(model, answer(model, shown, (1,)), [1], axes=4)
    measured = llm_causal.as_cut(found)
    whole = sum(found.before.order) / len(found.later)
    fall = found.against.fall_of_order
    assert measured.later.lost == pytest.approx((fall.value - fall.random) / whole)
    error = found.whole.error_predictive - found.before.error_predictive
    assert measured.against.error.value == pytest.approx(error)
    assert measured.doses[0.0] == measured.against.divergence.value == found.whole.divergence
