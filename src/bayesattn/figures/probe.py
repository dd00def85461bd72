"""Pictures of what a look into models found."""

# pyright: reportUnknownMemberType=false

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesattn import drawing
from bayesattn.bits import entropy
from bayesattn.drawing import COLOURS, GREY, Picture, add_colour_bar, house_style
from bayesattn.dynamics.model import head_dynamics
from bayesattn.evals.fidelity import EVAL_SEED, measure
from bayesattn.figures import tunnel as fidelity_drawing
from bayesattn.probes.ablation import Ablations
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.attention import EVENNESS, SINK, WITHOUT_SINK
from bayesattn.probes.drift import Drift
from bayesattn.probes.examination import Examination
from bayesattn.probes.examine_language import LanguageExamination
from bayesattn.probes.examine_tunnel import TunnelExamination, TunnelSubject
from bayesattn.probes.focusing import Focus
from bayesattn.probes.keys import AS_ATTENDED, BEFORE_ROTATION, HEADS, RANDOM, WEIGHTS
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, SHARE, SPEARMAN, States
from bayesattn.probes.values import components, states_of
from bayesattn.tunnels import Batch

SHOWN = 128
"""Sequences behind a scatter plot."""
EXAMPLES = 3
"""Sequences whose beliefs are drawn."""
FLOOR = 1e-4
"""Losses below this many bits are drawn as this."""


def pictures(found: Sequence[Examination]) -> list[Picture]:
    """Those that there is something to draw for; language models share those over depth."""
    drawn: list[Picture] = []
    with house_style():
        for one in found:
            if isinstance(one, TunnelExamination):
                drawn += tunnel_pictures(one)
        drawn += language_pictures([one for one in found if isinstance(one, LanguageExamination)])
    times: dict[str, int] = {}
    for at, picture in enumerate(drawn):  # the second of a name is name-2
        times[picture.name] = count = times.get(picture.name, 0) + 1
        drawn[at] = picture if count == 1 else picture._replace(name=f"{picture.name}-{count}")
    return drawn


def tunnel_pictures(found: TunnelExamination) -> list[Picture]:
    model, tunnel = found.subject.model, found.subject.tunnel
    shown = fidelity_drawing.beliefs(model, tunnel, EXAMPLES, EVAL_SEED + 1)
    fidelity = measure(model, tunnel, sequences=found.sequences)
    drawn = [fidelity_drawing.draw(fidelity, shown, tunnel.horizon, "")]
    if found.focusing:
        drawn.append(draw_focusing(found.focusing))
    drawn.append(draw_manifold(found.subject))
    if found.ablation is not None:
        drawn.append(draw_ablation(found.ablation))
    if found.drift is not None:
        drawn.append(draw_drift(found.drift))
    if found.focusing:
        drawn.append(draw_advantage(found.subject))
    return drawn


def language_pictures(found: Sequence[LanguageExamination]) -> list[Picture]:
    drawn = [draw_plane(one) for one in found if one.states]
    if any(WEIGHTS in layer for one in found for layer in one.keys):
        drawn.append(draw_keys(found))
    if any(one.attention for one in found):
        drawn.append(draw_attention(found))
    return drawn


def draw_focusing(found: list[Focus]) -> Picture:
    """Entropy, and mass by role, of every layer over the steps."""
    layers = [focus for focus in found if focus.head is None]
    names = list(dict.fromkeys(name for focus in layers for name in focus.by_step))
    figure, (panels,) = drawing.panels(3.2 * len(names) + 0.6, 3, 1, len(names), sharex=True)
    for axes_, name in zip(panels, names, strict=True):
        for focus in layers:
            if name in focus.by_step:
                values = focus.by_step[name]
                axes_.plot(range(1, len(values) + 1), values, "o-", ms=3, label=f"L{focus.layer}")
        what = "entropy / log visible keys" if name == "entropy" else f"mass on {name}"
        axes_.set(xlabel="step", ylabel=what, ylim=(0, 1.03))
    panels[0].legend(fontsize=8)
    caption = (
        "Attention at each step, mean over heads and sequences: how even it is (1: all visible "
        "keys alike), and how much of it lies on positions that speak for possible hypotheses and "
        "on those that speak for eliminated ones."
    )
    return Picture("focusing", figure, caption, "One line per layer over the steps.")


