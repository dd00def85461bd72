"""llm-domain: do prompts of a single domain collapse the values onto fewer axes?

    gain   share of the variance on two components in sets of one domain, mean over domains, minus
           the share in sets that mix the domains

A domain is also a vocabulary, and the value of a token is above all a function of that token. So
all sets end in the same words equally often, and the null is the gain of the same prompts with the
words before the last one shuffled: the same tokens, as often, without the domain's sense.
"""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import torch
from torch import Generator, Tensor

from bayesattn.claims.llm_values import subject
from bayesattn.claims.panels import draw_rows, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.linear import gram, shares
from bayesattn.models.open import DEFAULT
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import (
    DOMAINS,
    ENDINGS,
    PromptSet,
    entropy_of,
    matched_sets,
    shuffle_words,
)
from bayesattn.probes.llm.subject import Subject

MIXTURES = 50
"""Mixed sets that are averaged."""


class DomainRecipe(Recipe):
    """Which model, and how many prompts."""

    model: str = DEFAULT
    length: int = 32
    each: int = 16
    """Prompts of each domain for each last word; a multiple of the number of domains."""
    fresh: bool = True
    """Measure fresh weights, too; they are recorded and not judged."""


class Spread(Stored):
    """How variance is spread over components."""

    share: float
    """On the first."""
    two: float
    """On the first two."""
    participation: float


class Reading(Stored):
    """Values of the last layer as one model reads all sets."""

    domains: Mapping[str, Spread]
    bits: Mapping[str, float]
    """Mean entropy of the next token by domain."""
    mixed: Spread
    """Mean over mixtures."""

    @property
    def gain(self) -> float:
        return float(np.mean([one.two for one in self.domains.values()]) - self.mixed.two)


class DomainFound(Stored):
    """One draw of prompts."""

    tokens: Mapping[str, int]
    """Different tokens of each domain."""
    written: Reading
    shuffled: Reading
    fresh: Reading | None
    """As written, by the same network with fresh weights."""


@register("llm-domain-gemma")
@register("llm-domain")
class LLMDomain(Study[DomainRecipe, DomainFound]):
    """Principal components of values, single domains beside mixtures of them."""

    def measure(self, tier: Tier, seed: int) -> DomainFound:
        recipe = self.recipes[tier]
        model = subject(recipe.model)
        written = matched_sets(model, each=recipe.each, length=recipe.length, seed=seed)
        shuffled = {domain: shuffle_words(model, own, seed) for domain, own in written.items()}

        def reading(reader: Subject, sets: Mapping[str, PromptSet]) -> Reading:
            return read_sets(*_values(reader, sets), recipe.each, seed)

        return DomainFound(
            tokens={
                domain: len({token for tokens in own.tokens for token in tokens})
                for domain, own in written.items()
            },
            written=reading(model, written),
            shuffled=reading(model, shuffled),
            fresh=reading(subject(recipe.model, seed), written) if recipe.fresh else None,
        )

    def values(self, tier: Tier, one: DomainFound) -> Mapping[str, Value]:
        gain, shuffled = one.written.gain, one.shuffled.gain
        return {
            "collapse": Value(gain, one.written.mixed.two),
            "sense": Value(gain - shuffled, shuffled),
        }

    def draw(self, tier: Tier, found: Mapping[int, DomainFound]) -> list[Picture]:
        figure, (axes,) = panels(1, (7, 2.8))
        conditions = {
            "as written": [one.written for one in found.values()],
            "shuffled": [one.shuffled for one in found.values()],
        }
        for place, (name, readings) in enumerate(conditions.items()):
            rows = {domain: [one.domains[domain].two for one in readings] for domain in DOMAINS}
            rows["mixed"] = [one.mixed.two for one in readings]
            style = {"marker": "os"[place], "color": f"C{place}", "alpha": 0.8}
            draw_rows(axes, rows, offset=0.1 - 0.2 * place, **style)
            axes.plot([], [], ls="", label=name, **style)
        axes.set(xlabel="variance on two components", xlim=(0, 1))
        axes.legend(fontsize=8)
        caption = (
            "Values of the last layer in sets of one domain and in mixtures of equal size that end "
            "in the same words; a point is a draw of prompts."
        )
        return [Picture("domains", figure, caption, "Points by set of prompts.")]


def _values(reader: Subject, sets: Mapping[str, PromptSet]) -> tuple[Tensor, Tensor]:
    """[domains, N, d] values of the last layer, and [domains, N] entropies."""
    tokens = [tokens for own in sets.values() for tokens in own.tokens]
    seen = capture_prompts(reader, tokens, ["values", "logits"])
    values, bits = seen.values[-1].flatten(1).double(), entropy_of(seen.logits)
    return values.reshape(len(sets), -1, values.shape[1]), bits.reshape(len(sets), -1)


def read_sets(values: Tensor, bits: Tensor, each: int, seed: int) -> Reading:
    """From values [domains, N, d] and entropies [domains, N]."""
    mixed = _spreads(torch.stack(mixtures(values, each, Generator().manual_seed(seed))))
    means = {own.name: np.mean([getattr(one, own.name) for one in mixed]) for own in fields(Spread)}
    return Reading(
        domains=dict(zip(DOMAINS, _spreads(values), strict=True)),
        bits=dict(zip(DOMAINS, bits.mean(1).numpy().tolist(), strict=True)),
        mixed=Spread(**{name: float(mean) for name, mean in means.items()}),
    )


def mixtures(values: Tensor, each: int, generator: Generator) -> list[Tensor]:
    """Sets [N, d] as large as one of values [domains, N, d], all domains alike for each last word.

    Prompts of one last word stand together: N is the number of last words times `each`.
    """
    count = len(values)
    if each % count:
        raise ValueError(f"each must be a multiple of {count}, the number of domains, not {each}")
    words = values.reshape(count, len(ENDINGS), each, -1)
    found: list[Tensor] = []
    for _ in range(MIXTURES):
        order = torch.rand(words.shape[:3], generator=generator).argsort(-1)[..., : each // count]
        picked = words.gather(2, order[..., None].expand(*order.shape, words.shape[-1]))
        found.append(picked.flatten(0, 2))
    return found


def _spreads(sets: Tensor) -> list[Spread]:
    """Of each of R sets [R, N, d], columns standardised."""
    ones = torch.ones(sets.shape[:2], dtype=torch.float64)
    columns = shares(gram(sets, ones, standardise=True), ones)
    return [
        Spread(share=share, two=two, participation=participation)
        for share, two, participation in zip(*(x.numpy().tolist() for x in columns), strict=True)
    ]
