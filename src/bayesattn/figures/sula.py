"""Pictures of SULA: entropy beside Bayes, states beside entropy."""

from collections.abc import Mapping

import numpy as np

from bayesattn.drawing import COLOURS, GREY, Picture, house_style, panels
from bayesattn.probes.llm.sula import BLIND, FIXED, MAIN
from bayesattn.probes.llm.sula_answers import Answers
from bayesattn.probes.llm.sula_examination import SulaFound
from bayesattn.probes.readout import first_component

HEADINGS = {
    "entropy": "What it believes, beside exact Bayes",
    "movement": "Where evidence moves its states",
}


def pictures(found: SulaFound, answers: Mapping[str, Answers]) -> list[Picture]:
    with house_style():
        return [draw_entropy(found), draw_movement(found.layer, answers)]


def draw_entropy(found: SulaFound) -> Picture:
    """H of the model by number of pairs, every condition, beside both targets."""
    figure, ((axes,),) = panels(6.4, 3.2)
    by_shots = [one for one in found.calibration if one.shots is not None]
    main = [one for one in by_shots if one.condition == MAIN]
    places = range(len(main))
    axes.plot(places, [one.posterior for one in main], color=GREY, ls=":", label="H_post")
    axes.plot(places, [one.predictive for one in main], color=GREY, ls="--", label="H_pred")
    for at, name in enumerate(dict.fromkeys(one.condition for one in by_shots)):
        own = [one for one in by_shots if one.condition == name]
        values = np.array([one.model.value for one in own])
        ends = np.array([one.model.interval or (one.model.value,) * 2 for one in own]).T
        axes.errorbar(
            [place + 0.05 * (at - 2) for place in places],
            values,
            yerr=abs(ends - values),
            color=COLOURS[at % len(COLOURS)],
            marker="o",
            ms=4,
            lw=1.2,
            label=name.replace("_", " "),
        )
    axes.set_xticks(places, [str(one.shots) for one in main])
    axes.set(xlabel="pairs shown", ylabel="entropy of the label, bits", ylim=(0, 1.05))
    axes.legend(fontsize=8, ncols=2)
    caption = (
        "The model's entropy over the two labels by number of pairs, with 95% intervals over "
        "prompts. Dotted: the posterior of the latent label; dashed: that of the next noisy label, "
        "which is what a calibrated predictor of tokens gives."
    )
    return Picture("entropy", figure, caption, "One line per condition over the number of pairs.")


def draw_movement(layer: int, answers: Mapping[str, Answers]) -> Picture:
    """First component of values over entropy: pairs vary, length fixed, labels masked."""
    names = [name for name in (MAIN, FIXED, BLIND) if name in answers]
    figure, (row,) = panels(9, 3, columns=len(names))
    for axes, name in zip(row, names, strict=True):
        condition = answers[name].condition
        scores = first_component(answers[name].values[layer][None]).scores[0]
        shots = condition.shots
        for at, k in enumerate(shots.unique().tolist()):
            own = shots == k
            style = {"s": 9, "color": COLOURS[at % len(COLOURS)], "label": f"k = {k}"}
            axes.scatter(condition.unaware_bits[own], scores[own], **style)
        axes.set(title=name, xlabel="H_post, bits")
        axes.title.set_fontsize("medium")
    row[0].set_ylabel(f"PC 1 of the values, layer {layer}")
    row[0].legend(fontsize=8)
    caption = (
        "First component of the last token's values over the entropy that the labels leave. Left, "
        "length and evidence go together; middle, all prompts are equally long; right, the same "
        "prompts with the labels masked, over the entropy that they had."
    )
    return Picture("movement", figure, caption, "Three scatter plots of a component over entropy.")
