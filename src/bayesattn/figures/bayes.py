"""Pictures of `bayesattn bayes`: evidence missed, bits by step, and where the belief lives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayesattn.drawing import COLOURS, GREY, Picture, house_style, panels
from bayesattn.probes.bayes.behaviour import BAYESIAN, NOTHING, Seed
from bayesattn.probes.bayes.belief import Effect, LayerBelief, spread
from bayesattn.probes.bayes.examination import BayesFound, TaskFound
from bayesattn.stats import mean_interval

HEADINGS = {
    "missed": "Is it Bayesian?",
    "steps": "As evidence comes in",
    "where": "Where the belief lives",
}


def pictures(found: BayesFound) -> list[Picture]:
    with house_style():
        drawn = [draw_missed(found.measured), draw_steps(found.measured)]
        return drawn + ([draw_where(found.where_task, found.where)] if found.where else [])


def draw_missed(tasks: Sequence[TaskFound]) -> Picture:
    """A row for each task: seeds, their interval, fresh weights; 0 is exact Bayes, 1 trivial."""
    figure, ((axes,),) = panels(8, 1.2 + 0.5 * len(tasks))
    for at, task in enumerate(tasks):
        for seeds, colour, marker, shift in (
            (task.seeds, COLOURS[0], "o", -0.12),
            (task.fresh, GREY, "s", 0.16),
        ):
            values = [min(one.missed, 2.0) for one in seeds]
            axes.plot(values, [at + shift] * len(values), marker, color=colour, ms=4, alpha=0.6)
            interval = mean_interval([one.missed for one in seeds]) if len(seeds) > 1 else None
            if interval is not None:
                ends = np.clip(interval, 0, 2.0)
                axes.plot(ends, [at + shift] * 2, color=colour, lw=2)
    for limit in (BAYESIAN, NOTHING):
        axes.axvline(limit, color=GREY, ls="--", lw=1)
    axes.set_yticks(range(len(tasks)), [task.name for task in tasks])
    axes.set(xlabel="share of the evidence that is missed", xlim=(-0.05, 2.05))
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.set_xticks([0, 0.5, 1, 2], ["0\nexact Bayes", "0.5", "1\ntrivial", "2 or more"])
    caption = (
        "Mean KL(Bayes ‖ model) over that of a predictor that collects no evidence. Circles are "
        "the model, a point for each draw of sequences, with the 95% interval of the mean; grey "
        "squares are the same network with fresh weights. Left of the first dashed line: tracks "
        "exact Bayes; right of the second: no inference."
    )
    return Picture("missed", figure, caption, "Points by task between exact Bayes and nothing.")


def draw_steps(tasks: Sequence[TaskFound]) -> Picture:
    """KL to Bayes by step, one panel for each task."""
    figure, (row,) = panels(max(4.5, 2.6 * len(tasks)), 2.8, columns=len(tasks))
    curves: tuple[tuple[str, Callable[[TaskFound], list[Seed]], Any, str], ...] = (
        ("model", lambda task: task.seeds, lambda one: one.curve, COLOURS[0]),
        ("trivial", lambda task: task.seeds, lambda one: one.curve_trivial, COLOURS[1]),
        ("fresh weights", lambda task: task.fresh, lambda one: one.curve, GREY),
    )
    for axes, task in zip(row, tasks, strict=True):
        for label, seeds, curve, colour in curves:
            rows = np.array([curve(one) for one in seeds(task)])
            if rows.size:
                steps = np.arange(1, rows.shape[1] + 1)
                marker = "o" if len(steps) < 3 else None
                axes.plot(steps, rows.mean(0), color=colour, label=label, marker=marker, ms=3)
        axes.set(title=task.name, xlabel="step", ylim=(0, None))
    row[0].set_ylabel("bits to exact Bayes")
    row[0].legend(fontsize=8)
    caption = "Mean KL(Bayes ‖ ·) by step, bits: exact Bayes is 0 everywhere."
    return Picture("steps", figure, caption, "Curves over steps, one panel for each task.")


def draw_where(task: str, layers: Sequence[LayerBelief]) -> Picture:
    """Layers × effect: cuts and steering beside random directions."""
    figure, ((cuts, planes, steering),) = panels(9.5, 3, columns=3)
    at = [one.layer for one in layers]
    for axes, title, own in (
        (cuts, "cut of the entropy axis", [one.axis for one in layers]),
        (planes, "cut of the belief plane", [one.plane for one in layers]),
    ):
        _draw_effects(axes, at, own)
        axes.set(title=title, xlabel="layer", ylabel="evidence missed in addition")
    steered = [(one.layer, one.steer) for one in layers if one.steer is not None]
    if steered:
        places = [layer for layer, _ in steered]
        _band(steering, places, [one.random for _, one in steered])
        _points(steering, places, [one.rise for _, one in steered])
    steering.set(title="steered along the axis", xlabel="layer", ylabel="rise of entropy, bits")
    for axes in (cuts, planes, steering):
        axes.set_xticks(at)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.title.set_fontsize("medium")
    cuts.legend(fontsize=8)
    caption = (
        f"Changes of the residual stream after a layer, at the steps that are predicted ({task}): "
        "points with 95% intervals over held-out sequences; in grey random directions that move "
        "states as far, the mean and its 95% interval over draws. 1 is all that evidence tells."
    )
    return Picture("where", figure, caption, "Three panels over layers: two cuts, and steering.")


def _draw_effects(axes: Any, at: Sequence[int], effects: Sequence[Effect | None]) -> None:
    known = [(layer, one) for layer, one in zip(at, effects, strict=True) if one is not None]
    if known:
        places = [layer for layer, _ in known]
        _band(axes, places, [one.random_extra for _, one in known])
        _points(axes, places, [one.extra for _, one in known])


def _band(axes: Any, at: Sequence[int], random: Sequence[Sequence[float]]) -> None:
    ends = np.array([spread(values) for values in random])
    means = [float(np.mean(values)) for values in random]
    axes.fill_between(at, ends[:, 0], ends[:, 1], color=GREY, alpha=0.35, lw=0)
    axes.plot(at, means, "s-", color=GREY, ms=3, lw=1, label="random directions")


def _points(axes: Any, at: Sequence[int], measured: Sequence[Any]) -> None:
    values = np.array([one.value for one in measured])
    ends = np.array([one.interval for one in measured]).T
    axes.errorbar(
        at, values, yerr=abs(ends - values), color=COLOURS[0], marker="o", ms=4, label="found"
    )
