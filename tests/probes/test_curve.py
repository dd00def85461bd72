"""A bent manifold is found along its own length; a straight one is the first component."""

import math
from itertools import pairwise

import pytest
import torch

from bayesattn.linear import principal_axes, spearman
from bayesattn.probes.curve import Curve, principal_curve


def arc(generator, angle, count=1500, width=6, noise=0.03):
    """Points of a circle's arc, in a random plane, and how far along each is."""
    along = torch.rand(count, generator=generator, dtype=torch.float64)
    plane = torch.zeros(count, width, dtype=torch.float64)
    plane[:, 0], plane[:, 1] = (angle * along).cos(), (angle * along).sin()
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
    scatter = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return plane @ turn + noise * scatter + 3, along


def line_share(x):
    lengths, _ = principal_axes(x)
    return float(lengths[0] ** 2 / lengths.square().sum())


@pytest.mark.parametrize("angle", [1.4 * math.pi, 1.6 * math.pi])
def test_a_horseshoe_is_ordered_along_itself(angle, generator):
    x, along = arc(generator, angle)
    curve = principal_curve(x[:1000])
    held_out = x[1000:]
    place = curve.land(held_out).coordinate
    assert abs(float(spearman(place, along[1000:]))) > 0.99
    assert curve.share(held_out) > 0.95 > 0.85 > line_share(x)
    _, axes = principal_axes(x)
    first = (held_out - held_out.mean(0)) @ axes[0]
    assert abs(float(spearman(first, along[1000:]))) < 0.99


def test_a_line_is_its_own_curve(generator):
    x, along = arc(generator, 1e-3, noise=0)
    x = x + 1e-6 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
    curve = principal_curve(x)
    assert curve.share(x) == pytest.approx(line_share(x), abs=0.01)
    assert abs(float(spearman(curve.land(x).coordinate, along))) > 0.999


def test_noise_is_hardly_a_curve(generator):
    x = torch.randn(2000, 20, generator=generator, dtype=torch.float64)
    curve = principal_curve(x[:1500])
    assert curve.share(x[1500:]) < 0.2


def test_landing_is_that_of_a_loop(generator):
    nodes = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    nodes[2] = nodes[1]  # a segment may have no length
    x = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    found = Curve(nodes, torch.zeros(3, dtype=torch.float64)).land(x)
    assert found.coordinate.shape == (2, 5)
    fine = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
    for at in torch.cartesian_prod(torch.arange(2), torch.arange(5)):
        point, best, passed = x[*at], (math.inf, 0.0), 0.0
        for a, b in pairwise(nodes):
            squares = (a + fine * (b - a) - point).square().sum(-1)
            nearest = int(squares.argmin())
            place = passed + float(fine[nearest]) * float((b - a).norm())
            best = min(best, (float(squares[nearest]), place))
            passed += float((b - a).norm())
        assert float(found.distance[*at]) == pytest.approx(best[0], abs=1e-5)
        assert float(found.coordinate[*at]) == pytest.approx(best[1], abs=2e-3)
