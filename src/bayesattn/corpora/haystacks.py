"""Haystacks: the filler around needles, one repeated sentence or running text.

A haystack is an endless loop of tokens. Needles stand between its units: after a whole sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora.sentences import FILLER
from bayesattn.corpora.text import CorpusError
from bayesattn.corpora.tokenizers import encode, start_token


@dataclass(frozen=True)
class Haystack:
    """Tokens in a loop."""

    loop: Tensor
    """[n] int64."""
    unit: int
    """Tokens of a unit of filler."""
    back: Tensor | None = None
    """[n] tokens from here back to the end of a sentence; None if every unit ends with one."""

    def sample_starts(self, units: Tensor, generator: Generator) -> Tensor:
        """[N] where in the loop each prompt begins: with a sentence, and `units` in one piece."""
        if self.back is None:
            return torch.zeros_like(units)
        room = (len(self.loop) - units * self.unit).clamp(min=1)
        share = torch.rand(len(units), generator=generator, dtype=torch.float64)
        start = (share * room).long()
        return (start - self.back[start]).clamp(min=0)

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


def repeated_sentence(tokenizer: PreTrainedTokenizerBase) -> Haystack:
    """The authors' filler."""
    (tokens,) = encode(tokenizer, [FILLER])
    return Haystack(torch.tensor(tokens), len(tokens))


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
