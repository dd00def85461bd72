"""llm-sula and llm-causal on a tiny model for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import llm_causal, llm_sula
from bayesattn.ledger.study import Tier
from bayesattn.verdicts import Outcome
from tests.claims.examples import example
from tests.ledger.toy import run_study
from tests.probes.llm.sula_toys import subject

STUDIES = {
    llm_sula: (llm_sula.LLMSula, {"prompts": 4, "each": 4, "controls": True}),
    llm_causal: (llm_causal.LLMCausal, {"each": 4, "shots": 6, "depths": 2, "random": 2}),
}


@pytest.mark.parametrize("module", STUDIES)
def test_a_study_measures_judges_and_draws(module, tmp_path, monkeypatch):
    kind, changes = STUDIES[module]
    monkeypatch.setattr(module, "subject", subject)
    study = kind()
    recipe = dataclasses.replace(study.recipes[Tier.QUICK], seeds=2, **changes)
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    record = run_study(study, Tier.QUICK, tmp_path / "report")
    assert record.failure is None, record.failure
    assert record.figures and {*record.rows} == {own.name for own in study.claim.statements}


def test_layers_that_are_cut(monkeypatch):
    monkeypatch.setattr(llm_causal, "subject", subject)
    study = llm_causal.LLMCausal()
    changes = STUDIES[llm_causal][1]
    recipe = dataclasses.replace(study.recipes[Tier.QUICK], **changes)
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    found = study.measure(Tier.QUICK, 0)
    assert [cut.layer for cut in found.cuts] == [1, 3]
    assert [cut.layer for cut in found.late] == [3]
    assert found.prompts == 8 and all(len(cut.random) == 2 for cut in found.cuts)
    assert all(cut.moved > 0 and min(cut.random) > 0 for cut in found.cuts)


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


def cut(layer, times=1.0, order=0.6, error=0.5):
    return llm_causal.LayerCut(
        layer=layer,
        order=order,
        moved=0.1 * times,
        random=[0.05, 0.15],
        error_first=error,
        moved_first=0.2,
    )


def found(times=1.0, order=0.6, error=0.5, late=None):
    cuts = [cut(layer, times, order, error) for layer in (0, 10, 19)]
    cuts += [cut(29, times if late is None else late, order, error)]
    return llm_causal.CausalMeasured(layers=30, prompts=20, error=0.5, cuts=cuts)


@pytest.mark.parametrize(
    ("changes", "outcomes"),
    [
        ({}, (Outcome.YES, Outcome.YES, Outcome.YES)),
        ({"late": 12.0}, (Outcome.YES, Outcome.NO, Outcome.YES)),
        ({"times": 12.0}, (Outcome.YES, Outcome.NO, Outcome.NO)),
        ({"error": 0.6}, (Outcome.NO, Outcome.YES, Outcome.YES)),
        ({"order": 0.1}, (Outcome.YES, Outcome.UNDECIDED, Outcome.UNDECIDED)),
    ],
)
def test_a_cut_is_judged_beside_random_ones_as_large(changes, outcomes):
    study = llm_causal.LLMCausal()
    every = {
        seed: found(**{name: value * (1 + seed / 200) for name, value in changes.items()})
        for seed in range(12)
    }
    # seeds must differ, or nothing is known of how much they vary
    every = {
        seed: dataclasses.replace(
            one,
            error=one.error * (1 + seed / 2000),
            cuts=[dataclasses.replace(c, moved=c.moved * (1 + seed / 100)) for c in one.cuts],
        )
        for seed, one in every.items()
    }
    said = study.said(Tier.FULL, every)
    judged = [own.judge([*said[own.name].values()]).outcome for own in study.claim.statements]
    assert tuple(judged) == outcomes


def test_late_layers_and_the_middle_one():
    one = found(times=2.0, late=8.0)
    assert [c.layer for c in one.late] == [29] and one.middle.layer in (10, 19)
    values = llm_causal.LLMCausal().values(Tier.FULL, one)
    assert values["late-layers"].effect == pytest.approx(8.0, rel=1e-6)
    assert values["all-depths"].effect == pytest.approx((2**3 * 8) ** 0.25, rel=1e-6)
