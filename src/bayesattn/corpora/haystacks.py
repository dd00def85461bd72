"""Haystacks: what a needle is hidden in.

repeated   the authors' five sentences, again and again
words      random words, the same ones for all prompts of a seed and length
text       the source of a package that nothing here is trained on, from a random place
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
"""Comes with torch, so that it is always there."""
LETTERS = 2_400_000
"""Characters of its source that are read: a million tokens and more, unless they are bytes."""
RANDOM_WORDS = 2**21
"""A prompt of a million tokens takes half of them."""


@dataclass(frozen=True)
class Haystack:
    """The filler around needles: an endless loop of tokens, with needles after whole sentences."""

    loop: Tensor
    """[n] int64."""
    unit: int
    """Tokens of a unit of filler."""
    back: Tensor | None = None
    """[n] tokens from here back to the end of a sentence; None if every unit ends with one."""
    together: bool = False
    """Prompts that are made together begin at one place: what they share is read only once."""

    def sample_starts(self, units: Tensor, generator: Generator) -> Tensor:
        """[N] where in the loop each prompt begins: with a sentence, and `units` in one piece."""
        if len(self.loop) == self.unit:
            return torch.zeros_like(units)
        room = (len(self.loop) // self.unit - units).clamp(min=1)
        count = 1 if self.together else len(units)
        share = torch.rand(count, generator=generator, dtype=torch.float64)
        start = (share * room).long() * self.unit
        return start if self.back is None else (start - self.back[start]).clamp(min=0)

    def pieces(self, start: int, ends: Sequence[int]) -> list[Tensor]:
        """The tokens after `start`, cut after so many of them; the last end is the end of all."""
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
    """`WORDS` in an order that nothing tells."""
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
    """Text of a corpus without its marks of documents; needles may stand after a sentence."""
    kept = tokens[tokens != start_token(tokenizer)]
    if not len(kept):
        raise CorpusError("The haystack is empty: give text to hide needles in.")
    pieces = {token: str(tokenizer.decode([token])) for token in kept.unique().tolist()}
    ends = [token for token, piece in pieces.items() if piece.rstrip(" ").endswith((".", "\n"))]
    after = torch.isin(kept, torch.tensor(ends, dtype=torch.int64)).roll(1)
    # Twice around the loop, so that the first tokens see the sentence that ends before them.
    number = torch.arange(2 * len(kept))
    last = torch.where(after.repeat(2), number, 0).cummax(0).values
    return Haystack(kept, 1, (number - last)[len(kept) :])
