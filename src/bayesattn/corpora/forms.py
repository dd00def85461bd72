"""Forms: sentences with fields, tokenised once for every possible value of a field.

A field has slots, and each slot takes one symbol: a number of five digits has five slots of ten
symbols, a word has one slot of many symbols. In a form each slot owns some token positions, and
each symbol determines the tokens there. So a batch of sentences is one gather.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora.text import CorpusError
from bayesattn.corpora.tokenizers import encode

CHECKED = 256
"""Number of random values for which a form is compared with the tokenizer."""
POOL = 4096
"""Size of the pool of numbers for a tokenizer that merges digits."""


class UnevenError(CorpusError):
    """Tokens of one slot depend on another slot, or their number depends on the symbol."""


@dataclass(frozen=True)
class Field:
    """A place in a form, with its possible values."""

    slots: tuple[tuple[str, ...], ...]

    def sample(self, shape: Sequence[int], generator: Generator) -> Tensor:
        """[*shape, slots] symbols, uniformly random."""
        columns = [
            torch.randint(len(symbols), tuple(shape), generator=generator) for symbols in self.slots
        ]
        return torch.stack(columns, -1)

    def sample_distinct(self, rows: int, count: int, generator: Generator) -> Tensor:
        """[rows, count, 1] symbols of a field of one slot, without repetition in a row."""
        (symbols,) = self.slots
        order = torch.rand(rows, len(symbols), generator=generator).argsort(1)
        return order[:, :count, None]

    def text(self, chosen: Sequence[int]) -> str:
        """The text for one symbol of each slot."""
        return "".join(symbols[index] for symbols, index in zip(self.slots, chosen, strict=True))


class Form:
    """A text with names of `fields` in {braces}, as tokens."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, text: str, fields: Mapping[str, Field]
    ) -> None:
        self.fields = {name: field for name, field in fields.items() if f"{{{name}}}" in text}
        first = {name: [0] * len(field.slots) for name, field in self.fields.items()}
        slots = [
            (name, slot, len(symbols))
            for name, field in self.fields.items()
            for slot, symbols in enumerate(field.slots)
        ]
        texts = [self._written(text, first)]
        for name, slot, count in slots:
            for symbol in range(count):
                changed = {**first, name: [*first[name]]}
                changed[name][slot] = symbol
                texts.append(self._written(text, changed))
        rows = _require_equal_lengths(encode(tokenizer, texts), text)
        self.template = rows[0]
        """[n] tokens of the text with the first symbols."""
        self.scored = torch.zeros(len(self.template), dtype=torch.bool)
        """[n] positions that depend on a field."""
        self.given = torch.zeros(len(self.template), dtype=torch.bool)
        """[n] positions where a field occurs for the first time: its value is unpredictable."""
        self._slots: list[tuple[str, int, Tensor, Tensor]] = []
        begin = 1
        for name, slot, count in slots:
            own = rows[begin : begin + count]
            begin += count
            places = (own != self.template).any(0).nonzero()[:, 0]
            if self.scored[places].any():
                raise UnevenError(f"Two parts of {text!r} share a token.")
            self.scored[places] = True
            self.given[places[: len(places) // text.count(f"{{{name}}}")]] = True
            self._slots.append((name, slot, places, own[:, places]))
        self._check(tokenizer, text)

    def __len__(self) -> int:
        return len(self.template)

    def rows(self, values: Mapping[str, Tensor]) -> Tensor:
        """[..., n] tokens with symbols [..., slots] of each field."""
        found = self.template.repeat(*next(iter(values.values())).shape[:-1], 1)
        for name, slot, places, tokens in self._slots:
            found[..., places] = tokens[values[name][..., slot]]
        return found

    def _check(self, tokenizer: PreTrainedTokenizerBase, text: str) -> None:
        if not self.fields:
            return
        generator = Generator().manual_seed(0)
        sampled = {name: field.sample([CHECKED], generator) for name, field in self.fields.items()}
        texts = [
            self._written(text, {name: chosen[row].tolist() for name, chosen in sampled.items()})
            for row in range(CHECKED)
        ]
        if not torch.equal(
            _require_equal_lengths(encode(tokenizer, texts), text), self.rows(sampled)
        ):
            raise UnevenError(f"Parts of {text!r} change each other's tokens.")

    def _written(self, text: str, chosen: Mapping[str, Sequence[int]]) -> str:
        return text.format_map(
            {name: field.text(chosen[name]) for name, field in self.fields.items()}
        )


def number_field(tokenizer: PreTrainedTokenizerBase, digits: int) -> Field:
    """Numbers of so many digits, the first not 0.

    One slot per digit if the tokenizer has a token per digit. If it merges digits, one slot with a
    pool of numbers that have equally many tokens.
    """
    field = Field((tuple("123456789"), *[tuple("0123456789")] * (digits - 1)))
    try:
        Form(tokenizer, " {value}", {"value": field})
    except UnevenError:
        sampled = field.sample([POOL], Generator().manual_seed(0)).tolist()
        return Field(
            (_same_token_count(tokenizer, sorted({field.text(chosen) for chosen in sampled})),)
        )
    return field


def word_field(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> Field:
    """A field of those words that have equally many tokens."""
    return Field((_same_token_count(tokenizer, words),))


def _same_token_count(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[str, ...]:
    lengths = [len(tokens) for tokens in encode(tokenizer, [f" {text}" for text in texts])]
    ((most, _),) = Counter(lengths).most_common(1)
    return tuple(text for text, length in zip(texts, lengths, strict=True) if length == most)


def _require_equal_lengths(rows: list[list[int]], text: str) -> Tensor:
    if len({len(row) for row in rows}) > 1:
        raise UnevenError(f"The number of tokens of {text!r} depends on what stands in it.")
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), -1)
