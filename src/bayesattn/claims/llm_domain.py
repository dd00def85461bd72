"""llm-domain: do prompts of a single domain collapse the values onto fewer axes?

    gain   share of the variance on two components in sets of one domain, mean over domains, minus
           the share in sets that mix the domains

A domain is also a vocabulary, and the value of a token is above all a function of that token. So
all sets end in the same words equally often, and the null is the gain of the same prompts with the
words before the last one shuffled: the same tokens, as often, without the domain's sense.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Generator, Tensor

from bayesattn.claims.llm_subjects import MODEL, subject
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Claim, Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed
from bayesattn.linear import gram, shares
from bayesattn.probes.llm.axes import STANDARDISED
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.domains import DOMAINS
from bayesattn.probes.llm.matched import ENDINGS, matched, shuffled
from bayesattn.probes.llm.prompts import PromptSet, entropy_of
from bayesattn.probes.llm.subject import Subject
from bayesattn.stats import judge_effect

WRITTEN, SHUFFLED, FRESH = "as written", "shuffled", "fresh weights"
MIXED = "mixed"
SHARE, TWO, PARTICIPATION = STANDARDISED
LEAST_GAIN = 0.10
"""A collapse: ten points of the variance more than for shuffled words."""
MIXTURES = 50
"""Mixed sets that are averaged."""


@dataclass(frozen=True, kw_only=True)
class DomainRecipe(Recipe):
    """Which model, and how many prompts."""

    model: str = MODEL
    length: int = 32
    each: int = 16
    """Prompts of each domain for each last word; a multiple of the number of domains."""
    fresh: bool = True
    """Measure fresh weights, too; they are recorded and not judged."""


@register
class LLMDomain(Study[DomainRecipe, Numbers]):
    """Principal components of values, single domains beside mixtures of them."""

    claim = Claim(
        id="llm-domain",
        statement="Prompts of a single domain collapse the values of the last layer onto fewer "
        "axes than mixed prompts.",
        source="Agarwal et al., Geometric Scaling of Bayesian Inference in LLMs, arXiv 2512.23752: "
        "section 5.1, table 1",
        reported="PC 1 and 2 from 51 to 74% (Llama-3.2-1B), 61 to 64% (Phi-2), 99.7 to 99.9% "
        "(Pythia-410M), mixed to mathematics",
    )
    method = (
        "SmolLM2-135M-Instruct reads prompts of mathematics, code, philosophy and general text, "
        "composed by rule, all of one length and with equally many for each of five last words. "
        "The share of the first two principal components of the last layer's values, columns "
        "standardised, in sets of one domain must exceed that in equally large mixtures by ten "
        "points more than it does when the words before the last one are shuffled."
    )
    null = (
        "The same prompts with their words shuffled: the vocabulary of a domain without its sense. "
        "Fresh weights are recorded beside it."
    )
    recipes = MappingProxyType(
        {
            Tier.QUICK: DomainRecipe(seeds=2, length=12, each=8, fresh=False),
            Tier.FULL: DomainRecipe(seeds=3),
            Tier.PAPER: DomainRecipe(seeds=5, each=32),
        }
    )

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Shares of every domain and of mixtures; as written, shuffled, with fresh weights."""
        recipe = self.recipes[tier]
        model = subject(recipe.model)
        written = matched(model, each=recipe.each, length=recipe.length, seed=seed)
        mixed_up = {domain: shuffled(model, own, seed) for domain, own in written.items()}
        conditions = {WRITTEN: (model, written), SHUFFLED: (model, mixed_up)}
        if recipe.fresh:
            conditions[FRESH] = (subject(recipe.model, seed), written)
        found: dict[str, float] = {}
        for domain, own in written.items():
            found[f"{domain}: different tokens"] = own.about()["distinct tokens"]
        for condition, (reader, sets) in conditions.items():
            found |= _shares(condition, *_values(reader, sets), recipe.each, seed)
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """The gain, beside that of shuffled words."""
        null = average(numbers, f"{SHUFFLED}: gain")
        gains = by_seed(numbers, f"{WRITTEN}: gain")
        judgement = judge_effect(gains, null=null, minimum=LEAST_GAIN)
        single = ", ".join(
            f"{domain} {average(numbers, f'{WRITTEN}, {domain}: {TWO}'):.2f}" for domain in DOMAINS
        )
        reason = (
            f"{judgement.reason} Shares: {single}; mixed "
            f"{average(numbers, f'{WRITTEN}, {MIXED}: {TWO}'):.2f}."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="of the variance gained by one domain",
            null=null,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Shares of every domain and of mixtures."""
        from matplotlib.figure import Figure

        sets = (*DOMAINS, MIXED)
        figure = Figure(figsize=(7, 2.8), layout="constrained")
        axes = figure.add_subplot()
        for place, condition in enumerate((WRITTEN, SHUFFLED)):
            for row, name in enumerate(sets):
                values = by_seed(numbers, f"{condition}, {name}: {TWO}")
                axes.plot(
                    values,
                    [row + 0.1 - 0.2 * place] * len(values),
                    "os"[place],
                    color=f"C{place}",
                    alpha=0.8,
                    label=condition if row == 0 else None,
                )
        axes.set_yticks(range(len(sets)), sets)
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
    return values.unflatten(0, (len(sets), -1)), bits.unflatten(0, (len(sets), -1))


def _shares(condition: str, values: Tensor, bits: Tensor, each: int, seed: int) -> dict[str, float]:
    """Of every domain, of mixtures, and what a single domain gains over them."""
    found: dict[str, float] = {}
    single = _of_sets(values)
    mixed = _of_sets(torch.stack(mixtures(values, each, Generator().manual_seed(seed))))
    for place, domain in enumerate(DOMAINS):
        found[f"{condition}, {domain}: mean entropy, bits"] = float(bits[place].mean())
        for name, own in zip(STANDARDISED, single, strict=True):
            found[f"{condition}, {domain}: {name}"] = float(own[place])
    for name, own in zip(STANDARDISED, mixed, strict=True):
        found[f"{condition}, {MIXED}: {name}"] = float(own.mean())
    gains = {
        name: s.mean() - m.mean() for name, s, m in zip(STANDARDISED, single, mixed, strict=True)
    }
    found[f"{condition}: gain"] = float(gains[TWO])
    found[f"{condition}: gain on one component"] = float(gains[SHARE])
    found[f"{condition}: gain in participation ratio"] = float(gains[PARTICIPATION])
    return found


def mixtures(values: Tensor, each: int, generator: Generator) -> list[Tensor]:
    """Sets [N, d] as large as one of values [domains, N, d], all domains alike for each last word.

    Prompts of one last word stand together: N is the number of last words times `each`.
    """
    count = len(values)
    if each % count:
        raise ValueError(f"each must be a multiple of {count}, the number of domains, not {each}")
    words = values.unflatten(1, (len(ENDINGS), each))
    found: list[Tensor] = []
    for _ in range(MIXTURES):
        order = torch.rand(words.shape[:3], generator=generator).argsort(-1)[..., : each // count]
        picked = words.gather(2, order[..., None].expand(*order.shape, words.shape[-1]))
        found.append(picked.flatten(0, 2))
    return found


def _of_sets(sets: Tensor) -> Sequence[Tensor]:
    """[R] first share, share of two and participation of each of R sets [R, N, d]."""
    ones = torch.ones(sets.shape[:2], dtype=torch.float64)
    return shares(gram(sets, ones, standardise=True), ones)
