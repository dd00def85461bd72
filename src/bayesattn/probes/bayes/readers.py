"""Any model as a predictor of a tunnel's next outcome: its own tunnel, or one put into words.

A language model reads labels of one token each, always in the same places:

    Throws: A, B, B, A,        places of labels stay, labels are exchanged

so all sequences of a task are equally long, token by token. That this is so is checked with the
tokenizer before anything is read. B sequences, S scored steps, C outcomes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from bayesattn.bits import log_probabilities
from bayesattn.evals.prediction import device_of, evaluating, predict_all
from bayesattn.models import BayesForCausalLM
from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import first_tensor, with_first
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula_answers import (
    CANDIDATES,
    check_labels,
    choose_labels,
    made_up,
    plain_encode,
)
from bayesattn.probes.measured import NotApplicableError

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
ROWS = 64
TOKENS = 4096
FLOATS = 2**26
"""Sequences, tokens and logits of one pass, at most."""

Where = Literal["residual", "values"]
Write = Callable[[Sequence[str]], str]
"""From labels to a text that ends with the last of them."""


class Site(NamedTuple):
    """A module, and the states [B, T, d] in what it puts out."""

    module: nn.Module
    get: Callable[[Any], Tensor]
    put: Callable[[Any, Tensor], Any]
    """The same output with other states in it."""


class Reading(NamedTuple):
    """What a model predicts."""

    log_probs: Tensor
    """[B, S, C] float64, over the outcomes alone."""
    mass: Tensor
    """[B, S] of all outcomes together among everything the model could say."""


class Reader(ABC):
    """A model and how it is asked."""

    name: str

    @abstractmethod
    def sites(self, kind: Where = "residual") -> list[Site]:
        """Where states of each layer can be heard and changed."""

    @abstractmethod
    def places(self, scored: Tensor) -> Tensor:
        """[S] positions of the residual stream at which scored steps are predicted."""

    @abstractmethod
    def passes(self, inputs: Tensor, scored: Tensor) -> Iterator[Reading]:
        """Predictions of some sequences at a time."""

    def read(self, inputs: Tensor, scored: Tensor) -> Reading:
        """Inputs [B, t] of any length t up to the tunnel's, and scored steps [S] of them."""
        found = list(self.passes(inputs, scored))
        reading = Reading(*(torch.cat(column) for column in zip(*found, strict=True)))
        if not reading.log_probs.isfinite().all():
            raise ValueError(
                f"{self.name} predicts NaN or an impossible outcome, so its predictions mean "
                "nothing: check its weights, or choose another --dtype"
            )
        return reading


@dataclass(frozen=True)
class TunnelReader(Reader):
    """A model of a tunnel, in its own vocabulary."""

    model: Predictor
    name: str = "model"

    def sites(self, kind: Where = "residual") -> list[Site]:
        parts = anatomy(self.model)
        if kind == "residual":
            return [Site(layer.block, first_tensor, with_first) for layer in parts.layers]
        modules = [parts.attention(n).projections["v"] for n in range(len(parts.layers))]
        return [Site(module, first_tensor, with_first) for module in modules]

    def places(self, scored: Tensor) -> Tensor:
        return scored

    def passes(self, inputs: Tensor, scored: Tensor) -> Iterator[Reading]:
        log_probs = predict_all(self.model, inputs, scored, ROWS)
        yield Reading(log_probs, torch.ones(log_probs.shape[:2]).double())


