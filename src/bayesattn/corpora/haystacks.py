"""Haystacks: filler text around needles.

repeated   the authors' five sentences, repeated
words      random words, the same for all prompts of a seed and length
text       the source of a package that is in no training corpus here, from a random place
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Generator, Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora.forms import word_field
from bayesattn.corpora.sentences import FILLER, WORDS
from bayesattn.corpora.text import CorpusError
from bayesattn.corpora.tokenizers import encode, start_token

Filler = Literal["repeated", "words", "text"]
FILLERS: tuple[Filler, ...] = get_args(Filler)
PACKAGE = "sympy"
"""A package that torch requires, so it is always installed."""
LETTERS = 2_400_000
"""Number of characters of its source that are read: more than a million tokens."""
RANDOM_WORDS = 2**21
"""Number of random words; a prompt of a million tokens takes half of them."""


@dataclass(frozen=True)
class Haystack:
    """The filler around needles: an endless loop of tokens, with needles after whole sentences."""

    loop: Tensor
    """[n] int64."""
    unit: int
    """Number of tokens of a unit of filler."""
    back: Tensor | None = None
    """[n] tokens back to the last end of a sentence; None if every unit ends a sentence."""
    together: bool = False
    """Whether prompts of one call begin at the same place, so their common part is read once."""

    def sample_starts(self, units: Tensor, generator: Generator) -> Tensor:
        """[N] start of each prompt in the loop: a sentence start with `units` of text after it."""
        if len(self.loop) == self.unit:
            return torch.zeros_like(units)
        room = (len(self.loop) // self.unit - units).clamp(min=1)
        count = 1 if self.together else len(units)
        share = torch.rand(count, generator=generator, dtype=torch.float64)
        start = (share * room).long() * self.unit
        return start if self.back is None else (start - self.back[start]).clamp(min=0)

    def pieces(self, start: int, ends: Sequence[int]) -> list[Tensor]:
        """The tokens after `start`, cut at the `ends`; the last end is the total number."""
        filler = self.loop[(start + torch.arange(ends[-1])) % len(self.loop)]
        return list(filler.tensor_split(list(ends[:-1])))

    def snap(self, places: Tensor, starts: Tensor) -> Tensor:
        """[N, M] places moved back to the end of a sentence, or to the start."""
        if self.back is None:
            return places
        back = self.back[(starts[:, None] + places) % len(self.loop)]
        return (places - back).clamp(min=0)


def make_haystack(filler: Filler, tokenizer: PreTrainedTokenizerBase) -> Haystack:
    if filler not in FILLERS:
        raise CorpusError(f"unknown haystack {filler!r}; choose one of {', '.join(FILLERS)}.")
    return {"repeated": repeated, "words": random_words, "text": source_text}[filler](tokenizer)


def repeated(tokenizer: PreTrainedTokenizerBase) -> Haystack:
    (tokens,) = encode(tokenizer, [FILLER])
    return Haystack(torch.tensor(tokens), len(tokens))


def random_words(tokenizer: PreTrainedTokenizerBase) -> Haystack:
    """`WORDS` in random order."""
    (words,) = word_field(tokenizer, WORDS).slots
    table = torch.tensor(encode(tokenizer, [f" {word}" for word in words]))
    order = torch.randint(len(table), (RANDOM_WORDS,), generator=Generator().manual_seed(0))
    return Haystack(table[order].flatten(), table.shape[1], together=True)


def source_text(tokenizer: PreTrainedTokenizerBase) -> Haystack:
    """Lines of Python and of its docstrings."""
    (tokens,) = encode(tokenizer, [_source()])
    return replace(running_text(tokenizer, torch.tensor(tokens)), together=True)


@cache
def _source() -> str:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise CorpusError(f"The haystack of text needs the package {PACKAGE}: pip install it.")
    text: list[str] = []
    for path in sorted(Path(found.origin).parent.rglob("*.py")):
        text.append(path.read_text(encoding="utf-8"))
        if sum(map(len, text)) > LETTERS:
            break
    return "".join(text)[:LETTERS]


def running_text(tokenizer: PreTrainedTokenizerBase, tokens: Tensor) -> Haystack:
    """Text of a corpus without document tokens; needles stand between sentences."""
    kept = tokens[tokens != start_token(tokenizer)]
    if not len(kept):
        raise CorpusError("The haystack is empty: give text in which needles can be hidden.")
    pieces = {token: str(tokenizer.decode([token])) for token in kept.unique().tolist()}
    ends = [token for token, piece in pieces.items() if piece.rstrip(" ").endswith((".", "\n"))]
    after = torch.isin(kept, torch.tensor(ends, dtype=torch.int64)).roll(1)
    # Twice around the loop, so the first tokens know the sentence before them.
    number = torch.arange(2 * len(kept))
    last = torch.where(after.repeat(2), number, 0).cummax(0).values
    return Haystack(kept, 1, (number - last)[len(kept) :])
