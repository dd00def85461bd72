"""The picture of beliefs: its points and its numbers are the measurement's."""

import math

import numpy as np
import pytest
import torch

from bayesattn.drawing import save_picture
from bayesattn.figures.beliefs import draw_beliefs, mixed_colours, plane_of
from bayesattn.probes.beliefs import measure_beliefs
from bayesattn.probes.measured import held_out
from bayesattn.tunnels import RRXOR, Mess3
from tests.probes.common import model_of


def geometry(process, *, initial=True):
    before = model_of("ggd", process, seed=1) if initial else None
    batch = held_out(process, 100)
    return measure_beliefs(model_of("ggd", process), process, batch, before, permutations=3)


@pytest.fixture(scope="module", params=[Mess3(5), RRXOR(7)], ids=["mess3", "rrxor"])
def found(request):
    return geometry(request.param)


def test_points_and_numbers_are_those_of_the_measurement(found):
    picture = draw_beliefs(found, "a title")
    plane = plane_of(found.exact.flatten(0, 1))
    panels = picture.figure.axes
    for ax, beliefs in zip(panels, (found.exact, found.trained, found.untrained), strict=True):
        points = ax.collections[0].get_offsets()
        np.testing.assert_allclose(points, plane.place(beliefs.flatten(0, 1)), atol=1e-12)
    whole = found.whole.r_squared
    titles = [ax.get_title() for ax in panels]
    assert titles[0] == "exact"
    assert f"R² {whole.value:.3f}" in titles[1]
    assert f"R² {whole.nulls['untrained']:.3f}" in titles[2]
    said, numbers = picture.figure.get_supxlabel().split("\n")
    assert f"R² {whole.value:.3f} [{whole.interval.low:.3f}, {whole.interval.high:.3f}]" in numbers
    assert all(f"{name} {value:.3f}" in numbers for name, value in whole.nulls.items())
    assert said == plane.said
    assert numbers in picture.caption and plane.said in picture.caption


def test_a_network_without_its_beginning_has_two_panels():
    assert len(draw_beliefs(geometry(Mess3(5), initial=False), "").figure.axes) == 2


def test_certainty_is_a_corner_of_the_triangle():
    plane = plane_of(torch.full((4, 3), 1 / 3, dtype=torch.float64))
    corners = plane.place(torch.eye(3, dtype=torch.float64))
    distances = torch.cdist(corners, corners)
    torch.testing.assert_close(distances, 1 - torch.eye(3, dtype=torch.float64))
    centre = plane.place(torch.full((3,), 1 / 3, dtype=torch.float64))
    torch.testing.assert_close((corners - centre).norm(dim=1), torch.full((3,), 3**-0.5).double())


def test_more_states_are_projected_and_said_to_be():
    process = RRXOR(7)
    exact = process.beliefs(held_out(process, 100).inputs).flatten(0, 1)
    plane = plane_of(exact)
    spread = plane.place(exact).var(0, correction=0)
    values = torch.linalg.eigvalsh(torch.cov(exact.T, correction=0)).flip(0)
    torch.testing.assert_close(spread, values[:2])
    share = float(values[:2].sum() / values.sum())
    assert f"the first two principal components are drawn, which hold {share:.0%}" in plane.said


def test_two_states_lie_on_a_line():
    exact = torch.rand(50, 1, generator=torch.Generator().manual_seed(0)).double()
    exact = torch.cat([exact, 1 - exact], 1)
    places = plane_of(exact).place(exact)
    assert places[:, 1].abs().max() < 1e-12
    gap, expected = places[0, 0] - places[1, 0], math.sqrt(2) * (exact[0, 0] - exact[1, 0])
    assert abs(gap) == pytest.approx(abs(expected))


@pytest.mark.parametrize("states", [2, 3, 6, 8])
def test_colours_are_mixed_by_belief(states):
    sure = mixed_colours(torch.eye(states, dtype=torch.float64))
    assert len(sure.unique(dim=0)) == states
    even = mixed_colours(torch.full((1, states), 1 / states, dtype=torch.float64))
    torch.testing.assert_close(even[0], sure.mean(0))


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_files(found, tmp_path, ending):
    path = tmp_path / f"beliefs{ending}"
    save_picture(draw_beliefs(found, "a title"), path)
    assert 0 < path.stat().st_size < 2e6
