import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesattn.priors import Student


def student(c, a):
    prior = Student(1).double()
    with torch.no_grad():
        prior.theta_c.fill_(math.log(c))
        prior.theta_a.fill_(math.log(a))
    return prior


def test_the_formula():
    distance = torch.tensor([0.0, 1.0, 7.0, 1e5], dtype=torch.double)
    expected = [-1.7 * math.log(1 + 0.3 * r) for r in distance.tolist()]
    assert student(1.7, 0.3).log_prior(distance)[0].tolist() == pytest.approx(expected)


def test_the_tail_is_a_power_of_distance():
    far = student(1.7, 0.3).log_prior(torch.tensor([1e8, 1e9], dtype=torch.double))[0]
    assert ((far[1] - far[0]) / math.log(10)).item() == pytest.approx(-1.7, abs=1e-6)


def test_heads_start_apart():
    prior = Student(4)
    torch.testing.assert_close(prior.c, torch.tensor([0.25, 0.75, 1.25, 1.75]))
    torch.testing.assert_close(prior.a, torch.full((4,), 0.5))


def test_reach_in_closed_form():
    # (1 + r)^-2 >= 1e-6 up to r = 999, on the edge: stay a little off it
    assert student(2, 1).reach(1.01e-6).tolist() == [994]
    assert student(1e-3, 1).reach().tolist() == [math.inf]


@given(r=st.floats(0, 1e5), k=st.floats(0.01, 100), c=st.floats(0.01, 10), a=st.floats(0.001, 100))
def test_stretching_distances_is_scaling_a(r, k, c, a):
    stretched = student(c, a).log_prior(torch.tensor([k * r], dtype=torch.double))
    scaled = student(c, k * a).log_prior(torch.tensor([r], dtype=torch.double))
    torch.testing.assert_close(stretched, scaled)
