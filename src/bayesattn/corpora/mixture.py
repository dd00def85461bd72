"""What a language model is trained on: windows of a corpus, some of them led by a needle prompt."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesattn.corpora.errors import CorpusError
from bayesattn.corpora.needles import NeedleMaker
from bayesattn.corpora.store import TokenStore


@dataclass(frozen=True)
class Windows:
    """Sequences of packed documents."""

    tokens: Tensor
    """[B, L] int64."""
    documents: Tensor
    """[B, L] int64, from 0 in each sequence: a token sees its own document only."""
    given: Tensor | None = None
    """[B, L] bool: tokens that nothing before them tells, and that are not to be learnt."""

    @property
    def targets(self) -> Tensor:
        """[B, L - 1] whether the next token is to be predicted: one of the same document."""
        inside = self.documents[:, 1:] == self.documents[:, :-1]
        return inside if self.given is None else inside & ~self.given[:, 1:]

    def rows(self, rows: slice | Tensor) -> "Windows":
        """Some of the sequences, or all in another order."""
        given = None if self.given is None else self.given[rows]
        return Windows(self.tokens[rows], self.documents[rows], given)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Windows":
        """The same on another device."""
        return Windows(
            self.tokens.to(device, non_blocking=non_blocking),
            self.documents.to(device, non_blocking=non_blocking),
            None if self.given is None else self.given.to(device, non_blocking=non_blocking),
        )

    def __len__(self) -> int:
        return len(self.tokens)


class Mixture:
    """Sequences of `length` tokens, a `share` of which begin with a needle prompt.

    Such a prompt is a document of its own; text of the corpus fills the rest of the sequence. What
    a needle hides is given where it first stands: digits that nothing tells are noise, in which a
    model takes longer to find out how to copy them.

    Args:
        store: of the corpus.
        maker: of the prompts; None if `share` is 0.
        share: probability of a prompt, 0 to 1.
        length: tokens of a sequence.
        seed: of the order in which the corpus is read.
    """

    def __init__(
        self,
        store: TokenStore,
        maker: NeedleMaker | None,
        share: float,
        length: int,
        seed: int = 0,
    ) -> None:
        if not 0 <= share <= 1:
            raise CorpusError(f"The share of needles must lie between 0 and 1, not {share}.")
        if share and maker is None:
            raise CorpusError(f"A share of {share} needles needs a maker of needles.")
        self.store, self.maker, self.share = store, maker, share
        self.length, self.seed = length, seed
        # Refuse now what will not fit.
        store.windows("train", length, torch.arange(1), seed)
        if share and maker is not None:
            maker.training(1, length, Generator().manual_seed(0))

    def batch(self, indices: Tensor, generator: Generator) -> Windows:
        """Windows number `indices` [B] of the corpus, some behind a prompt, as `generator` says.

        Windows that are cut alike stand next to each other: attention reads them together, and
        would have to copy them if they were scattered.
        """
        windows = self._draw(indices, generator)
        cuts = windows.documents.tolist()
        order = torch.tensor(sorted(range(len(cuts)), key=lambda row: cuts[row]))
        return windows.rows(order)

    def _draw(self, indices: Tensor, generator: Generator) -> Windows:
        tokens, documents = self.store.windows("train", self.length, indices, self.seed)
        if not self.share or self.maker is None:
            return Windows(tokens, documents)
        chosen = torch.rand(len(indices), generator=generator) < self.share
        prompts, used, hidden = self.maker.training(int(chosen.sum()), self.length, generator)
        # The window moves back to make room for the prompt.
        position = torch.arange(self.length) - used[:, None]
        behind, inside = position.clamp(min=0), position < 0
        tokens[chosen] = torch.where(inside, prompts, tokens[chosen].gather(1, behind))
        later = documents[chosen].gather(1, behind) + 1
        documents[chosen] = later.masked_fill(inside, 0)
        given = torch.zeros_like(tokens, dtype=torch.bool)
        given[chosen] = hidden
        return Windows(tokens, documents, given)