@dataclass(frozen=True)
class LanguageReader(Reader):
    """A language model that reads one task in words."""

    subject: Subject
    tokens: Tensor
    """[T] of a sequence, up to where its last label would stand."""
    slots: Tensor
    """[L + 1] where labels stand; the last is the end."""
    labels: Tensor
    """[C] tokens."""

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.subject.name

    def sites(self, kind: Where = "residual") -> list[Site]:
        if kind == "residual":
            blocks = [layer.block for layer in self.subject.parts.layers]
            if any(block is None for block in blocks):
                raise NotApplicableError(f"no residual stream: {self.subject.parts.reason}")
            return [Site(block, first_tensor, with_first) for block in blocks if block is not None]
        return [value_site(self.subject, n) for n in range(len(self.subject.parts.layers))]

    def places(self, scored: Tensor) -> Tensor:
        return self.slots[scored + 1] - 1

    def encode(self, inputs: Tensor) -> Tensor:
        """[B, T] tokens that say inputs [B, t]."""
        count = inputs.shape[1]
        tokens = self.tokens[: self.slots[count]].repeat(len(inputs), 1)
        tokens[:, self.slots[:count]] = self.labels[inputs]
        return tokens

    def passes(self, inputs: Tensor, scored: Tensor) -> Iterator[Reading]:
        model: Any = self.subject.model
        tokens, places = self.encode(inputs), self.places(scored)
        # logits of a large vocabulary at every token would need more room than the model; of ours
        # the last layer would leave out the other tokens, too, and its states be out of place
        asks = "logits_to_keep" in signature(model.forward).parameters
        asks = asks and not isinstance(model, BayesForCausalLM)
        kept = len(places) if asks else tokens.shape[1]
        rows = min(TOKENS // tokens.shape[1], FLOATS // (kept * self.subject.plan.vocabulary))
        device = device_of(model)
        with evaluating(model):
            for some in tokens.split(max(1, rows)):
                keep = {"logits_to_keep": places.to(device)} if asks else {}
                logits = model(some.to(device), use_cache=False, **keep).logits.cpu()
                if logits.shape[1] != len(places):
                    logits = logits[:, places]
                two = logits[..., self.labels].double()
                whole = logits.float().logsumexp(-1).double()
                yield Reading(log_probabilities(two), (two.logsumexp(-1) - whole).exp())


def value_site(subject: Subject, number: int) -> Site:
    """Where values of a layer leave their projection, all heads side by side.

    What is changed there gets into the cache and attention, and into what is captured.
    """
    layer = subject.parts.layers[number]
    if layer.value is None:
        raise NotApplicableError(f"values cannot be edited: {subject.parts.reason}")
    if layer.key is not None and layer.key.overlaps(layer.value):
        raise NotApplicableError("values cannot be edited: in this model keys are made of them")
    heads = layer.value

    def put(output: Tensor, states: Tensor) -> Tensor:
        return heads.write(output, states.view_as(heads.read(output)))

    return Site(heads.module, lambda output: heads.read(output).flatten(2), put)


def put_into_words(
    subject: Subject, write: Write, labels: Sequence[str], length: int
) -> LanguageReader:
    """A reader of `length` labels in a row; refuses what does not come out token by token."""
    alike = [subject.tokenize(write([label] * (length + 1))) for label in labels]
    base = torch.tensor(alike[0])
    slots = (
        (base != torch.tensor(alike[1])).nonzero()[:, 0] if len(alike[1]) == len(base) else base[:0]
    )
    tokens = [[one[at] for at in slots.tolist() if at < len(one)] for one in alike]
    if len(slots) == length + 1:
        mixed = [at % len(labels) for at in range(length + 1)]
        said = base.clone()
        said[slots] = torch.tensor([tokens[label][at] for at, label in enumerate(mixed)])
        whole = subject.tokenize(write([labels[label] for label in mixed]))
        if all(len(set(own)) == 1 for own in tokens) and whole == said.tolist():
            subject.check([said.tolist()], "of the longest sequence")
            ids = torch.tensor([own[0] for own in tokens])
            return LanguageReader(subject, base[: slots[-1]], slots, ids)
    raise ValueError(
        f"the labels {', '.join(labels)} are not one token each wherever they stand, for the "
        f"tokenizer of {subject.name}: name others with --labels"
    )


def pick_outcomes(subject: Subject, count: int, given: Sequence[str] = ()) -> tuple[str, ...]:
    """`count` labels of one token each: those given, else letters, made-up words, any words."""
    encode = plain_encode(subject)
    if given:
        if len(given) < count:
            raise ValueError(f"--labels takes {count} labels or more, not {len(given)}")
        check_labels(encode, given)
        return tuple(given[:count])
    return choose_labels(encode, count, chain(LETTERS, CANDIDATES, made_up(), _words(subject)))


def _words(subject: Subject) -> Iterator[str]:
    """Of the tokenizer's own vocabulary, where it knows no letters."""
    tokenizer: Any = subject.tokenizer
    known = (tokenizer.convert_tokens_to_string([token]).strip() for token in tokenizer.get_vocab())
    yield from sorted(word for word in known if word.isascii() and word.isalpha() and len(word) > 2)
