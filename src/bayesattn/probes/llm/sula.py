"""SULA: labels in context, with an exact posterior.

    happy: lug, cruel: lug, calm: dax, tense: lug. serene:

A latent label is drawn, then k shown ones: each is the latent label with probability alpha, else
the other. With d the number of first minus second labels,

    p       = P(latent = first | shown) = 1 / (1 + (alpha / (1 - alpha))^-d)
    H_post  = h2(p)                                  entropy of the latent label
    H_pred  = h2(alpha p + (1 - alpha)(1 - p))       of the next label, noisy like the shown ones

in bits. Words carry no evidence. Whoever predicts the next token well gives H_pred; the authors
compare with H_post, and an ideal predictor is then wrong by a third of a bit. Both are kept.

Conditions are the task itself, and variations whose posterior is known as well:

    main          the task
    remap         other labels, the same evidence: the posterior is the same
    shuffled      every label a fair coin: nothing is known of the latent one, 1 bit; an observer
                  who does not know of the coins still computes a posterior (unaware)
    mask_words    shown words replaced: by the likelihood they carry nothing, the posterior stays
    mask_labels   shown labels replaced: all evidence is gone, 1 bit

The authors mask words and expect a flat posterior. By their own likelihood that is the wrong mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy
from bayesattn.tunnels.conjugate import posterior, predictive

ALPHA = 0.9
SHOTS = (0, 1, 2, 4, 8)
FIXED_SHOTS = 8
FIXED_ALPHA = 0.7
"""At 0.9 eight labels leave almost nothing open unless they are even; at 0.7 entropies spread."""
MAIN = "main"
CONTROLS = ("remap", "shuffled", "mask_words", "mask_labels")
FIXED, BLIND = "fixed length", "fixed length, labels masked"
"""The second is the null of the first: the same prompts without any evidence."""
MASKED_WORD, MASKED_LABEL = "word", "label"
"""Stand for what is masked: of one token almost everywhere, and no adjectives or labels."""
_WORDS = (
    "happy calm kind brave bright gentle warm honest clever loyal proud polite cheerful serene "
    "graceful wise generous joyful lively friendly patient tender noble sunny witty sincere keen "
    "humble lovely radiant fair merry eager pleasant charming "
    "sad angry cruel tense rude lazy bitter harsh selfish jealous gloomy grim nasty stubborn timid "
    "vain hostile greedy anxious cold dull mean sour stern weary wicked bleak clumsy foolish moody "
    "petty reckless ruthless sloppy vile"
)
WORDS = tuple(_WORDS.split())


@dataclass(frozen=True)
class Lexicon:
    """Words that prompts are made of."""

    words: tuple[str, ...]
    opening: tuple[int, ...]
    """Which of them may start a prompt, where no space stands before them."""


ALL_WORDS = Lexicon(WORDS, tuple(range(len(WORDS))))


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
        return binary_entropy(predictive(self.difference.abs(), self.alpha))

    def texts(
        self,
        lexicon: Lexicon,
        pair: tuple[str, str],
        *,
        masked_word: str | None = None,
        masked_label: str | None = None,
    ) -> list[str]:
        """The prompts; the label comes next, after a space.

        A masked word replaces every shown word, but not the one that is asked.
        """
        prompts: list[str] = []
        columns = (self.shots, self.words, self.labels, self.query)
        for count, words, labels, query in zip(*(x.tolist() for x in columns), strict=True):
            pairs = ", ".join(
                f"{masked_word or lexicon.words[word]}: {masked_label or pair[label]}"
                for word, label in zip(words[:count], labels[:count], strict=True)
            )
            prompts.append(f"{pairs}{'. ' if pairs else ''}{lexicon.words[query]}:")
        return prompts


def binary_entropy(p: Tensor) -> Tensor:
    """h2(p), bits."""
    return entropy(torch.stack([p, 1 - p], dim=-1))


def sample(
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
    words, query = _sample_words(lexicon, number, shape[1], generator)
    return Evidence(number, words, latent ^ flipped.long(), query, alpha)


def sample_fixed(
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
    words, query = _sample_words(lexicon, number, shots, generator)
    return Evidence(number, words, labels, query, alpha)


@dataclass(frozen=True)
class Condition:
    """N prompts, and what Bayes says to each."""

    name: str
    texts: list[str]
    pair: tuple[str, str]
    """Labels whose probabilities are read."""
    shots: Tensor
    posterior_bits: Tensor
    """[N] H_post."""
    predictive_bits: Tensor
    unaware_bits: Tensor
    """[N] H_post from the labels before they were masked, or as if coins were evidence."""


def condition(
    name: str,
    evidence: Evidence,
    lexicon: Lexicon,
    labels: tuple[str, ...],
    generator: Generator | None = None,
) -> Condition:
    """The main condition or one of `CONTROLS` over the same evidence.

    Labels are the pair, and another one for remap; the generator is that of the coins of shuffled.
    """
    if name not in (MAIN, *CONTROLS):
        raise ValueError(
            f"there is no condition {name!r}: choose one of {', '.join((MAIN, *CONTROLS))}"
        )
    pair = (labels[2], labels[3]) if name == "remap" else (labels[0], labels[1])
    if name == "shuffled":
        shape = evidence.labels.shape
        evidence = replace(evidence, labels=torch.randint(2, shape, generator=generator))
    blind = name in ("shuffled", "mask_labels")
    one_bit = torch.ones(len(evidence.shots), dtype=torch.float64)
    return Condition(
        name=name,
        texts=evidence.texts(
            lexicon,
            pair,
            masked_word=MASKED_WORD if name == "mask_words" else None,
            masked_label=MASKED_LABEL if name == "mask_labels" else None,
        ),
        pair=pair,
        shots=evidence.shots,
        posterior_bits=one_bit if blind else evidence.posterior_bits,
        predictive_bits=one_bit if blind else evidence.predictive_bits,
        unaware_bits=evidence.posterior_bits,
    )


def fixed_conditions(
    lexicon: Lexicon,
    labels: tuple[str, ...],
    *,
    each: int,
    seed: int = 0,
) -> tuple[Condition, Condition]:
    """Prompts of one length, and the same with labels masked."""
    evidence = sample_fixed(lexicon, Generator().manual_seed(seed), count=each)
    shown = condition(MAIN, evidence, lexicon, labels)
    masked = condition("mask_labels", evidence, lexicon, labels)
    return replace(shown, name=FIXED), replace(masked, name=BLIND)


def _sample_words(
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
