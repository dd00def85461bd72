"""Pictures of one or several examinations."""

# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesattn.drawing import COLOURS, Picture
from bayesattn.probes.keys import RANDOM
from bayesattn.probes.llm import axes
from bayesattn.probes.llm.examination import Examination
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, States

GREY = "#8a8f98"


def pictures(found: Sequence[Examination]) -> list[Picture]:
    """Those that there is something to draw for."""
    drawn = [draw_plane(one, place) for place, one in enumerate(found) if one.states]
    if any(layer.weights for one in found for layer in one.keys):
        drawn.append(draw_keys(found))
    if any(one.focusing for one in found):
        drawn.append(draw_attention(found))
    return drawn


def draw_plane(found: Examination, place: int = 0) -> Picture:
    """First two components of the last layer's states, by entropy; fresh weights below."""
    from matplotlib.figure import Figure

    last = max(states.layer for states in found.states)
    shown = [states for states in found.states if states.layer == last]
    rows = 1 if found.control_bits is None else 2
    figure = Figure(figsize=(3 * len(shown) + 1, 2.7 * rows + 0.3), layout="constrained")
    panels: Any = figure.subplots(rows, len(shown), squeeze=False)
    for column, states in enumerate(shown):
        _scatter(figure, panels[0, column], states.plane, found.bits, states.kind)
        panels[0, column].set_xlabel(_axis_label(states, None), fontsize=8)
        if states.control_plane is not None and found.control_bits is not None:
            below = panels[1, column]
            title = f"{states.kind}, fresh weights"
            _scatter(figure, below, states.control_plane, found.control_bits, title)
            below.set_xlabel(_axis_label(states, CONTROL), fontsize=8)
    caption = (
        f"{found.name}: states of layer {last} at the last token of {len(found.bits)} prompts, in "
        "their first two principal components, columns standardised. Colour: entropy of the next "
        "token, bits. Below, the same network with fresh weights reads the same prompts."
    )
    name = "plane" if place == 0 else f"plane-{place + 1}"
    return Picture(name, figure, caption, f"Points for prompts, coloured by entropy. {caption}")


def draw_keys(found: Sequence[Examination]) -> Picture:
    """Mean |cos| of keys by depth, three meanings."""
    from matplotlib.figure import Figure

    kinds = {
        "columns of W_K": "weights",
        "tokens, before rotation": "tokens",
        "tokens, as attended to": "turned_tokens",
        "heads": "heads",
    }
    figure = Figure(figsize=(11, 3), layout="constrained")
    panels: Any = figure.subplots(1, len(kinds), sharex=True)
    for axes_, (title, kind) in zip(panels, kinds.items(), strict=True):
        for place, one in enumerate(found):
            own = [getattr(layer, kind) for layer in one.keys]
            _curve(axes_, own, one.name, COLOURS[place % len(COLOURS)], RANDOM)
        axes_.set(title=title, xlabel="depth", ylim=(0, None))
        axes_.title.set_fontsize("medium")
    panels[0].set_ylabel("mean |cos|")
    panels[0].legend(fontsize=7)
    caption = (
        "How far from orthogonal keys are, by depth. Solid: the model; dashed: fresh weights; "
        "dotted: random directions of the same dimension. Below the dotted line is more "
        "orthogonal than chance."
    )
    return Picture("keys", figure, caption, "Curves over depth, four panels.")


def draw_attention(found: Sequence[Examination]) -> Picture:
    """Entropy of attention by depth, with and without the first key."""
    from matplotlib.figure import Figure

    kinds = {
        "entropy / log visible keys": "evenness",
        "the same without the first key": "without_sink",
        "mass on the first key": "sink",
    }
    figure = Figure(figsize=(9.6, 3), layout="constrained")
    panels: Any = figure.subplots(1, len(kinds), sharex=True, sharey=True)
    for axes_, (title, kind) in zip(panels, kinds.items(), strict=True):
        for place, one in enumerate(found):
            layers = one.focusing.layers if one.focusing else []
            own = [getattr(layer, kind) for layer in layers]
            _curve(axes_, own, one.name, COLOURS[place % len(COLOURS)], None)
        axes_.set(title=title, xlabel="depth", ylim=(0, 1.03))
        axes_.title.set_fontsize("medium")
    panels[0].legend(fontsize=7)
    caption = (
        "Attention of the last token by depth, mean over heads, with its interval over prompts: "
        "how even it is (1: all visible keys alike), how even over the keys after the first, and "
        "how much the first key takes. Dashed: fresh weights."
    )
    return Picture("attention", figure, caption, "Curves over depth, three panels.")


def _scatter(
    figure: Any, axes_: Any, points: list[list[float]], bits: list[float], title: str
) -> None:
    x, y = np.array(points).T
    dots = axes_.scatter(x, y, c=bits, s=12, cmap="viridis", linewidths=0)
    bar = figure.colorbar(dots, ax=axes_, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7)
    axes_.set_title(title, fontsize="medium")
    axes_.set_xticks([])
    axes_.set_yticks([])


def _axis_label(states: States, null: str | None) -> str:
    share, order = (
        states[name].value if null is None else states[name].nulls[null]
        for name in (axes.SHARE, axes.SPEARMAN)
    )
    return f"PC 1 ({share:.0%}), ρ with entropy {order:.2f}"


def _curve(
    axes_: Any, layers: Sequence[Measured | None], label: str, colour: str, null: str | None
) -> None:
    """One line over relative depth, with intervals and nulls where there are some."""
    if not layers or any(layer is None for layer in layers):
        return
    known = [layer for layer in layers if layer is not None]
    depth = np.linspace(0, 1, len(known))
    axes_.plot(depth, [layer.value for layer in known], color=colour, label=label)
    ends = [layer.interval for layer in known if layer.interval is not None]
    if len(ends) == len(known):
        low, high = np.array(ends).T
        axes_.fill_between(depth, low, high, color=colour, alpha=0.2, lw=0)
    for name, style in ((CONTROL, "--"), (null, ":")):
        if name is not None and all(name in layer.nulls for layer in known):
            below = [layer.nulls[name] for layer in known]
            axes_.plot(depth, below, style, color=colour if name == CONTROL else GREY, lw=1)
