"""llm-values and llm-domain: a small model for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest
import torch

from bayesattn import linear
from bayesattn.claims import llm_domain, llm_values
from bayesattn.claims.llm_subjects import subject
from bayesattn.ledger.study import Tier
from bayesattn.probes.llm.axes import SHARE, SPEARMAN, TWO
from bayesattn.probes.llm.domains import DOMAINS
from bayesattn.probes.llm.matched import ENDINGS
from bayesattn.stats import Outcome
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


def verdict(kind, **numbers):
    """From lists with one number per seed."""
    seeds = range(3)
    by_seed = {seed: {name: column[seed] for name, column in numbers.items()} for seed in seeds}
    return kind().judge(Tier.QUICK, by_seed)


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
    numbers = {
        f"values: {TWO}": two,
        f"values: {TWO}, random init": [fresh_two] * 3,
        f"values: {TWO}, noise": [0.05] * 3,
        f"values: {SHARE}": two,
        f"values: {SPEARMAN}": order,
        f"values: {SPEARMAN}, random init": [fresh_order] * 3,
    }
    found = verdict(llm_values.LLMValues, **numbers)
    assert found.outcome is outcome and unit in found.unit
    assert found.null == pytest.approx(fresh_two if unit == "variance" else fresh_order)


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
    numbers = {
        f"{llm_domain.WRITTEN}, {name}: {TWO}": [0.3] * 3 for name in (*DOMAINS, llm_domain.MIXED)
    }
    numbers |= {f"{llm_domain.WRITTEN}: gain": gains, f"{llm_domain.SHUFFLED}: gain": [null] * 3}
    found = verdict(llm_domain.LLMDomain, **numbers)
    assert found.outcome is outcome and found.null == pytest.approx(null)


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
    found = llm_domain._shares("x", along * axes + noise, bits, each, 0)
    assert found["x: gain"] > 0.2
    ones = torch.ones(1, words * each).double()
    own = linear.shares(linear.gram((along * axes + noise)[1], ones, standardise=True), ones)
    assert found[f"x, code: {TWO}"] == pytest.approx(float(own.two))
    assert llm_domain._shares("x", noise, bits, each, 0)["x: gain"] == pytest.approx(0, abs=0.05)
