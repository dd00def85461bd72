"""Calibration and movement of made-up answers, and of a tiny model."""

import math

import pytest
import torch
from scipy import stats

from bayesattn.probes.llm import sula
from bayesattn.probes.llm.sula import ALL_WORDS, BLIND, FIXED, condition, fixed_conditions
from bayesattn.probes.llm.sula_answers import Answers, answer, label_pair, read_labels
from bayesattn.probes.llm.sula_examination import calibrate, move
from tests.probes.llm.sula_toys import LABELS, subject


def ideal(name="main", count=40, predict=sula.predictive, seed=0, values=None):
    """Who answers as `predict` says, with values along an axis by entropy."""
    generator = torch.Generator().manual_seed(seed)
    evidence = sula.sample(ALL_WORDS, generator, count=count)
    made = condition(name, evidence, ALL_WORDS, LABELS, generator)
    first = predict(evidence.difference, evidence.alpha)
    states = torch.randn(len(first), 6, generator=generator).double() * 0.05
    if values is not None:
        states[:, 2] += values(evidence)
    lengths = 4 * evidence.shots + 2
    return Answers(made, first, torch.full_like(first, 0.5), {0: states}, lengths)


def test_an_ideal_predictor_is_calibrated_to_the_predictive():
    whole, *each = calibrate(ideal())
    assert whole.shots is None and [one.shots for one in each] == [0, 1, 2, 4, 8]
    assert whole.error_predictive.value == pytest.approx(0, abs=1e-12)
    assert whole.error_posterior.value == pytest.approx(0.2866, abs=0.02)
    floor = whole.error_posterior.nulls["ideal predictions"]
    assert whole.error_posterior.value == pytest.approx(floor)
    assert whole.correlation_predictive == pytest.approx(1.0)
    assert each[0].correlation_predictive is None  # without pairs nothing varies
    assert whole.error_predictive.p < 0.01 and whole.mass == pytest.approx(0.5)
    assert whole.error_posterior.nulls["always 1 bit"] == pytest.approx(1 - whole.posterior)


def test_who_believes_the_posterior_is_calibrated_to_it():
    whole, *_ = calibrate(ideal(predict=sula.posterior))
    assert whole.error_posterior.value == pytest.approx(0, abs=1e-12)
    assert whole.error_predictive.value > 0.2


def test_coins_are_compared_with_one_bit():
    whole, *_ = calibrate(ideal("shuffled", predict=lambda d, _: torch.full(d.shape, 0.5).double()))
    assert whole.error_posterior.value == whole.error_predictive.value == 0
    assert whole.unaware < 0.8 and whole.correlation_posterior is None


def test_states_that_follow_evidence_are_ordered_within_k():
    answers = ideal(values=lambda evidence: -3 * evidence.posterior_bits)
    centred, standardised = move(answers, 0)
    assert (centred.axis, standardised.axis) == ("centred", "standardised")
    assert centred.order.value > 0.9 and centred.share > 0.9
    assert centred.given_shots.value > 0.6 and centred.given_shots.p < 0.01
    assert set(centred.by_shots) == {2, 4, 8}  # with 0 or 1 pairs the entropy is constant
    shots, scores = answers.condition.shots, answers.values[0][:, 2]
    expected = abs(stats.spearmanr(shots, scores).statistic)
    assert abs(centred.shots) == pytest.approx(expected, abs=0.02)


def test_states_that_follow_the_length_alone_are_not():
    centred, _ = move(ideal(values=lambda evidence: evidence.shots.double()), 0)
    assert centred.order.value > 0.5  # what the authors report
    assert centred.given_shots.value < 0.25 and centred.given_shots.p > 0.01
    assert abs(centred.length) > 0.95 and abs(centred.shots) > 0.95


def test_masked_prompts_are_compared_with_the_entropy_they_had():
    shown, masked = fixed_conditions(ALL_WORDS, LABELS, each=6)
    assert (shown.name, masked.name) == (FIXED, BLIND)
    assert (masked.unaware_bits == shown.posterior_bits).all()
    states = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double()
    half = torch.full((30,), 0.5).double()
    centred, _ = move(Answers(masked, half, half, {1: states}, half), 1)
    assert centred.order is not None and centred.order.p > 0.01
    assert centred.given_shots is None and centred.shots is None and centred.by_shots == {}


def test_labels_are_read_by_their_logits(generator):
    logits = torch.randn(3, 11, generator=generator)
    first, mass = read_labels(logits, (4, 7))
    p = logits.double().softmax(-1)
    torch.testing.assert_close(first, p[:, 4] / (p[:, 4] + p[:, 7]))
    torch.testing.assert_close(mass, p[:, 4] + p[:, 7])


def test_answers_of_a_model_are_one_prompt_at_a_time():
    model = subject()
    evidence = sula.sample(ALL_WORDS, torch.Generator().manual_seed(0), count=2)
    main = condition("main", evidence, ALL_WORDS, LABELS)
    answers = answer(model, main, (1, 3))
    pair = label_pair(model, main.pair)
    assert model.tokenizer.convert_ids_to_tokens(list(pair)) == [" dax", " lug"]
    for at, text in enumerate(main.texts):
        tokens = torch.tensor([model.encode(text)])
        with torch.no_grad():
            given = model.model(tokens).logits[0, -1]
        a, b = (math.exp(float(given[token])) for token in pair)
        assert float(answers.first[at]) == pytest.approx(a / (a + b), abs=1e-5)
        assert int(answers.lengths[at]) == tokens.shape[1]
    assert answers.values[3].shape == (10, 16)
