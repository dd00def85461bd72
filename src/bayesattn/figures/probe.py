"""Pictures of an examination."""

# pyright: reportUnknownMemberType=false

import math
from typing import TYPE_CHECKING, Any

import torch

from bayesattn.bits import entropy
from bayesattn.drawing import COLOURS, Picture
from bayesattn.dynamics.model import head_dynamics
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.probes.ablation import Ablations
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.drift import Drift
from bayesattn.probes.examination import Subject
from bayesattn.probes.focusing import Focus
from bayesattn.probes.values import components, states_of
from bayesattn.tunnels import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8a8f98"
SHOWN = 128
"""Sequences behind a scatter plot."""
FLOOR = 1e-4
"""Losses below this many bits are drawn as this."""


def draw_focusing(found: list[Focus]) -> Picture:
    """Entropy, and mass by role, of every layer over the steps."""
    from matplotlib.figure import Figure

    layers = [focus for focus in found if focus.head is None]
    names = list(dict.fromkeys(name for focus in layers for name in focus.by_step))
    figure = Figure(figsize=(3.2 * len(names) + 0.6, 3), layout="constrained")
    panels: Any = figure.subplots(1, len(names), squeeze=False, sharex=True)[0]
    for axes, name in zip(panels, names, strict=True):
        for focus in layers:
            if name in focus.by_step:
                values = focus.by_step[name]
                axes.plot(range(1, len(values) + 1), values, "o-", ms=3, label=f"L{focus.layer}")
        what = "entropy / log visible keys" if name == "entropy" else f"mass on {name}"
        axes.set(xlabel="step", ylabel=what, ylim=(0, 1.03))
    panels[0].legend(fontsize=8)
    caption = (
        "Attention at each step, mean over heads and sequences: how even it is (1: all visible "
        "keys alike), and how much of it lies on positions that speak for possible hypotheses and "
        "on those that speak for eliminated ones."
    )
    return Picture("focusing", figure, caption, "One line per layer over the steps.")


def draw_manifold(subject: Subject) -> Picture:
    """First two components of the last states, before and after training, by entropy."""
    from matplotlib.figure import Figure

    batch = _batch(subject, SHOWN)
    bits = entropy(batch.posterior).flatten()
    states = {
        name: dict(states_of(model, batch.inputs, batch.scored))
        for name, model in (("before training", subject.initial), ("trained", subject.model))
    }
    last = max(layer for layer, _ in states["trained"])
    kinds = [kind for layer, kind in states["trained"] if layer == last]
    figure = Figure(figsize=(3 * len(kinds) + 1, 5.4), layout="constrained")
    panels: Any = figure.subplots(2, len(kinds), squeeze=False)
    dots: Any = None
    for row, name in enumerate(states):
        for column, kind in enumerate(kinds):
            found = components(states[name][last, kind])
            x, y = found.scores[..., :2].flatten(0, 1).T
            axes: Axes = panels[row, column]
            dots = axes.scatter(x, y, c=bits, s=7, cmap="viridis", linewidths=0)
            share = found.variances[:2] / found.variances.sum()
            axes.set(
                title=f"{kind}, {name}",
                xlabel=f"PC 1 ({share[0]:.0%})",
                ylabel=f"PC 2 ({share[1]:.0%})",
            )
            axes.title.set_fontsize("medium")
            axes.set_xticks([])
            axes.set_yticks([])
    bar = figure.colorbar(dots, ax=panels, shrink=0.6, pad=0.02)
    bar.set_label("entropy of the exact posterior, bits")
    bar.outline.set_visible(False)
    caption = (
        f"States of layer {last} at the scored positions, in their first two principal components, "
        "coloured by the entropy of the exact posterior."
    )
    return Picture("manifold", figure, caption, f"{caption} Above before, below after training.")


