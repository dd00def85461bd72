"""Figures of long contexts: retrieval by length and depth, perplexity by position."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bayesattn.drawing import COLOURS, DASHED, GREY, Picture, add_colour_bar, new_figure
from bayesattn.evals.passkey import Passkey
from bayesattn.evals.perplexity import Perplexity
from bayesattn.evals.ruler import Ruler

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_passkey(found: Passkey) -> Picture:
    """Accuracy by length with its interval above, by length and depth below."""
    cells = found.by_length()
    width = min(3.2 + 0.55 * len(cells), 11)
    with new_figure(width, 5.2, f"{found.model}: {found.kind} retrieval") as figure:
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
    shares = np.array([cell.accuracy for cell in cells])
    low, high = np.array([cell.interval for cell in cells]).T
    bars = np.clip((shares - low, high - shares), 0, None)
    ax.errorbar(range(len(cells)), shares, bars, color=COLOURS[0], marker="o", capsize=2)
    ax.set(ylim=(-0.03, 1.03), ylabel="retrieved")
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
    ax.set(ylabel="depth of the needle", xlabel="length of the prompt (tokens)")
    ax.spines[["left", "bottom"]].set_visible(False)
    add_colour_bar(image, ax, pad=0.01, ticks=(0, 0.5, 1))
    _mark_training(ax, found)


def _mark_training(ax: "Axes", found: Passkey) -> None:
    """Draw a line between lengths inside and beyond the training length."""
    inside = sum(cell.length <= found.trained for cell in found.by_length())
    if 0 < inside < len(found.by_length()):
        ax.axvline(inside - 0.5, **DASHED)


def draw_perplexity(found: Perplexity) -> Picture:
    """Perplexity of each window of positions, beside that of a short context."""
    rows = found.by_window()
    middle = [(row["from"] + row["to"]) / 2 for row in rows]
    curves = {name: [row[name] for row in rows] for name in rows[0]}
    with new_figure(7, 4, found.model) as figure:
        ax: Axes = cast(Any, figure.subplots())
        short = f"at most {found.trained} tokens of context"
        ax.plot(middle, curves["perplexity_short"], color=GREY, linestyle=":", label=short)
        settings: dict[str, Any] = {"marker": "o", "markersize": 3, "label": "all tokens before"}
        ax.plot(middle, curves["perplexity"], color=COLOURS[0], **settings)
        if rows[0]["perplexity_low"] is not None:
            ends = (curves["perplexity_low"], curves["perplexity_high"])
            ax.fill_between(middle, *ends, color=COLOURS[0], alpha=0.2, linewidth=0)
        ax.axvline(found.trained, **DASHED)
        ax.set_xscale("log", base=2)
        ax.set(yscale="log", xlabel="position in the text (tokens)", ylabel="perplexity")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:,g}")
        ax.yaxis.set_minor_formatter("{x:,g}")
        ax.legend()
    caption = (
        f"Perplexity by position, in windows of {found.window} tokens, over "
        f"{len(found.losses)} sequences, with 95% intervals over sequences. The dashed line is the "
        "training length."
    )
    said = f"It is {rows[0]['perplexity']:.3g} in the first window, {rows[-1]['perplexity']:.3g} "
    return Picture("perplexity", figure, caption, f"{caption} {said}in the last.")


def draw_ruler(found: Ruler) -> Picture:
    """Scores by kind and length; a cell that does not fit is empty."""
    kinds = list(dict.fromkeys(cell.kind for cell in found.cells))
    lengths = {cell.requested: cell.longest for cell in found.cells}
    names = list(lengths)
    grid = np.full((len(kinds), len(names)), np.nan)
    for cell in found.cells:
        grid[kinds.index(cell.kind), names.index(cell.requested)] = cell.score
    size = (3.4 + 0.75 * len(names), 1.2 + 0.32 * len(kinds))
    with new_figure(*size, f"{found.model}: RULER, offline") as figure:
        ax: Axes = cast(Any, figure.subplots())
        image = ax.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=1)
        for (row, column), score in np.ndenumerate(grid):
            if not np.isnan(score):
                colour = "white" if score > 0.6 else "black"
                ax.text(column, row, f"{score:.2f}", ha="center", va="center", color=colour)
        ax.set_xticks(range(len(names)), [f"{name}\n{lengths[name]:,}" for name in names])
        ax.set_yticks(range(len(kinds)), kinds)
        ax.tick_params(labelsize="small", length=0)
        ax.set(xlabel="length of the prompt (tokens)")
        ax.spines[["left", "bottom"]].set_visible(False)
        add_colour_bar(image, ax, pad=0.02, ticks=(0, 0.5, 1))
    caption = (
        "Share of answers that greedy continuations hold, by kind and length of the prompt "
        f"({found.cells[0].total} prompts a cell). Training length: {found.trained:,} tokens."
    )
    means = ", ".join(f"{score:.2f} at {name}" for name, (score, _) in found.means().items())
    return Picture("ruler", figure, caption, f"{caption} Means over kinds: {means}.")
