"""Conditions of SULA: the task itself, and variations whose posterior is known as well.

    main          the task
    remap         other labels, the same evidence: the posterior is the same
    shuffled      every label a fair coin: nothing is known of the latent one, 1 bit; who does not
                  know of the coins still computes a posterior from what is shown (unaware)
    mask_words    shown words replaced: by the likelihood they carry nothing, the posterior stays
    mask_labels   shown labels replaced: all evidence is gone, 1 bit

The authors mask words and expect a flat posterior. By their own likelihood that is the wrong mask.
"""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from bayesattn.probes.llm.sula import Evidence, Lexicon

MAIN = "main"
CONTROLS = ("remap", "shuffled", "mask_words", "mask_labels")
MASKED_WORD, MASKED_LABEL = "word", "label"
"""Stand for what is masked: of one token almost everywhere, and no adjectives or labels."""


@dataclass(frozen=True)
class Condition:
    """Prompts, and what Bayes says to each."""

    name: str
    texts: list[str]
    pair: tuple[str, str]
    """Labels whose probabilities are read."""
    shots: Tensor
    """[N]."""
    posterior_bits: Tensor
    """[N] H_post."""
    predictive_bits: Tensor
    """[N] H_pred."""
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

    Args:
        name: which.
        evidence: the prompts.
        lexicon: their words.
        labels: the pair, and another one for remap.
        generator: of the coins of shuffled.
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
            instead_of_words=MASKED_WORD if name == "mask_words" else None,
            instead_of_labels=MASKED_LABEL if name == "mask_labels" else None,
        ),
        pair=pair,
        shots=evidence.shots,
        posterior_bits=one_bit if blind else evidence.posterior_bits,
        predictive_bits=one_bit if blind else evidence.predictive_bits,
        unaware_bits=evidence.posterior_bits,
    )
