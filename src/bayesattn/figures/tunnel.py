"""One figure of a trained model: its beliefs, its entropy, its error and its calibration."""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations leave **kwargs untyped.

from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from bayesattn.drawing import COLOURS, DASHED, GREY, Picture, add_colour_bar, new_figure
from bayesattn.evals.fidelity import Fidelity
from bayesattn.evals.prediction import Model, device_of, evaluating, predict
from bayesattn.stats import wilson_interval
from bayesattn.tunnels.base import Tunnel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

MOST_OUTCOMES = 24
"""Rows of a belief panel; of larger alphabets only the most probable outcomes are shown."""
MODEL, TRUTH, DIVERGENCE = COLOURS[0], COLOURS[1], COLOURS[2]
FLOOR = 1e-7
"""Smallest error in bits that is drawn; smaller ones are rounding."""
LEAST_BITS = 0.5
"""Least height of the entropy panel."""
FEWEST_TOKENS = 20
"""Least number of tokens of a bin of confidence that is drawn."""


class Beliefs(NamedTuple):
    """A few sequences in full."""

    posterior: Tensor
    """[K, S, C] exact probabilities."""
    model: Tensor
    """[K, S, C] probabilities of the model."""
    labels: Tensor
    """[K, S] the sampled truth."""


def beliefs(model: Model, tunnel: Tunnel, count: int, seed: int) -> Beliefs:
    """Beliefs of model and Bayes on `count` fresh sequences."""
    batch = tunnel.sample(count, torch.Generator().manual_seed(seed))
    device = device_of(model)
    with evaluating(model):
        log_probs = predict(model, batch.inputs.to(device), batch.scored.to(device)).cpu()
    return Beliefs(batch.posterior, log_probs.exp(), batch.labels)


def draw(fidelity: Fidelity, shown: Beliefs, horizon: int, title: str) -> Picture:
    """Belief trajectories above; entropy, error and reliability below; the horizon in all."""
    with new_figure(10.5, 7.6) as figure:
        figure.suptitle(title, fontsize="medium", x=0.01, ha="left")
        _draw_key(figure, "beyond" in fidelity.parts)
        above, below = cast(Any, figure.subfigures(2, 1, height_ratios=(1.15, 1)))
        _draw_beliefs(above, shown, horizon)
        panels = below.subplots(1, 3, width_ratios=(1, 1, 0.85))
        _draw_entropy(panels[0], fidelity)
        _draw_error(panels[1], fidelity)
        _draw_reliability(panels[2], fidelity)
    caption = (
        "Beliefs of the exact posterior and of the model on the same sequences, with the sampled "
        "truth as dots; mean entropy and error per step; how often the most probable outcome came "
        "true against its probability, larger dots standing for more tokens. The dashed line is "
        "the horizon: how far training went."
    )
    return Picture("fidelity", figure, caption, f"{caption} {_spoken(fidelity)}")


def _draw_key(figure: "Figure", beyond: bool) -> None:
    from matplotlib.lines import Line2D

    key = {"sampled truth": Line2D([], [], color=TRUTH, marker="o", markersize=4, linestyle="")}
    if beyond:
        key["training horizon"] = Line2D([], [], **cast(Any, DASHED))
    figure.legend(key.values(), key.keys(), loc="upper right", ncols=2, borderpad=0.2)


def _draw_beliefs(figure: "SubFigure", shown: Beliefs, horizon: int) -> None:
    from matplotlib.colors import PowerNorm

    count, steps, _ = shown.posterior.shape
    panels: Any = figure.subplots(2, count, sharex=True, squeeze=False)
    # The square root shows one chance in twenty as well as certainty.
    norm = PowerNorm(0.5, 0, 1)
    image: Any = None
    dot = max(2.0, min(14.0, 400 / steps))
    for column in range(count):
        rows = _outcomes_shown(shown.posterior[column] + shown.model[column])
        for row, probabilities in enumerate((shown.posterior, shown.model)):
            ax: Axes = panels[row, column]
            image = ax.imshow(
                probabilities[column][:, rows].T.numpy(),
                aspect="auto",
                cmap="Blues",
                norm=norm,
                interpolation="nearest",
                extent=(0.5, steps + 0.5, len(rows) - 0.5, -0.5),
            )
            place = {int(outcome): at for at, outcome in enumerate(rows)}
            truth = [place.get(label, float("nan")) for label in map(int, shown.labels[column])]
            ax.scatter(range(1, steps + 1), truth, s=dot, color=TRUTH, linewidths=0)
            ax.spines[["left", "bottom"]].set_visible(False)
            ax.tick_params(length=0)
            stride = 1 + (len(rows) - 1) // 8
            ax.set_yticks(range(0, len(rows), stride), [str(int(row)) for row in rows[::stride]])
            if horizon < steps:
                ax.axvline(horizon + 0.5, **DASHED)
        panels[0, column].set_title(f"sequence {column + 1}")
        panels[1, column].set_xlabel("step")
        _count_steps(panels[1, column], steps)
    panels[0, 0].set_ylabel("exact posterior\noutcome")
    panels[1, 0].set_ylabel("model\noutcome")
    bar = add_colour_bar(image, panels, shrink=0.8, pad=0.01, ticks=(0, 0.05, 0.25, 0.5, 1))
    bar.ax.set(yticklabels=("0", ".05", ".25", ".5", "1"), title="P")


