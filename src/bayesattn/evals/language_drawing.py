"""Figures of long contexts: retrieval by length and depth, perplexity by position."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bayesattn.drawing import COLOURS, INK, Picture, house_style
from bayesattn.evals.passkey import Passkey
from bayesattn.evals.perplexity import Perplexity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8a8f98"


def draw_passkey(found: Passkey) -> Picture:
    """Accuracy by length with its interval above, by length and depth below."""
    from matplotlib.figure import Figure

    cells = found.by_length()
    with house_style():
        width = 3.2 + 0.55 * len(cells)
        figure = Figure(figsize=(min(width, 11), 5.2), layout="constrained")
        figure.suptitle(f"{found.model}: {found.kind} retrieval", fontsize="medium")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.4))
        _draw_accuracy(above, found)
        _draw_grid(below, found)
    caption = (
        "Share of values retrieved, with 95% Wilson intervals, by length of the prompt, and by "
        "length and depth of the needle. The dashed line is the training length "
        f"({found.trained} tokens)."
    )
    best = ", ".join(f"{cell.accuracy:.2f} at {cell.length:,} tokens" for cell in cells)
    return Picture("passkey", figure, caption, f"{caption} Retrieved: {best}.")


def _draw_accuracy(ax: "Axes", found: Passkey) -> None:
    cells = found.by_length()
    places = range(len(cells))
    shares = [cell.accuracy for cell in cells]
    low = [cell.accuracy - cell.interval.low for cell in cells]
    high = [cell.interval.high - cell.accuracy for cell in cells]
    ax.errorbar(
        places, shares, np.clip((low, high), 0, None), color=COLOURS[0], marker="o", capsize=2
    )
    ax.set_ylim(-0.03, 1.03)
    ax.set_ylabel("retrieved")
    _mark_training(ax, found)


def _draw_grid(ax: "Axes", found: Passkey) -> None:
    lengths = found.by_length()
    names = [cell.requested for cell in lengths]
    depths = sorted({cell.depth for cell in found.cells})
    grid = np.full((len(depths), len(names)), np.nan)
    for cell in found.cells:
        grid[depths.index(cell.depth), names.index(cell.requested)] = cell.accuracy
    image = ax.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(range(len(names)), [f"{c.requested}\n{c.length:,}" for c in lengths])
    ax.tick_params(labelsize="small", length=0)
    shown = sorted({round(at) for at in np.linspace(0, len(depths) - 1, 6)})
    ax.set_yticks(shown, [f"{depths[at]:.0%}" for at in shown])
    ax.set_ylabel("depth of the needle")
    ax.set_xlabel("length of the prompt (tokens)")
    ax.spines[["left", "bottom"]].set_visible(False)
    assert ax.figure is not None
    bar = ax.figure.colorbar(image, ax=ax, pad=0.01, ticks=(0, 0.5, 1))
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    _mark_training(ax, found)


def _mark_training(ax: "Axes", found: Passkey) -> None:
    """Between the lengths that training covered and the others."""
    inside = sum(cell.length <= found.trained for cell in found.by_length())
    if 0 < inside < len(found.by_length()):
        ax.axvline(inside - 0.5, color=INK, linestyle="--", linewidth=1)


def draw_perplexity(found: Perplexity) -> Picture:
    """Perplexity of each window of positions, beside that of a short context."""
    from matplotlib.figure import Figure

    rows = found.by_window()
    middle = [(row["from"] + row["to"]) / 2 for row in rows]
    with house_style():
        figure = Figure(figsize=(7, 4), layout="constrained")
        ax: Axes = cast(Any, figure.subplots())
        ax.plot(
            middle,
            [row["perplexity_short"] for row in rows],
            color=GREY,
            linestyle=":",
            label=f"at most {found.trained} tokens of context",
        )
        ax.plot(
            middle,
            [row["perplexity"] for row in rows],
            color=COLOURS[0],
            marker="o",
            markersize=3,
            label="all tokens before",
        )
        if rows[0]["perplexity_low"] is not None:
            low, high = ([row[f"perplexity_{end}"] for row in rows] for end in ("low", "high"))
            ax.fill_between(middle, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
        ax.axvline(found.trained, color=INK, linestyle="--", linewidth=1)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:,g}")
        ax.yaxis.set_minor_formatter("{x:,g}")
        ax.set_xlabel("position in the text (tokens)")
        ax.set_ylabel("perplexity")
        ax.set_title(found.model, fontsize="medium")
        ax.legend(fontsize="small")
    caption = (
        f"Perplexity by position, in windows of {found.window} tokens, over "
        f"{len(found.losses)} sequences, with 95% intervals over sequences. The dashed line is the "
        "training length."
    )
    said = f"It is {rows[0]['perplexity']:.3g} in the first window, {rows[-1]['perplexity']:.3g} "
    return Picture("perplexity", figure, caption, f"{caption} {said}in the last.")
