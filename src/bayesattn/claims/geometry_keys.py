"""geometry-keys: are the keys of different symbols orthogonal to each other?

    |cos| = mean over pairs of symbols i ≠ j of |k_i·k_j| / (‖k_i‖ ‖k_j‖)

As the authors have it, k_i = W_K norm(e_i) in the first layer, mean over heads. As a control, only
heads that look keys up count, wherever they are; their keys are those that attention receives where
the head finds a symbol, and the part that all keys share, which softmax does not see, is taken off.
Both over what random directions of the same number and width give.
"""

from collections.abc import Mapping

import torch

from bayesattn.claims.geometry import AGAIN, NEVER, GeometryStudy, Looked, TrainedModel, average
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.content import find_lookups
from bayesattn.probes.keys import embedding_keys, pair_cosine, welch_bound
from bayesattn.probes.measured import random_cosine
from bayesattn.tunnels import Bijection

DRAWS = 2000
"""Random frames behind the mean |cos| of centred ones."""


class CentredFrame(Stored):
    """Centred keys of a head that looks symbols up."""

    layer: int
    head: int
    mass: float
    """How much it looks them up; see `probes.content`."""
    cosine: float


class Frames(Looked):
    """Keys of all symbols in one model."""

    symbols: int
    width: int
    """Of a head."""
    first_layer: list[float]
    """Mean |cos| in each head of the first layer; so are the next two."""
    untrained: list[float]
    values: list[float]
    """Of the value symbols."""
    random: float
    """Of random directions, exactly."""
    lookups: list[CentredFrame]
    """Empty where no key returns."""
    centred_random: float
    welch: float
    """Least rms cosine of so many centred keys."""


@register("geometry-keys")
class GeometryKeys(GeometryStudy[Frames]):
    """Measures cosines between the keys of all symbols in bijection models."""

    def look(self, trained: TrainedModel) -> Frames:
        model, initial, tunnel, batch = trained
        assert isinstance(tunnel, Bijection)
        size, width = tunnel.alphabet, anatomy(model).attention(0).width
        lookups = find_lookups(model, tunnel, batch) if tunnel.replacement else []
        return Frames(
            kl=trained.kl,
            symbols=size,
            width=width,
            first_layer=_cosines(model, range(size)),
            untrained=_cosines(initial, range(size)),
            values=_cosines(model, range(size, 2 * size)),
            random=random_cosine(width),
            lookups=[
                CentredFrame(
                    layer=one.layer,
                    head=one.head,
                    mass=one.mass,
                    cosine=float(pair_cosine(one.keys, centre=True)),
                )
                for one in lookups
            ],
            centred_random=_centred_random(size, width),
            welch=welch_bound(size, width, centre=True),
        )

    def values(self, tier: Tier, one: Mapping[str, Frames]) -> Mapping[str, Value]:
        never, again = one[NEVER], one[AGAIN]
        centred = average(head.cosine for head in again.lookups)
        return {
            "first-layer": Value(
                average(never.first_layer) / never.random, never.random, never.learnt
            ),
            "lookup-heads": Value(
                centred / again.centred_random, again.centred_random, again.learnt
            ),
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Frames]]) -> list[Picture]:
        figure, (first, lookup) = panels(2, size=(8, 3))
        never, again = self.each(found, NEVER), self.each(found, AGAIN)
        columns = {
            "untrained": [own.untrained for own in never],
            "key symbols": [own.first_layer for own in never],
            "value symbols": [own.values for own in never],
        }
        for place, seeds in enumerate(columns.values()):
            for heads in seeds:
                first.plot([place] * len(heads), heads, "o", color=f"C{place}", alpha=0.6)
        first.axhline(never[0].random, color="grey", ls=":")
        first.set_xticks(range(len(columns)), list(columns))
        first.set(title=f"first layer, {NEVER}", ylabel="mean |cos| (dotted: random)")
        for seed, own in enumerate(again):
            for head in own.lookups:
                lookup.plot(seed, head.cosine, "o", color=f"C{head.layer}", alpha=0.7)
        lookup.axhline(again[0].centred_random, color="grey", ls=":")
        lookup.axhline(again[0].welch, color="grey", ls="--")
        lookup.set(title=f"heads that look up, {AGAIN}", xlabel="seed")
        lookup.set(ylabel="mean |cos| of centred keys")
        lookup.set_xticks(range(len(again)), [str(seed) for seed in found])
        caption = (
            "Mean |cos| between the keys of all symbols, a point for each head. Right: centred "
            "keys, coloured by layer; dashed: Welch's bound, that of a simplex."
        )
        return [Picture("cosines", figure, caption, "Points for each head, lines for chance.")]


def _cosines(model: Predictor, symbols: range) -> list[float]:
    keys = embedding_keys(model, torch.tensor(symbols)).double()
    return pair_cosine(keys.transpose(0, 1)).numpy().tolist()


def _centred_random(count: int, width: int) -> float:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(DRAWS, count, width, generator=generator, dtype=torch.float64)
    return float(pair_cosine(drawn, centre=True).mean())
