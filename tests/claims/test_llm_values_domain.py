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
from bayesattn.probes.states import CONTROL, DECODABILITY, SPEARMAN
from bayesattn.verdicts import Outcome
from tests.claims.examples import example
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
    assert record.figures and len(record.rows) == 2


def outcomes(study, tier, found):
    said = study.said(tier, found)
    every = {own.name: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    return {name: one.outcome for name, one in every.items()}


NOISE = (-0.01, 0.01, 0.0, 0.005)


@pytest.mark.parametrize(
    ("order", "decoded", "fresh", "expected"),
    [
        (0.4, 0.5, 0.1, (Outcome.YES, Outcome.YES)),
        (0.1, 0.5, 0.1, (Outcome.NO, Outcome.YES)),
        (0.4, 0.5, 0.45, (Outcome.YES, Outcome.NO)),  # fresh weights tell as much
    ],
)
def test_order_and_what_can_be_decoded_are_judged_apart(order, decoded, fresh, expected):
    tier, seeds = example("llm-values")
    (one,) = seeds.values()
    found = {
        seed: dataclasses.replace(
            one,
            values={
                **one.values,
                SPEARMAN: measured(order + noise, 0.1),
                DECODABILITY: measured(decoded + noise, fresh),
            },
        )
        for seed, noise in enumerate(NOISE)
    }
    assert tuple(outcomes(llm_values.LLMValues(), tier, found).values()) == expected


def measured(value, fresh):
    return Measured(value=value, nulls={"noise": 0.05, CONTROL: fresh})


@pytest.mark.parametrize(
    ("gain", "shuffled", "expected"),
    [
        (0.2, 0.02, (Outcome.YES, Outcome.YES)),
        (0.2, 0.3, (Outcome.YES, Outcome.NO)),  # the vocabulary alone gains more
        (-0.2, -0.3, (Outcome.NO, Outcome.YES)),
        (0.001, 0.0, (Outcome.UNDECIDED, Outcome.UNDECIDED)),
    ],
)
def test_a_domain_must_gain_and_more_than_its_vocabulary(gain, shuffled, expected):
    tier, seeds = example("llm-domain")
    (one,) = seeds.values()
    found = {
        seed: dataclasses.replace(
            one,
            written=with_gain(one.written, gain + noise),
            shuffled=with_gain(one.shuffled, shuffled),
        )
        for seed, noise in enumerate(NOISE)
    }
    assert tuple(outcomes(llm_domain.LLMDomain(), tier, found).values()) == expected


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
