"""Bounds of rounding hold for what torch computes, and the worst case reaches them."""

import itertools
import math

import pytest
import torch

from bayesattn.probes.rounding import (
    Gap,
    gap,
    least,
    mean_error,
    score_errors,
    unit,
    weight_bounds,
    weight_rounding,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, 5.0])
def test_scores_weights_and_means_of_torch(dtype, size, generator):
    """Scores of about ±1 and ±200, with a soft cap and without one."""
    q, k = (
        (size**0.5 * 2 * torch.randn(3, 40, 64, generator=generator)).to(dtype) for _ in range(2)
    )
    v = torch.randn(3, 40, 16, generator=generator).to(dtype)
    u, scale = unit(dtype), 0.3
    scores = q @ k.mT * scale
    exact = q.double() @ k.double().mT * scale
    errors = score_errors(q, k, scale, u)
    assert size == 1 or exact.abs().max() > 150
    off = (scores.double() - exact).abs()
    assert (off <= errors).all() and (off / errors).max() > 0.01
    for cap in (None, 50.0):
        capped = scores if cap is None else torch.tanh(scores / cap) * cap
        meant = exact if cap is None else torch.tanh(exact / cap) * cap
        weights = capped.softmax(-1, dtype=torch.float32).to(dtype)
        wanted = meant.softmax(-1)
        low, high = weight_bounds(wanted, errors)
        rounding = weight_rounding(40, u) * high + least(dtype)
        assert (weights >= low - rounding).all() and (weights <= high + rounding).all()
        assert (low <= wanted).all() and (wanted <= high + 1e-15).all()
    means = weights.double() @ v.double()
    allowed = mean_error(weights.double(), v.double(), u)
    assert ((weights @ v).double() - means).abs().le(allowed).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_of_rounding_are_no_larger_than_need_be(dtype, generator):
    """What torch is off by comes to a hundredth of them or more, in half precision to a third."""
    u, share = unit(dtype), 0.01 if dtype == torch.float32 else 0.3
    scores = torch.randint(-3, 4, (200, 40), generator=generator).double()  # which have no error
    weights, wanted = scores.to(dtype).softmax(-1, torch.float32).to(dtype), scores.softmax(-1)
    off = (weights.double() - wanted).abs() / (weight_rounding(40, u) * wanted)
    assert share < off.max() < 1
    v = torch.randn(40, 16, generator=generator).to(dtype)
    allowed = mean_error(weights.double(), v.double(), u)
    off = ((weights @ v).double() - weights.double() @ v.double()).abs() / allowed
    assert share < off.max() < 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_units_are_those_of_the_dtype(dtype):
    one = torch.ones(1, dtype=torch.float64)
    assert (one + unit(dtype)).to(dtype) == 1 < (one + 2 * unit(dtype)).to(dtype)
    assert (one * least(dtype)).to(dtype) > 0 == (one * least(dtype) / 2).to(dtype)


def test_bounds_of_weights_are_the_worst_of_all(generator):
    """Over every choice of signs of the errors; linear fractions take their extremes at corners."""
    scores, errors = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    errors = errors.abs()
    signs = torch.tensor([*itertools.product((-1.0, 1.0), repeat=5)]).double()
    moved = (scores + signs * errors).softmax(-1)
    low, high = weight_bounds(scores.softmax(-1), errors)
    torch.testing.assert_close(low, moved.amin(0))
    torch.testing.assert_close(high, moved.amax(0))


def test_weights_that_are_certain_stay_so():
    weights = torch.tensor([1.0, 0.0, 1e-80], dtype=torch.float64)
    low, high = weight_bounds(weights, torch.full((3,), 5.0, dtype=torch.float64))
    assert low[0] == 1 and high[1] == 0 and high[2] < 1e-70
    low, high = weight_bounds(weights, torch.full((3,), 900.0, dtype=torch.float64))
    assert low.isfinite().all() and high[2] == pytest.approx(1)


def test_the_gap_that_counts_is_measured_by_what_is_allowed():
    x, y = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([1.0, 4.0, 1.9])
    assert gap(x, y, torch.tensor([0.0, 2.0, 0.05])) == pytest.approx((0.1, 0.05))
    assert gap(x, x) == (0.0, 0.0)
    assert gap(x, y[:2]).found == math.inf
    assert math.isnan(gap(x, torch.tensor([1.0, math.nan, 0.0]), 9.0).found)
    assert Gap(math.nan, 1.0).ratio == Gap(1e-30).ratio == math.inf and Gap(0.0).ratio == 0