def _draw_entropy(ax: "Axes", fidelity: Fidelity) -> None:
    curves = _curves(fidelity)
    steps = curves["step"]
    ax.plot(steps, curves["entropy_bayes"], color=GREY, linewidth=6, alpha=0.55, label="Bayes")
    marker = "o" if len(steps) <= 30 else None
    dots: dict[str, Any] = {"marker": marker, "markersize": 3.5}
    ax.plot(steps, curves["entropy_model"], color=MODEL, label="model", **dots)
    low, high = ax.get_ylim()
    # from 0 where that costs little room, and never so near that hundredths look large
    ax.set_ylim(0 if low < 0.6 * high else min(low, high - LEAST_BITS), high)
    ax.set_title("mean predictive entropy (bits)")
    _finish_steps(ax, fidelity)
    _legend(ax)


def _draw_error(ax: "Axes", fidelity: Fidelity) -> None:
    curves, uniform = _curves(fidelity), _curves(fidelity, "uniform")
    steps = curves["step"]
    ax.plot(steps, _positive(curves["mae_tok"]), color=MODEL, label="model |ΔH|")
    ax.plot(steps, _positive(curves["kl"]), color=DIVERGENCE, label="model KL")
    least = _positive(uniform["mae_tok"])
    ax.plot(steps, least, color=GREY, linestyle=":", label="uniform: |ΔH| = KL")
    start = 0.5
    for part in fidelity.parts.values():
        level, ends = part.entropy_mae["constant"], (start, start + len(part.steps))
        start = ends[1]
        if level > FLOOR:
            ax.plot(ends, (level, level), color=GREY, linestyle="--", label="best constant |ΔH|")
    ax.set(yscale="log", title="mean error per token (bits)")
    _finish_steps(ax, fidelity)
    _legend(ax)


def _draw_reliability(ax: "Axes", fidelity: Fidelity) -> None:
    ax.plot((0, 1), (0, 1), color=GREY, linewidth=1, zorder=1)
    for name, part in fidelity.parts.items():
        bins = part.reliability()
        kept = [count >= FEWEST_TOKENS for count in bins["tokens"]]
        bins = {name: list(compress(values, kept)) for name, values in bins.items()}
        shares = [count / sum(bins["tokens"]) for count in bins["tokens"]]
        ece = {one: part.estimates[one]["ece"].value for one in ("model", "bayes")}
        ax.scatter(
            bins["confidence"],
            bins["frequency"],
            s=[12 + 160 * share for share in shares],
            facecolors=MODEL if name == "inside" else "none",
            edgecolors=MODEL,
            linewidths=1.3,
            label=f"{name}: ECE {ece['model']:.3f} (Bayes {ece['bayes']:.3f})",
            zorder=3,
            clip_on=False,
        )
        counts = zip(bins["confidence"], bins["frequency"], bins["tokens"], strict=True)
        for at, share, count in counts:
            luck = wilson_interval(round(share * count), int(count))
            ax.vlines(at, *luck, color=MODEL, linewidth=1, zorder=2)
    ax.set(xlim=(0, 1.03), ylim=(0, 1.03), aspect="equal")
    ax.set(xlabel="confidence", ylabel="frequency", title="reliability")
    _legend(ax, columns=1)


def _curves(fidelity: Fidelity, predictor: str = "model") -> dict[str, list[float]]:
    parts = [part.curves(predictor) for part in fidelity.parts.values()]
    curves = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    # where a longer tunnel has the same steps, further apart, they are drawn after the others
    return curves | {"step": [1.0 + at for at in range(len(curves["step"]))]}


def _finish_steps(ax: "Axes", fidelity: Fidelity) -> None:
    _count_steps(ax, sum(len(part.steps) for part in fidelity.parts.values()))
    ax.set_xlabel("step")
    inside = fidelity.parts.get("inside")
    if inside and "beyond" in fidelity.parts:
        ax.axvline(inside.steps[-1] + 0.5, **DASHED)


def _legend(ax: "Axes", columns: int = 2) -> None:
    """Legend under the panel, with each name once."""
    handles, names = ax.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17)}
    room = {"columnspacing": 1.2, "handletextpad": 0.5, "borderpad": 0}
    ax.legend(once.values(), once.keys(), ncols=columns, **place, **room)


def _count_steps(ax: "Axes", steps: int) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(0.5, steps + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def _outcomes_shown(belief: Tensor) -> Tensor:
    if belief.shape[-1] <= MOST_OUTCOMES:
        return torch.arange(belief.shape[-1])
    return belief.sum(dim=0).topk(MOST_OUTCOMES).indices.sort().values


def _positive(values: list[float]) -> list[float]:
    """Replace zeros, which a logarithmic axis cannot show."""
    return [value if value > FLOOR else float("nan") for value in values]


def _spoken(fidelity: Fidelity) -> str:
    said = [
        f"{name} the horizon KL is {part.estimates['model']['kl'].value:.2g} bits"
        for name, part in fidelity.parts.items()
    ]
    return f"For the model, {' and '.join(said)}."
