"""geometry-focusing: do queries sharpen from layer to layer, onto hypotheses still possible?

    entropy   of attention, over the log of the number of visible keys
    lookup    attention on earlier pairs with the asked key, beyond the pairs of other sequences
    slope     of either over layers, by least squares over heads; a head weighs as many bits as its
              attention depends on the sequence rather than on the step (`probes.content`)

As the authors have it, the entropy of the last layer is set beside that of the first, means over
heads. As a control, the slope counts heads that look by content only, where keys return: for a new
key every earlier pair speaks of a value that is taken, and there is no right place to look.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from bayesattn.claims.geometry import AGAIN, NEVER, GeometryStudy, Looked, TrainedModel, average
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Tier, Value
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.content import content_bits, lookup_mass
from bayesattn.probes.focusing import attention_rows, normalised_entropy, roles, visible_keys

Heads = list[list[float]]
"""By layer and head."""


class Focusing(Looked):
    """Attention of one model at the positions where a value is asked for."""

    entropy: Heads
    untrained: Heads
    """The entropy before training."""
    bits: Heads
    """Of where a head looks, those that depend on the sequence."""
    lookup: Heads
    """Empty where no key returns."""
    lookup_untrained: Heads


@register("geometry-focusing")
class GeometryFocusing(GeometryStudy[Focusing]):
    """Follows attention through the layers of bijection models."""

    def look(self, trained: TrainedModel) -> Focusing:
        model, initial, tunnel, batch = trained
        parts = anatomy(model)
        visible = visible_keys(parts, parts.attending[0], batch)  # no layer has a window
        right = roles(tunnel, batch)["consistent"]
        wide = visible.sum(-1) > 1  # a query that sees one key has no choice
        returns = bool(right.any())
        rows, before = attention_rows(model, batch), attention_rows(initial, batch)

        def entropies(own: Mapping[int, Tensor]) -> Heads:
            layers = (normalised_entropy(x, visible)[:, wide] for x in own.values())
            return [layer.mean((0, 1)).numpy().tolist() for layer in layers]

        def lookups(own: Mapping[int, Tensor]) -> Heads:
            return [lookup_mass(x, right).numpy().tolist() for x in own.values()] if returns else []

        return Focusing(
            kl=trained.kl,
            entropy=entropies(rows),
            untrained=entropies(before),
            bits=[content_bits(own).numpy().tolist() for own in rows.values()],
            lookup=lookups(rows),
            lookup_untrained=lookups(before),
        )

    def values(self, tier: Tier, one: Mapping[str, Focusing]) -> Mapping[str, Value]:
        never, again = one[NEVER], one[AGAIN]
        even = [[1.0] * len(layer) for layer in again.bits]
        sharpened = slope(again.entropy, again.bits), slope(again.untrained, even)
        found = slope(again.lookup, again.bits), slope(again.lookup_untrained, even)
        return {
            "first-to-last": Value(
                _last_over_first(never.entropy), _last_over_first(never.untrained), never.learnt
            ),
            "sharpens": Value(sharpened[0] - sharpened[1], sharpened[1], again.learnt),
            "onto-consistent": Value(found[0] - found[1], found[1], again.learnt),
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Focusing]]) -> list[Picture]:
        figure, axes = panels(3, size=(9, 3))
        kinds = {
            f"entropy, {NEVER}": [own.entropy for own in self.each(found, NEVER)],
            f"entropy, {AGAIN}": [own.entropy for own in self.each(found, AGAIN)],
            "attention on consistent pairs": [own.lookup for own in self.each(found, AGAIN)],
        }
        bits = [[own.bits for own in self.each(found, part)] for part in (NEVER, AGAIN, AGAIN)]
        for place, (name, seeds), own in zip(axes, kinds.items(), bits, strict=True):
            for heads, weights in zip(seeds, own, strict=True):
                means = [
                    np.average(layer, weights=np.maximum(weight, 1e-9))
                    for layer, weight in zip(heads, weights, strict=True)
                ]
                place.plot(means, "o-", color="C0", alpha=0.7)
                place.set_xticks(range(len(means)))
            place.set(xlabel="layer", ylim=(-0.05, 1.03))
            place.set_title(name, fontsize=9)
        caption = (
            "Entropy of attention over the log of the visible keys, and attention on earlier pairs "
            "with the asked key beyond that on other sequences' pairs; heads weigh by how much "
            "they look by content; one line per seed."
        )
        return [Picture("layers", figure, caption, "Lines over the layers, three panels.")]


def slope(heads: Sequence[Sequence[float]], weights: Sequence[Sequence[float]]) -> float:
    """Change per layer of what heads have, by weighted least squares."""
    layers = np.concatenate([[layer] * len(own) for layer, own in enumerate(heads)])
    values, weight = (np.concatenate(x) for x in (heads, weights))
    away = layers - np.average(layers, weights=weight)
    return float((weight * away * values).sum() / max((weight * away**2).sum(), 1e-12))


def _last_over_first(layers: Heads) -> float:
    return max(average(layers[-1]), 1e-6) / max(average(layers[0]), 1e-6)
