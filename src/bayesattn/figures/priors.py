"""Figures of learnt priors: curves, shapes, movement, and the factors of attention on a prompt."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesattn.drawing import COLOURS, GREY, INK, Picture, add_colour_bar, new_figure
from bayesattn.evals.priors import Factors, Priors
from bayesattn.priors.generalized_gaussian import AGGRESSIVE_BELOW, RETRIEVAL_BELOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASS_COLOURS = {"local": COLOURS[0], "near-uniform": COLOURS[1], "far": COLOURS[2]}
COLUMNS = 4
"""Number of panels per row."""
FAINTEST = 1e-4
"""Smallest probability that is drawn."""
BLUES: dict[str, Any] = {"cmap": "Blues", "interpolation": "nearest"}


def draw_curves(priors: Priors) -> Picture:
    """A panel per layer, a line per head in the colour of its class; dotted at initialisation."""
    from matplotlib.lines import Line2D

    layers = priors.layers
    columns = min(COLUMNS, len(layers))
    rows = -(-len(layers) // columns)
    kinds = [kind for kind in CLASS_COLOURS if kind in priors.counts()]
    size, title = (1 + 2.6 * columns, 0.7 + 2.3 * rows), f"{priors.model}: {priors.prior} priors"
    with new_figure(*size, title) as figure:
        panels: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for ax in panels.flat[len(layers) :]:
            ax.remove()
        for row, (ax, layer) in enumerate(zip(panels.flat, layers, strict=False)):
            for head in (head for head in priors.heads if head.layer == layer):
                density = priors.density[row, head.head].clamp(min=FAINTEST / 100).numpy()
                look: dict[str, Any] = {"color": CLASS_COLOURS[head.looks], "alpha": 0.8}
                ax.plot(range(1, priors.length + 1), density, linewidth=1.2, **look)
                if priors.initial is not None:
                    began = priors.initial[row, head.head].clamp(min=FAINTEST / 100).numpy()
                    ax.plot(range(1, priors.length + 1), began, ":", linewidth=0.8, color=GREY)
            ax.set_title(f"layer {layer}", fontsize="small")
        panels[0, 0].set(xscale="log", yscale="log", ylim=(FAINTEST / 10, 1.5))
        figure.supxlabel("distance from query to key, plus 1", fontsize="small")
        figure.supylabel("prior probability", fontsize="small")
        keys = [Line2D([], [], color=CLASS_COLOURS[kind]) for kind in kinds]
        figure.legend(keys, kinds, loc="outside right upper")
    caption = (
        "Prior probability of every distance for the last token of a training sequence "
        f"({priors.length} tokens), one line per head"
        + (", dotted as they began." if priors.initial is not None else ".")
    )
    return Picture("prior-curves", figure, caption, f"{caption} {spoken(priors)}")


def draw_shapes(priors: Priors) -> Picture:
    """theta_beta against theta_alpha, a dot per head, the borders of the classes between them."""
    if any(head.theta_beta is None for head in priors.heads):
        raise ValueError(f"The {priors.prior} prior has no theta_alpha and theta_beta to draw.")
    with new_figure(5.6, 4.4, f"{priors.model}: shapes of its priors") as figure:
        ax: Axes = figure.subplots()
        colours = _layer_colours(priors)
        for row, layer in enumerate(priors.layers):
            heads = [head for head in priors.heads if head.layer == layer]
            if moved := priors.movement:
                for head in heads:
                    paths = (moved.theta_beta, moved.theta_alpha)
                    trail = [path[:, row, head.head].numpy() for path in paths]
                    ax.plot(*trail, color=colours[layer], linewidth=0.7, alpha=0.4)
            x, y = zip(*((head.theta_beta, head.theta_alpha) for head in heads), strict=True)
            ax.scatter(x, y, s=22, color=colours[layer], label=f"layer {layer}", zorder=3)
        _draw_borders(ax)
        ax.set(xlabel="theta_beta (shape)", ylabel="theta_alpha (log scale)")
        _layer_legend(figure, priors)
    caption = (
        "Every head's prior by shape and scale. Dashed lines are the borders between aggressive, "
        "retrieval and local heads"
        + ("; thin lines are the way there." if priors.movement else ".")
    )
    return Picture("prior-shapes", figure, caption, f"{caption} {spoken(priors)}")


def draw_movement(priors: Priors) -> Picture:
    """theta_beta and theta_alpha of every head over the training."""
    moved = priors.movement
    if moved is None:
        raise ValueError(
            f"{priors.model} is no run with a ggd prior, so it is not known what has moved."
        )
    with new_figure(8.5, 3.6, f"{priors.model}: how its priors moved") as figure:
        panels: Any = figure.subplots(1, 2)
        colours = _layer_colours(priors)
        for ax, name in zip(panels, ("theta_beta", "theta_alpha"), strict=True):
            paths = getattr(moved, name)
            for row, layer in enumerate(priors.layers):
                each = paths[:, row].numpy()
                lines = ax.plot(moved.steps, each, color=colours[layer], linewidth=1)
                lines[0].set_label(f"layer {layer}")
            ax.set_xlabel("training step")
            ax.set_title(name, fontsize="small")
        for border in (RETRIEVAL_BELOW, AGGRESSIVE_BELOW):
            panels[0].axhline(border, color=GREY, linestyle="--", linewidth=1)
        _layer_legend(figure, priors)
    caption = (
        f"Shape and scale of every head at the start and at {len(moved.steps) - 1} checkpoints. "
        "Dashed: below 0 a head is for retrieval, below -0.6 it is aggressive."
    )
    return Picture("prior-movement", figure, caption, f"{caption} {spoken(priors)}")


def draw_factors(factors: Factors, head: tuple[int, int], name: str) -> Picture:
    """Likelihood, prior and posterior of one head as matrices; which heads see the value."""
    from matplotlib.colors import LogNorm

    layer, number = head
    parts = factors.layers[layer]
    shown = {"content": parts.likelihood, "prior": parts.prior, "posterior": parts.posterior}
    title = f"{name}: head {number} of layer {layer} on a passkey prompt"
    with new_figure(12.5, 3.7, title) as figure:
        panels: Any = figure.subplots(1, 4, width_ratios=(1, 1, 1, 0.8))
        images: list[Any] = []
        for ax, (title, matrix) in zip(panels, shown.items(), strict=False):
            # keys that a query cannot see are left blank, unlikely ones are not
            seen = np.tri(*matrix.shape[2:], dtype=bool)
            drawn = np.where(seen, matrix[0, number].clamp(min=FAINTEST).numpy(), np.nan)
            images.append(ax.imshow(drawn, norm=LogNorm(FAINTEST, 1), **BLUES))
            ax.set(title=title, xlabel="key")
            for place in factors.value.numpy():
                ax.axvline(place, ymin=0, ymax=0.03, color=COLOURS[1], linewidth=1)
            for place in factors.asked.numpy():
                ax.axhline(place, xmin=0, xmax=0.03, color=COLOURS[1], linewidth=1)
        panels[0].set_ylabel("query")
        add_colour_bar(images[0], panels[:3], label="probability", shrink=0.8, pad=0.01)
        _draw_mass(panels[3], factors, head)
    caption = (
        "What the content alone, the prior alone and both together say about where to look, at "
        "every position of a passkey prompt with its answer. Orange marks: the hidden value on "
        "the axis of keys, its question on that of queries. Right: how much every head looks at "
        "the value when it is asked for; this one is framed."
    )
    mass = factors.mass()[list(factors.layers).index(layer), number].item()
    alt = f"{caption} This head: {mass:.2f}, the largest: {factors.mass().max().item():.2f}."
    return Picture("prior-factors", figure, caption, alt)


def spoken(priors: Priors) -> str:
    """Number of heads of each class, in words."""
    counts = [f"{count} {kind}" for kind, count in priors.counts().items()]
    return f"{len(priors.heads)} heads: {', '.join(counts)}."


def _layer_colours(priors: Priors) -> dict[int, Any]:
    from matplotlib import colormaps

    places = np.linspace(0.05, 0.85, len(priors.layers))
    return dict(zip(priors.layers, colormaps["viridis"](places), strict=True))


def _layer_legend(figure: "Figure", priors: Priors) -> None:
    lines, names = figure.axes[0].get_legend_handles_labels()
    columns = 1 + (len(priors.layers) - 1) // 12
    figure.legend(lines, names, loc="outside right upper", fontsize="x-small", ncols=columns)


def _draw_borders(ax: "Axes") -> None:
    left, right = ax.get_xlim()
    ax.set_xlim(min(left, AGGRESSIVE_BELOW - 0.4), max(right, RETRIEVAL_BELOW + 0.4))
    edges = (ax.get_xlim()[0], AGGRESSIVE_BELOW, RETRIEVAL_BELOW, ax.get_xlim()[1])
    for border in edges[1:3]:
        ax.axvline(border, color=GREY, linestyle="--", linewidth=1)
    look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": "x-small", "color": GREY}
    names = ("aggressive", "retrieval", "local")
    for name, start, end in zip(names, edges[:-1], edges[1:], strict=True):
        middle = ax.transLimits.transform(((start + end) / 2, 0))[0]
        ax.text(middle, 0.99, name, transform=ax.transAxes, **look)


def _draw_mass(ax: "Axes", factors: Factors, head: tuple[int, int]) -> None:
    from matplotlib.patches import Rectangle

    mass, layers = factors.mass(), list(factors.layers)
    image = ax.imshow(mass.numpy(), vmin=0, vmax=1, aspect="auto", **BLUES)
    corner = (head[1] - 0.5, layers.index(head[0]) - 0.5)
    ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=INK, linewidth=2))
    ax.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    ax.set(ylabel="layer", xlabel="head", title="mass on the value")
    add_colour_bar(image, ax, ticks=(0, 0.5, 1), shrink=0.8)