def draw_manifold(subject: TunnelSubject) -> Picture:
    """First two components of the last states, before and after training, by entropy."""
    batch = _batch(subject)
    bits = entropy(batch.posterior).flatten()
    states = {
        name: dict(states_of(model, batch.inputs, batch.scored))
        for name, model in (("before training", subject.initial), ("trained", subject.model))
    }
    last = max(layer for layer, _ in states["trained"])
    kinds = [kind for layer, kind in states["trained"] if layer == last]
    figure, panels = drawing.panels(3 * len(kinds) + 1, 5.4, 2, len(kinds))
    dots: Any = None
    for row, name in enumerate(states):
        for column, kind in enumerate(kinds):
            found = components(states[name][last, kind])
            points = found.scores[..., :2].flatten(0, 1)
            dots = _scatter(panels[row, column], points, bits, f"{kind}, {name}", 7)
            share = found.variances[:2] / found.variances.sum()
            panels[row, column].set(
                xlabel=f"PC 1 ({share[0]:.0%})", ylabel=f"PC 2 ({share[1]:.0%})"
            )
    add_colour_bar(dots, panels, label="entropy of the exact posterior, bits", shrink=0.6, pad=0.02)
    caption = (
        f"States of layer {last} at the scored positions, in their first two principal components, "
        "coloured by the entropy of the exact posterior."
    )
    return Picture("manifold", figure, caption, f"{caption} Above before, below after training.")


def draw_ablation(found: Ablations) -> Picture:
    """ΔKL of every head and sublayer, layers from below."""
    from matplotlib.colors import LogNorm

    kinds = list(dict.fromkeys(loss.kind for loss in found.losses if loss.kind != "bypass"))
    layers = 1 + max(loss.layer for loss in found.losses)
    heads = 1 + max((loss.head for loss in found.losses if loss.head is not None), default=-1)
    columns = [*(f"H{head}" for head in range(heads))]
    columns += ["heads", "mlp"] if kinds else []
    columns += ["bypass"]
    count = max(1, len(kinds))
    width = 0.62 * len(columns) * count + 1.6
    figure, (panels,) = drawing.panels(width, 0.5 * layers + 1.6, 1, count, sharey=True)
    top = max(1.0, *(loss.kl.value for loss in found.losses))
    image: Any = None
    for axes_, kind in zip(panels, kinds or ["bypass"], strict=True):
        grid = torch.full((layers, len(columns)), torch.nan)
        for loss in found.losses:
            if loss.kind in (kind, "bypass"):
                own = f"H{loss.head}" if loss.part == "head" else loss.part
                column = columns.index("bypass" if own == "layer" else own)
                grid[loss.layer, column] = max(loss.kl.value, FLOOR)
                axes_.annotate(
                    _short(loss.kl.value),
                    (column, loss.layer),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if loss.kl.value > 0.03 * top else "black",
                )
        norm = LogNorm(FLOOR, top)
        image = axes_.imshow(grid.numpy(), cmap="Blues", norm=norm, origin="lower", aspect="auto")
        axes_.set_xticks(range(len(columns)), columns, fontsize=8)
        axes_.set_yticks(range(layers), [f"L{layer}" for layer in range(layers)])
        _finish_image(axes_, kind)
    add_colour_bar(image, panels, label="ΔKL, bits", shrink=0.9, pad=0.02)
    caption = (
        "What taking a part away costs, in bits of KL to the exact posterior, each alone and all "
        "on the same sequences: set to zero, to its mean, or to what it is in another sequence. "
        f"The whole model has {found.kl.value:.2g} bits."
    )
    return Picture("ablation", figure, caption, "A grid of layers and parts, darker for more loss.")


def draw_drift(found: Drift) -> Picture:
    """Every curve over the checkpoints, as a share of where it began."""
    figure, (panels,) = drawing.panels(8.4, 3.3, 1, 2, sharey=True)
    paths = {"training": found.trained, "straight path": found.straight}
    for axes_, (title, path) in zip(panels, paths.items(), strict=True):
        for name, colour in zip(("attention", "values", "frame", "mae"), COLOURS, strict=False):
            curve = path.curves[name]
            whole = abs(curve[0] - curve[-1]) or 1.0
            left = [abs(value - curve[-1]) / whole for value in curve]
            label = "|ΔH| to the end's" if name == "mae" else name
            axes_.plot(path.steps, left, color=colour, marker="o", ms=3, label=label)
        axes_.axhline(0.1, color=GREY, lw=1, ls=":")
        axes_.set_xscale("symlog", linthresh=path.steps[1])
        axes_.set(xlabel="step", xlim=(0, path.steps[-1]))
        axes_.set_title(title)
    panels[0].set_ylabel("what is left of the way")
    panels[1].legend(fontsize=8)
    caption = (
        "How far attention rows, values, the span of the keys and the error still are from where "
        "they end, as a share of where they began; dotted: settled. Right, the null: the straight "
        "line between the first and the last weights."
    )
    return Picture("drift", figure, caption, "Falling curves over the steps, two panels.")


