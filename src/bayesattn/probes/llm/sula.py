"""SULA: labels in context, with an exact posterior.

    happy: lug, cruel: lug, calm: dax, tense: lug. serene:

A latent label is drawn, then k shown ones: each is the latent label with probability alpha, else
the other. With d the number of first minus second labels,

    p       = P(latent = first | shown) = 1 / (1 + (alpha / (1 - alpha))^-d)
    H_post  = h2(p)                                  what is left to know of the latent label
    H_pred  = h2(alpha p + (1 - alpha)(1 - p))       of the next label, noisy like the shown ones

in bits. Words carry no evidence. Whoever predicts the next token well gives H_pred; the authors
compare with H_post, and an ideal predictor is then wrong by a third of a bit. Both are kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy

ALPHA = 0.9
SHOTS = (0, 1, 2, 4, 8)
FIXED_SHOTS = 8
FIXED_ALPHA = 0.7
"""At 0.9 eight labels leave almost nothing open unless they are even; at 0.7 entropies spread."""


@dataclass(frozen=True)
class Lexicon:
    """Words that prompts are made of."""

    words: tuple[str, ...]
    opening: tuple[int, ...]
    """Which of them may begin a prompt, where no space stands before them."""


@dataclass(frozen=True)
class Evidence:
    """N prompts as numbers. What stands beyond a prompt's own number of pairs means nothing."""

    shots: Tensor
    """[N] pairs shown."""
    words: Tensor
    """[N, K] indices of words."""
    labels: Tensor
    """[N, K] 0 for the first label, 1 for the second."""
    query: Tensor
    """[N] index of the word that is asked."""
    alpha: float

    @property
    def difference(self) -> Tensor:
        """[N] d: first minus second labels."""
        shown = torch.arange(self.labels.shape[1]) < self.shots[:, None]
        return ((1 - 2 * self.labels) * shown).sum(1)

    @property
    def posterior_bits(self) -> Tensor:
        """[N] H_post; the same number, to the last bit, for the same |d|."""
        return binary_entropy(posterior(self.difference.abs(), self.alpha))

    @property
    def predictive_bits(self) -> Tensor:
        """[N] H_pred."""
        return binary_entropy(predictive(self.difference.abs(), self.alpha))

    def texts(
        self,
        lexicon: Lexicon,
        pair: tuple[str, str],
        *,
        instead_of_words: str | None = None,
        instead_of_labels: str | None = None,
    ) -> list[str]:
        """The prompts; the label comes next, after a space.

        Args:
            lexicon: the words.
            pair: the two labels.
            instead_of_words: stands for every shown word; the one that is asked stays.
            instead_of_labels: stands for every shown label.
        """
        prompts: list[str] = []
        columns = (self.shots, self.words, self.labels, self.query)
        for count, words, labels, query in zip(*(x.tolist() for x in columns), strict=True):
            pairs = ", ".join(
                f"{instead_of_words or lexicon.words[word]}: {instead_of_labels or pair[label]}"
                for word, label in zip(words[:count], labels[:count], strict=True)
            )
            prompts.append(f"{pairs}{'. ' if pairs else ''}{lexicon.words[query]}:")
        return prompts


def posterior(difference: Tensor, alpha: float) -> Tensor:
    """P(latent = first | d)."""
    return torch.sigmoid(difference.double() * math.log(alpha / (1 - alpha)))


def predictive(difference: Tensor, alpha: float) -> Tensor:
    """P(next = first | d)."""
    p = posterior(difference, alpha)
    return alpha * p + (1 - alpha) * (1 - p)


def binary_entropy(p: Tensor) -> Tensor:
    """h2(p), bits."""
    return entropy(torch.stack([p, 1 - p], dim=-1))


def draw(
    lexicon: Lexicon,
    generator: Generator,
    *,
    count: int,
    shots: Sequence[int] = SHOTS,
    alpha: float = ALPHA,
) -> Evidence:
    """`count` prompts for each number of `shots`, in that order."""
    _check(count, shots, alpha)
    number = torch.tensor(shots).repeat_interleave(count)
    shape = (len(number), max(shots))
    latent = torch.randint(2, (len(number), 1), generator=generator)
    flipped = torch.rand(shape, generator=generator) >= alpha
    words, query = _draw_words(lexicon, number, shape[1], generator)
    return Evidence(number, words, latent ^ flipped.long(), query, alpha)


def draw_fixed(
    lexicon: Lexicon,
    generator: Generator,
    *,
    count: int,
    shots: int = FIXED_SHOTS,
    alpha: float = FIXED_ALPHA,
) -> Evidence:
    """`count` prompts for each |d| = 0, 2, … of one length: only the labels tell them apart.

    Which label leads and where the others stand is random.
    """
    _check(count, [shots], alpha)
    if shots < 2 or shots % 2:
        raise ValueError(f"a fixed number of shots must be even and at least 2, not {shots}")
    leads = torch.arange(0, shots + 1, 2).repeat_interleave(count)
    fewer = (shots - leads) // 2
    place = torch.rand(len(leads), shots, generator=generator).argsort(dim=1)
    leader = torch.randint(2, (len(leads), 1), generator=generator)
    labels = (place < fewer[:, None]).long() ^ leader
    number = torch.full_like(leads, shots)
    words, query = _draw_words(lexicon, number, shots, generator)
    return Evidence(number, words, labels, query, alpha)


class Expectations(NamedTuple):
    """Means over all prompts with k pairs, by enumeration."""

    posterior_bits: float
    predictive_bits: float
    accuracy: float
    """Of the likelier label; ties are guessed."""
    unaware_bits: float
    """H_post that an observer computes who does not know that labels were replaced by coins."""


def expectations(shots: int, alpha: float = ALPHA) -> Expectations:
    """Sum over the number of labels that are the latent one."""
    right = torch.arange(shots + 1).double()
    ways = torch.tensor([float(math.comb(shots, n)) for n in range(shots + 1)]).double()
    chance = ways * alpha**right * (1 - alpha) ** (shots - right)
    difference = 2 * right - shots
    p = posterior(difference, alpha)
    bits = binary_entropy(p)
    hit = (difference > 0).double() + 0.5 * (difference == 0)
    predicted = binary_entropy(predictive(difference, alpha))
    coins = ways / 2**shots
    return Expectations(
        *(float(x) for x in (chance @ bits, chance @ predicted, chance @ hit, coins @ bits))
    )


def _draw_words(
    lexicon: Lexicon, shots: Tensor, most: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """[N, most] shown words and [N] words that are asked, with replacement."""
    size = len(shots)
    opening = torch.tensor(lexicon.opening)
    words = torch.randint(len(lexicon.words), (size, most), generator=generator)
    query = torch.randint(len(lexicon.words), (size,), generator=generator)
    first = opening[torch.randint(len(opening), (size,), generator=generator)]
    words[:, :1] = first[:, None]
    return words, torch.where(shots == 0, first, query)


def _check(count: int, shots: Sequence[int], alpha: float) -> None:
    if count < 1:
        raise ValueError(f"there must be 1 or more prompts of each kind, not {count}")
    if not shots or min(shots) < 0:
        raise ValueError(f"numbers of shots must be 0 or more, not {list(shots)}")
    if not 0.5 < alpha < 1:
        raise ValueError(f"alpha must lie between 0.5 and 1, not {alpha}")
