"""Three meanings of orthogonal keys, by loops."""

import itertools
import math

import pytest
import torch

from bayesattn.probes.llm import keys
from bayesattn.probes.nulls import random_cosine

# E|cos| of random directions; derived, not reported
COSINES = {
    16: 0.2026,
    64: 0.1001,
    80: 0.0895,
    128: 0.0707,
    576: 0.0333,
    1024: 0.0249,
    2048: 0.0176,
    2560: 0.0158,
    4096: 0.0125,
}


def cosine(a, b):
    return float(abs(a @ b) / (a.norm() * b.norm()))


def mean_pair(vectors):
    pairs = list(itertools.combinations(vectors, 2))
    return sum(cosine(a, b) for a, b in pairs) / len(pairs)


@pytest.mark.parametrize(("width", "expected"), COSINES.items())
def test_random_directions_are_the_table(width, expected):
    assert random_cosine(width) == pytest.approx(expected, abs=1e-4)


def test_gaussian_weights_are_as_random_directions_of_the_models_width(generator):
    weight = torch.randn(40, 16, 512, generator=generator)
    found = keys.weight_cosines(weight)
    error = float(found.std()) / math.sqrt(len(found))
    measured = keys.measure_weights(found, 512, None)
    assert measured.value == pytest.approx(measured.nulls[keys.RANDOM], abs=3 * error)
    # the width of a head would be the wrong baseline
    assert abs(measured.value - random_cosine(16)) > 100 * error


def test_weights_by_a_loop(generator):
    weight = torch.randn(2, 5, 9, generator=generator).double()
    expected = [mean_pair(head) for head in weight]
    assert keys.weight_cosines(weight).tolist() == pytest.approx(expected)
    found = keys.measure_weights(keys.weight_cosines(weight), 9, torch.tensor([0.2, 0.4]))
    assert found.value == pytest.approx(sum(expected) / 2)
    assert found.nulls == pytest.approx({keys.RANDOM: random_cosine(9), "random init": 0.3})


def test_tokens_by_a_loop(generator):
    own, fresh = torch.randn(2, 6, 3, 8, generator=generator).double()
    found = keys.measure_tokens(own, fresh)
    assert found.value == pytest.approx(sum(mean_pair(own[:, h]) for h in range(3)) / 3)
    expected = sum(mean_pair(fresh[:, h]) for h in range(3)) / 3
    assert found.nulls["random init"] == pytest.approx(expected)
    assert found.nulls[keys.RANDOM] == random_cosine(8)
    assert found.interval.low < found.value < found.interval.high


def test_heads_by_a_loop(generator):
    own, fresh = torch.randn(2, 7, 3, 8, generator=generator).double()
    found = keys.measure_heads(own, fresh)
    assert found.value == pytest.approx(sum(map(mean_pair, own)) / 7)
    assert found.nulls["random init"] == pytest.approx(sum(map(mean_pair, fresh)) / 7)
    assert found.nulls[keys.RANDOM] == random_cosine(8)


def test_one_head_has_no_other(generator):
    assert keys.measure_heads(torch.randn(5, 1, 8, generator=generator)) is None


def test_different_tokens_are_first_occurrences_after_the_first_position():
    tokens = torch.tensor([4, 7, 4, 7, 9, 9, 4])
    positions = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    assert keys.different_tokens(tokens, positions) == [1, 2, 5]
    assert keys.different_tokens(tokens, positions, 2) == [1, 2]
