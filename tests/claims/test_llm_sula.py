"""llm-sula and llm-causal on a tiny model for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import llm_causal, llm_sula
from bayesattn.ledger.study import Tier
from bayesattn.probes.llm.causal import intervene
from bayesattn.probes.llm.sula import ALL_WORDS, fixed_conditions
from bayesattn.probes.llm.sula_answers import answer
from bayesattn.stats import Outcome
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
    record = run_study(study, Tier.QUICK, tmp_path / "report")
    assert record.failure is None, record.failure
    assert record.figures and record.verdict.reason
    # random weights do not support a claim about a trained model
    assert record.verdict.outcome is not Outcome.SUPPORTED
    assert record.numbers[0] != record.numbers[1]  # other prompts
    if module is llm_causal:
        assert record.numbers[0]["middle: layers"] == [1.0]
        assert record.numbers[0]["several: layers"] == [1.0, 2.0]
        assert "last: order lost" not in record.numbers[0]


def verdict(kind, **numbers):
    """From lists with one number per seed."""
    by_seed = {seed: {name: column[seed] for name, column in numbers.items()} for seed in range(3)}
    return kind().judge(Tier.QUICK, by_seed)


@pytest.mark.parametrize(
    ("order", "masked", "outcome"),
    [
        ([0.7, 0.72, 0.74], 0.1, Outcome.SUPPORTED),
        ([0.7, 0.72, 0.74], 0.6, Outcome.REFUTED),  # without evidence, too
        ([0.1, 0.12, 0.14], 0.1, Outcome.REFUTED),
        ([0.1, 0.9, 0.5], 0.1, Outcome.INCONCLUSIVE),
    ],
)
def test_evidence_must_order_more_than_its_absence(order, masked, outcome):
    names = (
        "main: order",
        "main: order given k",
        *(f"{llm_sula.FIXED}: error {h}" for h in ("H_post", "H_pred")),
    )
    rest = {name: [0.5] * 3 for name in names}
    found = verdict(
        llm_sula.LLMSula, **{llm_sula.JUDGED: order, llm_sula.NULL: [masked] * 3}, **rest
    )
    assert found.outcome is outcome and found.null == pytest.approx(masked)
    assert found.measured == pytest.approx(sum(order) / 3)


@pytest.mark.parametrize(
    ("before", "lost", "matched", "change", "outcome"),
    [
        ([0.7, 0.7, 0.71], [0.9, 0.92, 0.9], [0.5, 0.52, 0.5], [0.01, -0.01, 0.0], "supported"),
        ([0.7, 0.7, 0.71], [0.1, 0.12, 0.1], [0.5, 0.52, 0.5], [0.01, -0.01, 0.0], "refuted"),
        ([0.7, 0.7, 0.71], [0.9, 0.92, 0.9], [0.0, 0.0, 0.01], [0.01, -0.01, 0.0], "refuted"),
        ([0.7, 0.7, 0.71], [0.9, 0.92, 0.9], [0.5, 0.52, 0.5], [0.2, -0.21, 0.2], "refuted"),
        ([0.1, 0.1, 0.11], [0.9, 0.92, 0.9], [0.5, 0.52, 0.5], [0.01, -0.01, 0.0], "inconclusive"),
    ],
)
def test_order_must_go_and_nothing_else(before, lost, matched, change, outcome):
    named = {"order before": before, "order lost": lost, "matched": matched}
    named |= {"error, change": change}
    for name in ("order after", "order after random", "divergence", "divergence, random"):
        named[name] = [0.1] * 3
    found = verdict(llm_causal.LLMCausal, **{f"middle: {k}": v for k, v in named.items()})
    assert found.outcome == outcome
    assert found.measured == pytest.approx(sum(lost) / 3)


def test_order_lost_is_what_random_cuts_leave():
    model = subject()
    shown, _ = fixed_conditions(ALL_WORDS, LABELS, each=5, shots=6)
    found = intervene(model, answer(model, shown, (1,)), [1], axes=4)
    numbers = llm_causal._numbers(found)
    whole = sum(found.before.order) / len(found.later)
    cut = sum(found.whole.order) / len(found.later)
    random = sum(found.random_order) / len(found.later)
    assert numbers["order lost"] == pytest.approx((random - cut) / whole)
    assert numbers["order after random"] == pytest.approx(random)
    assert (numbers["order before"], numbers["order after"]) == pytest.approx((whole, cut))
    error = found.whole.error_predictive - found.before.error_predictive
    assert numbers["error, change"] == pytest.approx(error)