def draw_advantage(subject: TunnelSubject) -> Picture:
    """Advantage of every key for every query, heads of the last layer that attends."""
    from matplotlib.colors import SymLogNorm

    layer = anatomy(subject.model).attending[-1]
    batch = _batch(subject)
    shown: dict[str, torch.Tensor] = {}
    for name, model in (("before training", subject.initial), ("trained", subject.model)):
        advantage = head_dynamics(model, batch, layer).advantage.detach()
        # the loss is a mean over sequences and steps; undone, for numbers that can be compared
        shown[name] = advantage.sum(0)[:, batch.scored] * len(batch.scored)
    heads = shown["trained"].shape[0]
    figure, panels = drawing.panels(1.9 * heads + 1.2, 4.2, 2, heads, sharex=True, sharey=True)
    top = max(float(advantage.abs().max()) for advantage in shown.values()) or 1.0
    norm = SymLogNorm(top / 100, vmin=-top, vmax=top)
    seen = torch.arange(batch.inputs.shape[1]) <= batch.scored[:, None]
    image: Any = None
    for row, (name, advantage) in enumerate(shown.items()):
        for head in range(heads):
            grid = advantage[head].masked_fill(~seen, math.nan).numpy()
            image = panels[row, head].imshow(grid, cmap="RdBu", norm=norm, aspect="auto")
            _finish_image(panels[row, head], f"L{layer}H{head}")
        panels[row, 0].set_ylabel(f"{name}\nstep")
    add_colour_bar(image, panels, label="advantage, nats", shrink=0.7, pad=0.02)
    for axes_ in panels[1]:
        axes_.set_xlabel("position of the key")
    caption = (
        f"Advantage of every key for every query in layer {layer}, mean over sequences, nats: "
        "where it is positive (blue) more attention would lower the loss, where it is negative "
        "(red) less would."
    )
    return Picture("advantage", figure, caption, "Queries down, keys across; one panel per head.")


def draw_plane(found: LanguageExamination) -> Picture:
    """First two components of the last layer's states, by entropy; fresh weights below."""
    from matplotlib.ticker import MaxNLocator

    last = max(states.layer for states in found.states)
    shown = [states for states in found.states if states.layer == last]
    rows = 1 if found.control_bits is None else 2
    figure, panels = drawing.panels(3 * len(shown) + 1, 2.7 * rows + 0.3, rows, len(shown))
    for column, states in enumerate(shown):
        planes: list[Any] = [(states.plane, found.bits, states.kind, None)]
        if states.control_plane is not None:
            title = f"{states.kind}, fresh weights"
            planes.append((states.control_plane, found.control_bits, title, CONTROL))
        for axes_, (points, bits, title, null) in zip(panels[:, column], planes, strict=False):
            dots = _scatter(axes_, np.array(points), bits, title, 12)
            bar = add_colour_bar(dots, axes_, shrink=0.8, pad=0.02)
            bar.ax.tick_params(labelsize=7)
            bar.formatter.set_useOffset(False)
            bar.locator = MaxNLocator(4)
            bar.update_ticks()
            axes_.set_xlabel(_axis_label(states, null), fontsize=8)
    caption = (
        f"{found.name}: states of layer {last} at the last token of {len(found.bits)} prompts, in "
        "their first two principal components, columns standardised. Colour: entropy of the next "
        "token, bits. Below, the same network with fresh weights reads the same prompts."
    )
    return Picture("plane", figure, caption, f"Points for prompts, coloured by entropy. {caption}")


def draw_keys(found: Sequence[LanguageExamination]) -> Picture:
    """Mean |cos| of keys by depth, three meanings."""
    kinds = {
        "columns of W_K": WEIGHTS,
        "tokens, before rotation": BEFORE_ROTATION,
        "tokens, as attended to": AS_ATTENDED,
        "heads": HEADS,
    }
    by_model = {one.name: one.keys for one in found}
    drawn = [layer for layers in by_model.values() for layer in layers]
    kinds = {title: kind for title, kind in kinds.items() if any(kind in own for own in drawn)}
    figure, (panels,) = drawing.panels(2.7 * len(kinds), 3, 1, len(kinds), sharex=True)
    _draw_depth(panels, kinds, by_model, RANDOM, None)
    panels[0].set_ylabel("mean |cos|")
    caption = (
        "How far from orthogonal keys are, by depth. Solid: the model; dashed: fresh weights; "
        "dotted: random directions of the same dimension. Below the dotted line is more "
        "orthogonal than chance."
    )
    return Picture("keys", figure, caption, "Curves over depth, four panels.")


