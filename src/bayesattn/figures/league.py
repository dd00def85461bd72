"""Figures of encodings side by side: share found by length, and by depth; shapes of heads."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesattn.drawing import COLOURS, DASHED, GREY, Picture, add_colour_bar, new_figure
from bayesattn.stats import wilson_interval
from bayesattn.verdicts import Count

MARKS = ("o", "s", "^", "D")
GUESS = 1e-5
"""Probability of guessing five digits."""
NAMED = 8
"""Lines with a colour and a name; those that end earlier are grey."""


def draw_league(
    factors: Sequence[float], curves: Mapping[str, Sequence[Count | None]], trained: int
) -> Picture:
    """Share found over the length, a line for each name; fits a slide.

    Lines that lie on each other are told apart at their ends: each name stands in the legend with
    the longest prompts of which it still finds half.
    """
    shown = {
        name: [(at, own) for at, own in zip(factors, own, strict=True) if own is not None]
        for name, own in curves.items()
    }
    far = {name: _farthest(points) for name, points in shown.items()}
    order = sorted(shown, key=lambda name: (-far[name], -_mean(shown[name])))
    with new_figure(9, 4.6, "Who still finds it?") as figure:
        ax: Any = figure.subplots()
        for at, name in enumerate(order):
            x, counts = zip(*shown[name], strict=True)
            y = np.array([own.successes / own.trials for own in counts])
            if at >= NAMED:
                rest = f"{len(order) - NAMED} others (half at {far[name]:,.0f}× at most)"
                ax.plot(x, y, color=GREY, lw=0.8, alpha=0.6, label=rest if at == NAMED else None)
                continue
            low, high = np.array([wilson_interval(*own) for own in counts]).T
            style = {"color": COLOURS[at % len(COLOURS)], "marker": MARKS[at // 6 % len(MARKS)]}
            reached = f"half at {far[name]:,.0f}×" if far[name] else "not at 1×"
            width = 1.5 if at else 3
            ax.plot(x, y, markersize=5, lw=width, label=f"{name} ({reached})", zorder=9, **style)
            ax.fill_between(x, low, high, color=style["color"], alpha=0.1, linewidth=0)
        ax.axvline(1, **DASHED)
        ax.axhline(GUESS, color=GREY, linestyle=":", label="a guess: 1 in 100,000")
        ax.set_xscale("log", base=2)
        ax.set_xticks(factors, [f"{at:g}×\n{at * trained:,.0f}" for at in factors], minor=False)
        ax.minorticks_off()
        ax.set(ylim=(-0.03, 1.03), ylabel="passkeys found")
        ax.set_xlabel(f"length of the prompt, in training lengths ({trained} tokens) and in tokens")
        figure.legend(loc="outside right upper", fontsize=8)
    caption = (
        "Share of passkeys found by length of the prompt, all seeds together, with 95% Wilson "
        "intervals of the prompts. The dashed line is the training length, the dotted one a guess. "
        "Training contains passkey prompts up to that length."
    )
    said = ", ".join(f"{name}: {far[name]:g}×" for name in far)
    return Picture("league", figure, caption, f"{caption} Longest of which half are found: {said}.")


def _mean(points: Sequence[tuple[float, Count]]) -> float:
    return sum(own.successes / own.trials for _, own in points) / len(points)


def _farthest(points: Sequence[tuple[float, Count]]) -> float:
    return max((at for at, own in points if 2 * own.successes >= own.trials), default=0.0)


def draw_depths(lengths: Sequence[str], shares: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """A panel for each name: length × depth; from the start of the prompt, above, to its end."""
    with new_figure(1.5 + 3.2 * len(shares), 3.2) as figure:
        panels: Any = figure.subplots(1, len(shares), sharey=True, squeeze=False)
        rows = max(len(own) for values in shares.values() for own in values)
        for ax, (name, values) in zip(panels[0], shares.items(), strict=True):
            # lengths with fewer prompts have taller cells
            grid = np.array(
                [[own[row * len(own) // rows] for own in values] for row in range(rows)]
            )
            image = ax.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=1)
            ax.set_xticks(range(len(lengths)), lengths, rotation=45)
            ax.set_yticks([0, rows - 1], ["start", "end"])
            ax.tick_params(labelsize="small", length=0)
            ax.set_title(name)
            ax.spines[["left", "bottom"]].set_visible(False)
        panels[0, 0].set_ylabel("depth of the needle")
        figure.supxlabel("length of the prompt, in training lengths", fontsize="small")
        add_colour_bar(image, panels, pad=0.01, ticks=(0, 0.5, 1))
    caption = "Share of passkeys found by length of the prompt and depth of the needle."
    means = "; ".join(
        f"{name}: {', '.join(f'{np.mean(own):.2f}' for own in values)}"
        for name, values in shares.items()
    )
    return Picture("depths", figure, caption, f"{caption} Means over depths, by length: {means}.")


def draw_shapes(shapes: Mapping[str, Sequence[float]]) -> Picture:
    """β of every head, seed and layer after training: local above 0, far below."""
    with new_figure(7, 1.2 + 0.4 * len(shapes)) as figure:
        ax: Any = figure.subplots()
        for row, beta in enumerate(shapes.values()):
            jitter = np.linspace(-0.15, 0.15, len(beta))
            ax.plot(beta, row + jitter, "o", markersize=3, alpha=0.6, color=COLOURS[row % 6])
        ax.axvline(0, color=GREY, linewidth=1)
        ax.set_yticks(range(len(shapes)), list(shapes))
        ax.set(xlabel="β of a head after training: 1 is Laplace, 0 uniform, below 0 far")
    caption = "Shapes of the learned priors, a point for each head of each seed."
    least = ", ".join(f"{name}: {min(beta):.2f}" for name, beta in shapes.items())
    return Picture("shapes", figure, caption, f"{caption} Smallest of each: {least}.")
