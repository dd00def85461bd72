"""The figure of a diagnosis: how far each head's entropy is from its own law beyond the length."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bayesattn.drawing import COLOURS, DASHED, GREY, Picture, add_colour_bar, new_figure
from bayesattn.models.extend_fit import Diagnosis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = {"flattens": COLOURS[1], "collapses": COLOURS[0], "stays": GREY, "window": COLOURS[2]}


def draw_diagnosis(found: Diagnosis, name: str) -> Picture:
    """Entropy by position for the kinds of heads, and the excess of every head."""
    heads, rows = found.heads(), found.rows.numpy() + 1
    layers = max(head.layer for head in heads) + 1
    excess = np.array([head.excess for head in heads]).reshape(layers, -1)
    kinds = np.array([head.kind for head in heads]).reshape(layers, -1)
    mean = found.entropies.double().mean(0).numpy() / np.log(rows)
    with new_figure(9, 4.2, f"{name}: entropy of its heads") as figure:
        left, right = cast(Any, figure.subplots(1, 2, width_ratios=(1.5, 1)))
        _draw_curves(left, rows, mean, kinds)
        left.axvline(found.trained, **DASHED)
        limit = float(np.abs(excess).max()) or 1.0
        settings: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
        image = right.imshow(excess, aspect="auto", interpolation="nearest", **settings)
        right.set(xlabel="head", ylabel="layer", title="nats beyond its own law")
        add_colour_bar(image, right, pad=0.03)
    counts = ", ".join(f"{(kinds == kind).sum()} {kind}" for kind in KINDS if kind in kinds)
    caption = (
        "Left: entropy over ln n of n visible keys, mean of the heads of each kind, by position; "
        f"the dashed line is the trained length ({found.trained:,} tokens). Right: how far each "
        "head's entropy beyond it is from the straight line in ln n that it follows inside."
    )
    return Picture("diagnosis", figure, caption, f"{caption} Heads: {counts}.")


def _draw_curves(ax: "Axes", rows: Any, even: Any, kinds: Any) -> None:
    for kind, colour in KINDS.items():
        chosen = even[kinds == kind]
        if len(chosen):
            low, middle, high = np.quantile(chosen, (0.25, 0.5, 0.75), axis=0)
            ax.plot(rows, middle, color=colour, label=f"{kind} ({len(chosen)} heads)")
            ax.fill_between(rows, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.set(xlabel="visible keys n", ylabel="entropy / ln n", ylim=(0, 1))
    ax.legend(fontsize="small")
