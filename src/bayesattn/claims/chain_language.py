"""The language model's part of cot-extender: labels in context, with a running tally beside them.

    none     happy: lug, cruel: dax. serene:
    filler   happy: lug (. . . .), cruel: dax (. . . .). serene:
    tally    happy: lug (lug 1 dax 0), cruel: dax (lug 1 dax 1). serene:

Every prompt shows as many labels (`probes/llm/sula.py`), so only their difference tells prompts
apart; the tally writes it down. Nothing is trained and the model writes nothing itself: whether it
uses what is written is all that can be seen here.
"""

from typing import Any

from torch import Generator

from bayesattn.ledger.typed import Stored
from bayesattn.models.open import DEFAULT
from bayesattn.probes.llm.subject import load
from bayesattn.probes.llm.sula import Condition, Evidence, Lexicon, sample_fixed
from bayesattn.probes.llm.sula_answers import answer, choose_labels, even_words, plain_encode
from bayesattn.probes.llm.sula_examination import calibrate

STYLES = ("none", "filler", "tally")


class Labelling(Stored):
    """How near the model's belief about labels comes to Bayes, errors in bits."""

    error_predictive: float
    error_posterior: float
    correlation: float | None
    """With the predictive entropy; None where the model's belief never changes."""
    mass: float
    """Probability that the two labels have together."""


def measure_language(prompts: int, seed: int) -> dict[str, Labelling]:
    """SmolLM2 in each style, with `prompts` prompts for each difference of labels."""
    subject = load(DEFAULT)
    encode = plain_encode(subject)
    first, second = choose_labels(encode, 2)
    pair, lexicon = (first, second), even_words(encode)
    evidence = sample_fixed(lexicon, Generator().manual_seed(seed), count=prompts)
    found: dict[str, Labelling] = {}
    for style in STYLES:
        condition = Condition(
            name=style,
            texts=texts(evidence, lexicon, pair, style),
            pair=pair,
            shots=evidence.shots,
            posterior_bits=evidence.posterior_bits,
            predictive_bits=evidence.predictive_bits,
            unaware_bits=evidence.posterior_bits,
        )
        whole = calibrate(answer(subject, condition))[0]
        found[style] = Labelling(
            error_predictive=whole.error_predictive.value,
            error_posterior=whole.error_posterior.value,
            correlation=whole.correlation_predictive,
            mass=whole.mass,
        )
    return found


def texts(evidence: Evidence, lexicon: Lexicon, pair: tuple[str, str], style: str) -> list[str]:
    """The prompts in one of `STYLES`; the label comes next, after a space."""
    prompts: list[str] = []
    columns: Any = (evidence.words, evidence.labels, evidence.query)
    for words, labels, query in zip(*(column.tolist() for column in columns), strict=True):
        shown: list[str] = []
        for number, (word, label) in enumerate(zip(words, labels, strict=True), start=1):
            second = sum(labels[:number])
            beside = {
                "none": "",
                "filler": " (. . . .)",
                "tally": f" ({pair[0]} {number - second} {pair[1]} {second})",
            }[style]
            shown.append(f"{lexicon.words[word]}: {pair[label]}{beside}")
        prompts.append(f"{', '.join(shown)}. {lexicon.words[query]}:")
    return prompts
