"""llm-values and llm-domain: a small model for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest
import torch

from bayesattn import linear
from bayesattn.claims import llm_domain, llm_values
from bayesattn.claims.llm_values import subject
from bayesattn.ledger.study import Tier
from bayesattn.probes.llm.prompts import ENDINGS
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, SPEARMAN, TWO
from bayesattn.stats import Outcome
from tests.claims.recorded import recorded_results
from tests.ledger.toy import run_study
from tests.probes.llm.small import save_small


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    yield str(save_small(tmp_path_factory.mktemp("models") / "small"))
    subject.cache_clear()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (llm_values.LLMValues, {"length": 8, "candidates": 20, "each": 2, "draws": 5}),
        (llm_domain.LLMDomain, {"length": 8, "each": 4, "fresh": True}),
    ],
)
def test_studies_measure_judge_and_draw(kind, changes, model, tmp_path, monkeypatch):
    recipe = dataclasses.replace(kind.recipes[Tier.QUICK], model=model, **changes)
    monkeypatch.setattr(kind, "recipes", MappingProxyType({Tier.QUICK: recipe}))
    record = run_study(kind(), Tier.QUICK, tmp_path / "report")
    assert record.failure is None, record.failure
    assert record.figures and record.verdict.interval is not None
    one, two = record.numbers.values()
    assert one != two  # seeds are other prompts


@pytest.mark.parametrize(
    ("two", "fresh_two", "order", "fresh_order", "outcome", "unit"),
    [
        ([0.5, 0.51, 0.52], 0.1, [0.6, 0.61, 0.6], 0.1, Outcome.SUPPORTED, "variance"),
        ([0.2, 0.21, 0.22], 0.1, [0.6, 0.61, 0.6], 0.1, Outcome.REFUTED, "variance"),
        ([0.5, 0.51, 0.52], 0.6, [0.6, 0.61, 0.6], 0.1, Outcome.REFUTED, "variance"),
        ([0.5, 0.51, 0.52], 0.1, [0.2, 0.21, 0.2], 0.1, Outcome.REFUTED, "Spearman"),
        ([0.5, 0.51, 0.52], 0.1, [0.6, 0.61, 0.6], 0.5, Outcome.REFUTED, "Spearman"),
        ([0.5, 0.51, 0.52], 0.1, [0.1, 0.9, 0.3], 0.1, Outcome.INCONCLUSIVE, "Spearman"),
    ],
)
def test_an_axis_and_its_order_beyond_fresh_weights(
    two, fresh_two, order, fresh_order, outcome, unit
):
    recorded, found = recorded_results("llm-values"), {}
    for seed in range(3):
        values = {
            **recorded[seed].values,
            TWO: measured(two[seed], fresh_two),
            SPEARMAN: measured(order[seed], fresh_order),
        }
        found[seed] = dataclasses.replace(recorded[seed], values=values)
    verdict = llm_values.LLMValues().verdict(Tier.QUICK, found)
    assert verdict.outcome is outcome and unit in verdict.unit
    assert verdict.null == pytest.approx(fresh_two if unit == "variance" else fresh_order)


def measured(value, fresh):
    return Measured(value=value, nulls={"noise": 0.05, CONTROL: fresh})


@pytest.mark.parametrize(
    ("gains", "null", "outcome"),
    [
        ([0.2, 0.21, 0.22], 0.02, Outcome.SUPPORTED),
        ([0.2, 0.21, 0.22], 0.15, Outcome.REFUTED),  # the vocabulary alone gains as much
        ([0.02, 0.03, 0.02], 0.0, Outcome.REFUTED),
        ([0.0, 0.3, 0.1], 0.0, Outcome.INCONCLUSIVE),
    ],
)
def test_a_domain_must_gain_more_than_its_vocabulary(gains, null, outcome):
    recorded = recorded_results("llm-domain")
    found = {
        seed: dataclasses.replace(
            recorded[seed],
            written=with_gain(recorded[seed].written, gains[seed]),
            shuffled=with_gain(recorded[seed].shuffled, null),
        )
        for seed in range(3)
    }
    verdict = llm_domain.LLMDomain().verdict(Tier.QUICK, found)
    assert verdict.outcome is outcome and verdict.null == pytest.approx(null)
    assert verdict.measured == pytest.approx(sum(gains) / 3)


def with_gain(reading, gain):
    mixed = dataclasses.replace(reading.mixed, two=reading.mixed.two + reading.gain - gain)
    return dataclasses.replace(reading, mixed=mixed)


def test_mixtures_have_all_domains_for_each_last_word(generator):
    each, words = 8, len(ENDINGS)
    domain = torch.arange(4)[:, None].expand(4, words * each)
    word = torch.arange(words).repeat_interleave(each).expand(4, -1)
    number = torch.arange(4 * words * each).view(4, -1)
    values = torch.stack([domain, word, number], dim=-1).double()
    for mixed in llm_domain.mixtures(values, each, generator):
        assert mixed.shape == (words * each, 3)
        pairs = [(int(d), int(w)) for d, w, _ in mixed]
        assert all(pairs.count((d, w)) == 2 for d in range(4) for w in range(words))
        assert len(mixed[:, 2].unique()) == words * each  # nothing twice
    with pytest.raises(ValueError, match="each must be a multiple of 4"):
        llm_domain.mixtures(values[:, : words * 6], 6, generator)


def test_domains_on_axes_of_their_own_gain(generator):
    words, each = len(ENDINGS), 8
    along = torch.randn(4, words * each, 1, generator=generator).double()
    axes = torch.randn(4, 1, 60, generator=generator).double()
    noise = 0.1 * torch.randn(4, words * each, 60, generator=generator).double()
    bits = torch.rand(4, words * each, generator=generator)
    found = llm_domain.read_sets(along * axes + noise, bits, each, 0)
    assert found.gain > 0.2
    ones = torch.ones(1, words * each).double()
    own = linear.shares(linear.gram((along * axes + noise)[1], ones, standardise=True), ones)
    assert found.domains["code"].two == pytest.approx(float(own.two))
    assert llm_domain.read_sets(noise, bits, each, 0).gain == pytest.approx(0, abs=0.05)