def draw_attention(found: Sequence[LanguageExamination]) -> Picture:
    """Entropy of attention by depth, with and without the first key."""
    kinds = {
        "entropy / log visible keys": EVENNESS,
        "the same without the first key": WITHOUT_SINK,
        "mass on the first key": SINK,
    }
    figure, (panels,) = drawing.panels(9.6, 3, 1, len(kinds), sharex=True, sharey=True)
    by_model = {one.name: one.attention.layers if one.attention else [] for one in found}
    _draw_depth(panels, kinds, by_model, None, 1.03)
    caption = (
        "Attention of the last token by depth, mean over heads, with its interval over prompts: "
        "how even it is (1: all visible keys alike), how even over the keys after the first, and "
        "how much the first key takes. Dashed: fresh weights."
    )
    return Picture("attention", figure, caption, "Curves over depth, three panels.")


def _draw_depth(
    panels: Any,
    kinds: dict[str, str],
    by_model: dict[str, list[dict[str, Measured]]],
    null: str | None,
    top: float | None,
) -> None:
    """A panel for each kind of measurement, a line for each model over relative depth."""
    for axes_, (title, kind) in zip(panels, kinds.items(), strict=True):
        for place, (name, layers) in enumerate(by_model.items()):
            if layers and all(kind in layer for layer in layers):
                own = [layer[kind] for layer in layers]
                _curve(axes_, own, name, COLOURS[place % len(COLOURS)], null)
        axes_.set(xlabel="depth", ylim=(0, top))
        axes_.set_title(title)
    _explain_lines(panels[-1], by_model, null)


def _explain_lines(
    axes_: Any, by_model: dict[str, list[dict[str, Measured]]], null: str | None
) -> None:
    """A legend: models by colour, if there are several, and nulls by line."""
    from matplotlib.lines import Line2D

    names = [Path(name).name for name in by_model]
    lines = [Line2D([], [], color=COLOURS[at % len(COLOURS)]) for at in range(len(names))]
    if len(names) == 1:
        names = ["the model"]
    measured = [x for layers in by_model.values() for layer in layers for x in layer.values()]
    kinds: list[tuple[str | None, str, Any]] = [
        (CONTROL, "fresh weights", "--"),
        (null, str(null), ":"),
    ]
    for name, words, style in kinds:
        if any(name in x.nulls for x in measured):
            colour = COLOURS[0] if name == CONTROL and len(by_model) == 1 else GREY
            lines.append(Line2D([], [], color=colour, linestyle=style, lw=1))
            names.append(words)
    axes_.legend(lines, names, fontsize=7)


def _curve(axes_: Any, layers: list[Measured], label: str, colour: str, null: str | None) -> None:
    """One line, with intervals and nulls where there are some."""
    depth = np.linspace(0, 1, len(layers))
    axes_.plot(depth, [layer.value for layer in layers], color=colour, label=label)
    ends = [layer.interval for layer in layers if layer.interval is not None]
    if len(ends) == len(layers):
        low, high = np.array(ends).T
        axes_.fill_between(depth, low, high, color=colour, alpha=0.2, lw=0)
    for name, style in ((CONTROL, "--"), (null, ":")):
        if name is not None and all(name in layer.nulls for layer in layers):
            below = [layer.nulls[name] for layer in layers]
            axes_.plot(depth, below, style, color=colour if name == CONTROL else GREY, lw=1)


def _axis_label(states: States, null: str | None) -> str:
    share, order = (
        states[name].value if null is None else states[name].nulls[null]
        for name in (SHARE, SPEARMAN)
    )
    return f"PC 1 ({share:.0%}), ρ with entropy {order:.2f}"


def _scatter(axes_: Any, points: Any, bits: Any, title: str, size: float) -> Any:
    """Points [n, 2] coloured by entropy."""
    x, y = points.T
    axes_.set_title(title)
    axes_.set_xticks([])
    axes_.set_yticks([])
    return axes_.scatter(x, y, c=bits, s=size, cmap="viridis", linewidths=0)


def _finish_image(axes_: Any, title: str) -> None:
    axes_.set_title(title)
    axes_.spines[["left", "bottom"]].set_visible(False)
    axes_.tick_params(length=0)


def _batch(subject: TunnelSubject) -> Batch:
    return subject.tunnel.sample(SHOWN, torch.Generator().manual_seed(EVAL_SEED + 1))


def _short(value: float) -> str:
    return "0" if abs(value) < 5e-4 else f"{value:.1g}" if abs(value) < 0.1 else f"{value:.2g}"
