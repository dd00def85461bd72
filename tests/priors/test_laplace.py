import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesattn.priors import Laplace

# spec: printed slopes of 16 heads.
PRINTED = [
    *(0.70711, 0.5, 0.35355, 0.25, 0.17678, 0.125, 0.08839, 0.0625),
    *(0.04419, 0.03125, 0.02210, 0.01562, 0.01105, 0.00781, 0.00552, 0.00391),
]


def alibi(num_heads):
    """ALiBi's recipe, as its paper words it."""
    if math.log2(num_heads).is_integer():
        first = 2 ** (-8 / num_heads)
        return [first**k for k in range(1, num_heads + 1)]
    below = 2 ** math.floor(math.log2(num_heads))
    return alibi(below) + alibi(2 * below)[::2][: num_heads - below]


def test_slopes_of_16_heads():
    assert Laplace(16).slopes.tolist() == pytest.approx(PRINTED, abs=6e-6)


@pytest.mark.parametrize("num_heads", [*range(1, 34), 48, 64, 100])
def test_slopes_of_any_head_count(num_heads):
    assert Laplace(num_heads).slopes.tolist() == pytest.approx(alibi(num_heads), rel=3e-7)


def test_the_bias_is_exactly_that_of_alibi():
    slopes = torch.tensor([0.5**k for k in range(1, 9)])
    distance = torch.arange(70_000)
    assert torch.equal(Laplace(8).log_prior(distance), -slopes[:, None] * distance)


@pytest.mark.parametrize("num_heads", [8, 12, 16, 24, 32, 40, 64])
def test_bfloat16_does_not_move_alibi(num_heads):
    assert torch.equal(Laplace(num_heads).bfloat16().slopes, Laplace(num_heads).slopes)


def test_fixed_slopes_are_saved_but_not_trained():
    prior = Laplace(4)
    assert not list(prior.parameters())
    assert list(prior.state_dict()) == ["log2_slopes"]


def test_learned_slopes_start_at_alibi_and_have_gradients():
    prior = Laplace(4, learned=True)
    assert torch.equal(prior.table(5), Laplace(4).table(5))
    prior.table(5).sum().backward()
    # d/dθ of -2^θ·r, summed over r = 0 .. 4
    expected = -math.log(2) * 10 * prior.slopes.detach()
    torch.testing.assert_close(prior.log2_slopes.grad, expected)


def test_a_fixed_prior_loads_into_a_learned_one():
    learned = Laplace(3, learned=True)
    learned.load_state_dict(Laplace(3, slopes=[1, 2, 3]).state_dict())
    torch.testing.assert_close(learned.slopes, torch.tensor([1.0, 2.0, 3.0]))


def test_slopes_can_be_given():
    prior = Laplace(2, slopes=[0.3, 4])
    torch.testing.assert_close(prior.table(3), torch.tensor([[0, -0.3, -0.6], [0, -4, -8]]))
    torch.testing.assert_close(Laplace(2, slopes=torch.tensor([0.3, 4])).table(3), prior.table(3))


@pytest.mark.parametrize(
    "slopes", [[1.0], [1, 1, 1], [1, 0], [1, -2], [1, math.nan], [1, math.inf]]
)
def test_bad_slopes(slopes):
    with pytest.raises(ValueError, match="slopes must be 2 positive numbers"):
        Laplace(2, slopes=slopes)


def test_reach_is_where_the_exponential_ends():
    # exp(-r/2) >= 1e-6 up to r = 2 · 13.8
    assert Laplace(2, slopes=[0.5, 0.01]).reach(1e-6).tolist() == [27, 1381]


@given(a=st.floats(0, 1e4), b=st.floats(0, 1e4), slope=st.floats(1e-3, 10))
def test_log_densities_add_along_the_line(a, b, slope):
    prior = Laplace(1, slopes=[slope]).double()
    at_a, at_b, at_sum = prior.log_prior(torch.tensor([a, b, a + b], dtype=torch.double))[0]
    torch.testing.assert_close(at_a + at_b, at_sum)
