"""llm-causal: is the entropy axis read, or needed?

    error   mean |H_model - H_post|, before and after the first component is cut
    times   KL(before ‖ after) of the two labels for a cut of the supervised axis, over that of cuts
            of random directions that move values as far

in SULA prompts of one length, one layer at a time. The axis is cut from the values of every
position, so what is asked is whether anything after this layer misses it.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy
from bayesattn.claims.llm_values import subject
from bayesattn.claims.panels import mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import DEFAULT
from bayesattn.probes.bayes import belief
from bayesattn.probes.bayes.readers import LanguageReader, put_into_words
from bayesattn.probes.bayes.tasks import sula_text
from bayesattn.probes.llm.sula import ALL_WORDS, binary_entropy, posterior, sample_fixed
from bayesattn.probes.llm.sula_answers import pick_labels
from bayesattn.tunnels import Batch, Labels

LATE = 0.75
"""The last quarter of layers begins here."""
THERE = 0.3
"""Held-out |r| of the axis with the model's own entropy, without which there is no axis."""
LEAST = 1e-9
"""Bits: rounding does not divide by zero."""


class CausalRecipe(Recipe):
    """Model, prompts, depths and random directions; seeds are other prompts and directions."""

    model: str = DEFAULT
    each: int
    """Prompts for each difference of labels."""
    shots: int
    depths: int
    """How many layers, evenly spaced."""
    random: int


class LayerCut(Stored):
    """One layer; divergences are in bits, of the two labels."""

    layer: int
    order: float
    """Held-out |r| of the supervised axis with the model's own entropy."""
    moved: float
    """By a cut of the supervised axis."""
    random: Sequence[float]
    """By random cuts as large."""
    error_first: float
    """|H_model - H_post| without the first component."""
    moved_first: float

    @property
    def times(self) -> float:
        return (self.moved + LEAST) / (float(np.mean(self.random)) + LEAST)


class CausalMeasured(Stored):
    """All depths of one draw of prompts."""

    layers: int
    """Of the model."""
    prompts: int
    error: float
    """|H_model - H_post| of the whole model."""
    cuts: Sequence[LayerCut]

    @property
    def late(self) -> list[LayerCut]:
        return [cut for cut in self.cuts if cut.layer >= LATE * (self.layers - 1)]

    @property
    def middle(self) -> LayerCut:
        return min(self.cuts, key=lambda cut: abs(cut.layer - (self.layers - 1) / 2))


@register("llm-causal-gemma")
@register("llm-causal")
class LLMCausal(Study[CausalRecipe, CausalMeasured]):
    """Cuts axes of values, beside cuts of random directions."""

    def measure(self, tier: Tier, seed: int) -> CausalMeasured:
        recipe = self.recipes[tier]
        model = subject(recipe.model)
        labels = pick_labels(model)[:2]
        reader = put_into_words(model, sula_text(seed), labels, recipe.shots)
        generator = Generator().manual_seed(seed)
        evidence = sample_fixed(ALL_WORDS, generator, count=recipe.each, shots=recipe.shots)
        order = torch.randperm(len(evidence.labels), generator=generator)
        inputs, alpha = evidence.labels[order], evidence.alpha
        first, second = inputs.chunk(2)
        # not the first, where the last token's values are the same in all prompts
        layers = [1 + at for at in belief.depths(len(model.parts.layers) - 1, recipe.depths)]
        return _measure(reader, first, second, alpha, layers, recipe.random, seed)

    def values(self, tier: Tier, one: CausalMeasured) -> Mapping[str, Value]:
        there = float(np.mean([cut.order for cut in one.late])) > THERE
        change = one.middle.error_first / one.error - 1
        return {
            "calibration": Value(change, 0.0),
            "late-layers": Value(_geometric(one.late), 1.0, there),
            "all-depths": Value(_geometric(one.cuts), 1.0, there),
        }

    def draw(self, tier: Tier, found: Mapping[int, CausalMeasured]) -> list[Picture]:
        figure, (costs, errors) = panels(2, (8.4, 3))
        layers = mean_curve(found, lambda one: [cut.layer for cut in one.cuts])
        curves: dict[str, Callable[[CausalMeasured], list[float]]] = {
            "supervised axis": lambda one: [cut.moved for cut in one.cuts],
            "random, as large": lambda one: [float(np.mean(cut.random)) for cut in one.cuts],
            "first component": lambda one: [cut.moved_first for cut in one.cuts],
        }
        for label, curve in curves.items():
            costs.plot(layers, mean_curve(found, curve), "o-", ms=3, label=label)
        costs.set(xlabel="layer", ylabel="KL of the labels, bits", yscale="log")
        costs.legend(fontsize=8)
        after = mean_curve(found, lambda one: [cut.error_first for cut in one.cuts])
        errors.plot(layers, after, "o-", ms=3, label="without the first component")
        errors.axhline(float(np.mean([one.error for one in found.values()])), color="grey")
        errors.set(xlabel="layer", ylabel="|H - H_post|, bits", ylim=(0, None))
        errors.legend(fontsize=8)
        caption = (
            "Left, what cuts cost by layer; right, the error of the entropy, in grey that of the "
            "whole model; means over draws of prompts."
        )
        return [Picture("cuts", figure, caption, "Curves over layers, two panels.")]


def _measure(
    reader: LanguageReader,
    first: Tensor,
    second: Tensor,
    alpha: float,
    layers: Sequence[int],
    random: int,
    seed: int,
) -> CausalMeasured:
    """Axes from labels `first` [N, K], cuts on `second`; the last step is predicted."""
    last = torch.tensor([first.shape[1] - 1])
    before, learnt = belief.heard(reader, first, last, layers, "values")
    whole, _ = belief.heard(reader, second, last, layers, "values")
    _, everywhere = belief.heard(reader, second, last, layers, "values", everywhere=True)
    own, held_out = (entropy(reading.log_probs.exp()) for reading in (before, whole))
    difference = (1 - 2 * second).sum(1)
    bayes = binary_entropy(posterior(difference.abs(), alpha))
    exact = Labels(first.shape[1], alpha).exact(second)[:, -1:]
    batch = Batch(second, last, exact, second[:, -1:], {})
    sites = reader.sites("values")

    def error(bits: Tensor) -> float:
        return float((bits[:, 0] - bayes).abs().mean())

    cuts: list[LayerCut] = []
    for layer in layers:
        states = everywhere[layer]
        bench = belief.Bench(
            *(reader, batch, torch.full_like(exact, 0.5), whole, states, sites[layer]),
            draws=random,
            everywhere=True,
            seed=seed,
        )
        axis = belief.axis_of(learnt[layer], own)
        assert axis is not None, "entropies of prompts differ"
        effect, component = bench.cut(axis), belief.first_of(learnt[layer])
        after = bench.read(belief.cutting(component, 0.0))
        at_last = states[:, -1:]
        cuts.append(
            LayerCut(
                layer=layer,
                order=belief.order_given_step(at_last, axis, held_out).value,
                moved=effect.moved,
                random=effect.random_moved,
                error_first=error(entropy(after.log_probs.exp())),
                moved_first=bench.moved(after),
            )
        )
    return CausalMeasured(layers=len(sites), prompts=len(second), error=error(held_out), cuts=cuts)


def _geometric(cuts: Sequence[LayerCut]) -> float:
    return math.exp(sum(math.log(cut.times) for cut in cuts) / len(cuts))
