"""Beliefs about a hidden state: exact ones, and those that a map reads from a network."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from bayesattn.drawing import COLOURS, GREY, Picture, panels
from bayesattn.linear import principal_axes
from bayesattn.probes.beliefs import BeliefGeometry
from bayesattn.probes.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CORNERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]], dtype=torch.float64)
"""Places of certain beliefs about each of three states."""
MOST_POINTS = 40_000
INK = 8000
"""Sizes of points times their number; few are drawn large."""


class Plane(NamedTuple):
    """The plane of the picture: a belief b is drawn at (b - origin) · axes."""

    origin: Tensor
    """[states]."""
    axes: Tensor
    """[states, 2]."""
    said: str
    """Remark for the reader."""

    def place(self, beliefs: Tensor) -> Tensor:
        return (beliefs - self.origin) @ self.axes


def plane_of(beliefs: Tensor) -> Plane:
    """The triangle of three states; else the first two components of beliefs [n, states]."""
    states = beliefs.shape[1]
    if states == 3:
        said = "Corners are certainty about one of the three states."
        return Plane(torch.zeros(3, dtype=torch.float64), CORNERS, said)
    lengths, directions = principal_axes(beliefs)
    share = float(lengths[:2].square().sum() / lengths.square().sum())
    said = (
        f"Of the {states} states' beliefs the first two principal components are drawn, which hold "
        f"{share:.0%} of the variance of the exact ones."
    )
    axes = torch.zeros(states, 2, dtype=torch.float64)
    axes[:, : len(directions[:2])] = directions[:2].T
    return Plane(beliefs.mean(0), axes, said)


def draw_beliefs(found: BeliefGeometry, title: str) -> Picture:
    """Side by side: exact beliefs, those read from all layers, and those before training."""
    exact = found.exact.flatten(0, 1)
    plane, colours = plane_of(exact), mixed_colours(exact)
    whole = found.whole.r_squared
    shown = {"exact": exact, f"read from all layers\nR² {whole.value:.3f}": found.trained}
    if found.untrained is not None:
        before = f"the same before training\nR² {whole.nulls['untrained']:.3f}"
        shown[before] = found.untrained
    numbers = spoken(whole)
    figure, axes = panels(3.6 * len(shown), 4.4, 1, len(shown), sharex=True, sharey=True)
    figure.suptitle(title, fontsize="medium", x=0.01, ha="left")
    figure.supxlabel(f"{plane.said}\n{numbers}", fontsize="small")
    for ax, (name, beliefs) in zip(axes[0], shown.items(), strict=True):
        _draw_points(ax, plane.place(beliefs.view_as(exact)), colours, found.words)
        if len(plane.origin) == 3:
            _draw_triangle(ax)
        ax.set_title(name)
        ax.set_aspect("equal")
        ax.set_axis_off()
    caption = (
        f"Beliefs after {found.words:,} words: exact, and as an affine map reads them from the "
        "residual stream after all layers, each word by a map that was fitted to other words. "
        f"Colours mix those of the states by the exact belief. {plane.said} {numbers}"
    )
    return Picture("beliefs", figure, caption, caption)


def spoken(r_squared: Measured) -> str:
    """R², its interval and its nulls, as under the picture."""
    assert r_squared.interval is not None
    low, high = r_squared.interval
    nulls = "; ".join(f"{name} {value:.3f}" for name, value in r_squared.nulls.items())
    return f"R² {r_squared.value:.3f} [{low:.3f}, {high:.3f}]. Beside it: {nulls}."


def mixed_colours(beliefs: Tensor) -> Tensor:
    """[n, 3] colours of the states, mixed by beliefs [n, states]."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    states = beliefs.shape[1]
    own: Any = [to_rgb(colour) for colour in COLOURS[:states]]
    if states > len(COLOURS):
        own = [colormaps["hsv"](state / states)[:3] for state in range(states)]
    return (beliefs @ torch.tensor(own, dtype=torch.float64)).clamp(0, 1)


def _draw_points(ax: "Axes", places: Tensor, colours: Tensor, words: int) -> None:
    stride = 1 + (len(places) - 1) // MOST_POINTS
    size = min(12.0, max(2.0, INK / words))
    x, y = places[::stride].T.numpy()
    # thousands of points are an image inside the file, not a shape each
    ax.scatter(x, y, s=size, c=colours[::stride].numpy(), linewidths=0, rasterized=True)


def _draw_triangle(ax: "Axes") -> None:
    x, y = torch.cat([CORNERS, CORNERS[:1]]).T.numpy()
    ax.plot(x, y, color=GREY, linewidth=0.8, zorder=0)
    for state, (across, up) in enumerate(CORNERS.tolist()):
        at = (across, up + (0.03 if up else -0.03))
        ax.annotate(f"{state}", at, ha="center", va="bottom" if up else "top", fontsize="small")
