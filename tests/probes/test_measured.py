"""Chances, intervals and plain values."""

import json
from dataclasses import dataclass

import pytest
import torch
from scipy.stats import binom

from bayesattn.probes.measured import Measured, chance, mean_over_sequences, plain
from bayesattn.stats import percentiles


def test_chance_counts_the_sample_itself_and_forgives_rounding():
    assert chance(0.5, torch.full((9,), 0.1)) == pytest.approx(0.1)
    assert chance(0.5, torch.tensor([0.6, 0.4, 0.5])) == pytest.approx(3 / 4)
    assert chance(1.0, torch.full((9,), 1.0 - 1e-9)) == 1
    assert chance(1000.0, torch.full((9,), 1000.0 - 1e-4)) == 1


def test_a_mean_over_sequences_and_its_interval(generator):
    values = torch.randn(300, 4, generator=generator) + 2
    found = mean_over_sequences(values)
    assert found.value == pytest.approx(float(values.mean()))
    spread = 1.96 * float(values.mean(1).std()) / 300**0.5
    assert found.interval == pytest.approx((found.value - spread, found.value + spread), abs=0.02)
    mask = torch.rand(300, 4, generator=generator) < 0.3
    assert mean_over_sequences(values, mask).value == pytest.approx(float(values[mask].mean()))


def test_tokens_of_a_sequence_are_not_independent(generator):
    """Four copies of each number: as much as one of each, and the interval holds the truth."""
    held = 0
    for _ in range(200):
        one = torch.randn(40, 1, generator=generator)
        low, high = mean_over_sequences(one.expand(-1, 4)).interval
        held += low <= 0 <= high
    assert held >= binom.ppf(0.001, 200, 0.93)


def test_an_interval_is_moved_back_by_what_resampling_moves():
    resampled = torch.linspace(0, 1, 101)
    assert percentiles(resampled) == pytest.approx((0.025, 0.975))
    assert percentiles(resampled, 0.3) == pytest.approx((-0.175, 0.775))


def test_plain_values_are_json():
    @dataclass
    class Found:
        one: Measured
        several: dict[str, list[Measured]]

    measured = Measured(value=1.0, interval=percentiles(torch.tensor([0.0, 1.0]))).beside(
        other_sequences=0.5
    )
    found = json.loads(json.dumps(plain(Found(measured, {"a": [measured]}))))
    assert found["one"] == found["several"]["a"][0]
    assert found["one"]["nulls"] == {"other sequences": 0.5} and found["one"]["p"] is None