def draw_ablation(found: Ablations) -> Picture:
    """ΔKL of every head and sublayer, layers from below."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(loss.kind for loss in found.losses if loss.kind != "bypass"))
    layers = 1 + max(loss.layer for loss in found.losses)
    heads = 1 + max((loss.head for loss in found.losses if loss.head is not None), default=-1)
    columns = [*(f"H{head}" for head in range(heads))]
    columns += ["heads", "mlp"] if kinds else []
    columns += ["bypass"]
    figure = Figure(figsize=(0.62 * len(columns) * max(1, len(kinds)) + 1.6, 0.5 * layers + 1.6))
    figure.set_layout_engine("constrained")
    panels: Any = figure.subplots(1, max(1, len(kinds)), squeeze=False, sharey=True)[0]
    top = max(1.0, *(loss.kl.value for loss in found.losses))
    image: Any = None
    for axes, kind in zip(panels, kinds or ["bypass"], strict=True):
        grid = torch.full((layers, len(columns)), torch.nan)
        for loss in found.losses:
            if loss.kind in (kind, "bypass"):
                own = f"H{loss.head}" if loss.part == "head" else loss.part
                column = columns.index("bypass" if own == "layer" else own)
                grid[loss.layer, column] = max(loss.kl.value, FLOOR)
                axes.annotate(
                    _short(loss.kl.value),
                    (column, loss.layer),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if loss.kl.value > 0.03 * top else "black",
                )
        norm = LogNorm(FLOOR, top)
        image = axes.imshow(grid.numpy(), cmap="Blues", norm=norm, origin="lower", aspect="auto")
        axes.set_xticks(range(len(columns)), columns, fontsize=8)
        axes.set_yticks(range(layers), [f"L{layer}" for layer in range(layers)])
        axes.set_title(kind, fontsize="medium")
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=panels, shrink=0.9, pad=0.02)
    bar.set_label("ΔKL, bits")
    bar.outline.set_visible(False)
    caption = (
        "What taking a part away costs, in bits of KL to the exact posterior, each alone and all "
        "on the same sequences: set to zero, to its mean, or to what it is in another sequence. "
        f"The whole model has {found.kl.value:.2g} bits."
    )
    return Picture("ablation", figure, caption, "A grid of layers and parts, darker for more loss.")


def draw_drift(found: Drift) -> Picture:
    """Every curve over the checkpoints, as a share of where it began."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.3), layout="constrained")
    names = {
        "attention": COLOURS[0],
        "values": COLOURS[1],
        "frame": COLOURS[2],
        "mae": COLOURS[3],
    }
    panels: Any = figure.subplots(1, 2, sharey=True)
    for axes, (title, path) in zip(
        panels, {"training": found.trained, "straight path": found.straight}.items(), strict=True
    ):
        for name, colour in names.items():
            curve = path.curves[name]
            whole = abs(curve[0] - curve[-1]) or 1.0
            left = [abs(value - curve[-1]) / whole for value in curve]
            label = "|ΔH| to the end's" if name == "mae" else name
            axes.plot(path.steps, left, color=colour, marker="o", ms=3, label=label)
        axes.axhline(0.1, color=GREY, lw=1, ls=":")
        axes.set_xscale("symlog", linthresh=path.steps[1])
        axes.set(title=title, xlabel="step", xlim=(0, path.steps[-1]))
        axes.title.set_fontsize("medium")
    panels[0].set_ylabel("what is left of the way")
    panels[1].legend(fontsize=8)
    caption = (
        "How far attention rows, values, the span of the keys and the error still are from where "
        "they end, as a share of where they began; dotted: settled. Right, the null: the straight "
        "line between the first and the last weights."
    )
    return Picture("drift", figure, caption, "Falling curves over the steps, two panels.")


def draw_advantage(subject: Subject) -> Picture:
    """Advantage of every key for every query, heads of the last layer that attends."""
    from matplotlib.colors import SymLogNorm
    from matplotlib.figure import Figure

    layer = anatomy(subject.model).attending[-1]
    batch = _batch(subject, SHOWN)
    shown: dict[str, torch.Tensor] = {}
    for name, model in (("before training", subject.initial), ("trained", subject.model)):
        advantage = head_dynamics(model, batch, layer).advantage.detach()
        # the loss is a mean over sequences and steps; undone, for numbers that can be compared
        shown[name] = advantage.sum(0)[:, batch.scored] * len(batch.scored)
    heads = shown["trained"].shape[0]
    figure = Figure(figsize=(1.9 * heads + 1.2, 4.2), layout="constrained")
    panels: Any = figure.subplots(2, heads, squeeze=False, sharex=True, sharey=True)
    top = max(float(advantage.abs().max()) for advantage in shown.values()) or 1.0
    norm = SymLogNorm(top / 100, vmin=-top, vmax=top)
    seen = torch.arange(batch.inputs.shape[1]) <= batch.scored[:, None]
    image: Any = None
    for row, (name, advantage) in enumerate(shown.items()):
        for head in range(heads):
            axes: Axes = panels[row, head]
            grid = advantage[head].masked_fill(~seen, math.nan)
            image = axes.imshow(grid.numpy(), cmap="RdBu", norm=norm, aspect="auto")
            axes.set_title(f"L{layer}H{head}", fontsize="medium")
            axes.spines[["left", "bottom"]].set_visible(False)
            axes.tick_params(length=0)
        panels[row, 0].set_ylabel(f"{name}\nstep")
    bar = figure.colorbar(image, ax=panels, shrink=0.7, pad=0.01)
    bar.set_label("advantage, nats")
    bar.outline.set_visible(False)
    for axes in panels[1]:
        axes.set_xlabel("position of the key")
    caption = (
        f"Advantage of every key for every query in layer {layer}, mean over sequences, nats: "
        "where it is positive (blue) more attention would lower the loss, where it is negative "
        "(red) less would."
    )
    return Picture("advantage", figure, caption, "Queries down, keys across; one panel per head.")


def _batch(subject: Subject, count: int) -> Batch:
    return subject.tunnel.sample(count, torch.Generator().manual_seed(EVAL_SEED + 1))


def _short(value: float) -> str:
    return "0" if abs(value) < 5e-4 else f"{value:.1g}" if abs(value) < 0.1 else f"{value:.2g}"
