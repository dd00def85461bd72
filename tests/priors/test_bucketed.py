import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.t5.modeling_t5 import T5Attention

from bayesattn.priors import Bucketed


@pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [
        (32, 128),
        (32, 2048),
        (8, 20),
        (9, 33),
        (2, 2),
        (64, 33),
        (10, 160),  # float64 logarithms would put distances 10, 20 and 80 elsewhere
    ],
)
def test_buckets_are_those_of_t5(num_buckets, max_distance):
    distance = torch.arange(5000)
    expected = T5Attention._relative_position_bucket(
        -distance, bidirectional=False, num_buckets=num_buckets, max_distance=max_distance
    )
    prior = Bucketed(1, num_buckets, max_distance)
    assert torch.equal(prior.bucket(distance), expected)
    assert torch.equal(prior.double().bucket(distance.double()), expected)


def test_each_bucket_has_its_own_value_per_head():
    prior = Bucketed(2, num_buckets=4, max_distance=8)
    with torch.no_grad():
        prior.theta_bucket.copy_(torch.tensor([[0.0, 1, 2, 3], [0, -1, -2, -3]]))
    # exact 0, 1; then 2-3 and everything from 4 on
    steps = torch.tensor([0.0, 1, 2, 2, 3, 3, 3])
    assert torch.equal(prior.table(7), torch.stack([steps, -steps]))


def test_it_starts_uniform():
    assert not Bucketed(3).table(300).any()


def test_the_gradient_counts_the_distances_of_a_bucket():
    prior = Bucketed(1, num_buckets=4, max_distance=8)
    prior.table(7).sum().backward()
    assert prior.theta_bucket.grad.tolist() == [[1, 1, 2, 3]]


def test_reach_ends_with_the_last_likely_bucket():
    prior = Bucketed(4, num_buckets=4, max_distance=8)
    with torch.no_grad():
        prior.theta_bucket.copy_(
            torch.tensor([[0.0, 0, -20, -20], [0, -20, 0, -20], [0, 0, 0, 0], [-20, -20, -20, 0]])
        )
    assert prior.reach().tolist() == [1, 3, math.inf, math.inf]


@pytest.mark.parametrize("num_buckets", [1, 0, 2.5])
def test_too_few_buckets(num_buckets):
    with pytest.raises(ValueError, match="num_buckets must be an integer of at least 2"):
        Bucketed(2, num_buckets=num_buckets)


def test_the_last_bucket_begins_after_the_exact_ones():
    with pytest.raises(ValueError, match="max_distance must be an integer of at least 17"):
        Bucketed(2, num_buckets=32, max_distance=16)


@given(
    near=st.integers(0, 10_000), far=st.integers(0, 10_000), buckets=st.integers(2, 80),
    extra=st.integers(1, 500),
)  # fmt: skip
def test_farther_is_never_a_lower_bucket(near, far, buckets, extra):
    prior = Bucketed(1, buckets, max_distance=buckets // 2 + extra)
    low, high = prior.bucket(torch.tensor(sorted([near, far]))).tolist()
    assert 0 <= low <= high < buckets
