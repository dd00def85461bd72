"""What a model answers to SULA prompts: its entropy over the two labels, and its states.

    P(first) = softmax of the two labels' logits,   H_model = h2(P(first)) bits

N prompts, d numbers per state: value heads of one layer at the last token, side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula import binary_entropy
from bayesattn.probes.llm.sula_controls import Condition
from bayesattn.probes.llm.sula_words import Encode, label_tokens


@dataclass(frozen=True)
class Answers:
    """To the prompts of one condition."""

    condition: Condition
    first: Tensor
    """[N] P(first label), of the two."""
    mass: Tensor
    """[N] probability of the two labels together, of all tokens."""
    values: Mapping[int, Tensor]
    """By layer, [N, d]."""
    lengths: Tensor
    """[N] tokens."""

    @property
    def bits(self) -> Tensor:
        """[N] H_model."""
        return binary_entropy(self.first)


def answer(subject: Subject, condition: Condition, layers: tuple[int, ...] = (-1,)) -> Answers:
    """Run `subject` over a condition and keep values of `layers`."""
    prompts = [subject.encode(text) for text in condition.texts]
    states = capture_prompts(subject, prompts, names=("values", "logits"))
    first, mass = read_labels(states.logits, label_pair(subject, condition.pair))
    values = {layer: states.values[layer].flatten(1) for layer in layers}
    return Answers(condition, first, mass, values, states.lengths)


def label_pair(subject: Subject, pair: tuple[str, str]) -> tuple[int, int]:
    """Tokens of two labels."""
    (first,), (second,) = (label_tokens(plain_encode(subject), label) for label in pair)
    return first, second


def plain_encode(subject: Subject) -> Encode:
    """The tokenizer without special tokens."""
    tokenizer = subject.tokenizer
    if tokenizer is None:
        raise ValueError(f"{subject.name} has no tokenizer, and SULA is text: add its files")
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def read_labels(logits: Tensor, pair: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """P(first) of the two, and their mass among all tokens, from logits [..., V]."""
    logits = logits.double()
    two = logits[..., list(pair)]
    mass = (torch.logsumexp(two, -1) - torch.logsumexp(logits, -1)).exp()
    return two.softmax(-1)[..., 0], mass
