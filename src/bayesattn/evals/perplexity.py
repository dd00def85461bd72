"""Perplexity by position: of tokens after 10, 100, 10,000 other tokens.

Sequences are read from end to end without document masks. The loss of every token is averaged over
a window of positions in each sequence, then over sequences, with an interval over sequences, and
exponentiated last. Beside it stands the loss of the same tokens with a context of at most the
training length: if the long context helps, its loss is lower.

`held_out` and `any_text` cut long texts of a corpus, or of any file, into sequences.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bayesattn.corpora import CorpusError, documents, encode, prepare
from bayesattn.corpora.tokenizers import start_token
from bayesattn.evals.memory import MEMORY
from bayesattn.evals.prefill import TOGETHER, Reader, check_tolerance
from bayesattn.models.open import LanguageModel
from bayesattn.stats import mean_interval


@dataclass(frozen=True)
class Perplexity:
    """Result of `perplexity`."""

    model: str
    trained: int
    """Number of tokens of a training sequence."""
    window: int
    """Number of positions in a window."""
    tolerance: float | None
    losses: Tensor
    """[sequences, positions] nats of each token after all earlier ones; position 0 is the first."""
    short: Tensor
    """The same with a context of half to all of the training length."""

    def by_window(self) -> list[dict[str, Any]]:
        count, size = self.losses.shape[1], self.window
        return [self._row(start, min(start + size, count)) for start in range(0, count, size)]

    def by_length(self) -> list[dict[str, Any]]:
        """One row per length: all tokens of a text of 1, 2, 4, … times the training length."""
        count, stop = self.losses.shape[1], self.trained
        rows: list[dict[str, Any]] = []
        while stop < count:
            rows.append(self._row(0, stop))
            stop *= 2
        return [*rows, self._row(0, count)]

    def to_json(self) -> dict[str, Any]:
        tensors = ("losses", "short")
        return {
            **{name: value for name, value in vars(self).items() if name not in tensors},
            "sequences": len(self.losses),
            "windows": self.by_window(),
            "lengths": self.by_length(),
            "positions": self.losses.mean(dim=0).tolist(),
        }

    def _row(self, start: int, stop: int) -> dict[str, Any]:
        """Averages over positions start .. stop-1; intervals are None with one sequence."""
        loss = self.losses[:, start:stop].double().mean(dim=1)
        short = self.short[:, start:stop].double().mean(dim=1)
        row: dict[str, Any] = {"from": start + 1, "to": stop}
        for name, values in (("loss", loss), ("gain", short - loss)):
            low, high = mean_interval(values.numpy()) or (None, None)
            row |= {name: float(values.mean()), f"{name}_low": low, f"{name}_high": high}
        for end in ("", "_low", "_high"):
            nats = row[f"loss{end}"]
            row[f"perplexity{end}"] = None if nats is None else float(np.exp(nats))
        row["perplexity_short"] = float(short.mean().exp())
        return row


def perplexity(
    language_model: LanguageModel,
    tokens: Tensor,
    *,
    window: int | None = None,
    tolerance: float | None = None,
    memory: int = MEMORY,
) -> Perplexity:
    """Losses at every position of `tokens` [sequences, positions + 1], after the first token.

    Args:
        language_model: the model.
        tokens: from `held_out` or `any_text`.
        window: number of positions to average; the training length by default.
        tolerance: largest share of the posterior that attention may skip, to be faster.
        memory: bytes that reading may take beyond the model.
    """
    model, trained = language_model.model, language_model.length
    window = trained if window is None else window
    if window < 1:
        raise ValueError(f"window must be 1 or more positions, not {window}")
    check_tolerance(model, tolerance)
    losses = _losses(model, tokens, memory, tolerance)
    within = tolerance is None and tokens.shape[1] <= trained + 1
    short = losses if within else _short_losses(model, tokens, trained, memory)
    return Perplexity(language_model.name, trained, window, tolerance, losses, short)


def _losses(
    model: PreTrainedModel, tokens: Tensor, memory: int, tolerance: float | None = None
) -> Tensor:
    """[N, n] losses of tokens [N, n + 1]."""
    found: list[Tensor] = []
    for rows in tokens.split(max(1, TOGETHER // tokens.shape[1])):
        inputs, targets = rows[:, :-1], rows[:, 1:]
        batch, count = inputs.shape
        settings: dict[str, Any] = {"memory": memory, "tolerance": tolerance, "every": True}
        reader = Reader(model, batch=batch, tokens=count, **settings)
        pieces: list[Tensor] = []
        for asked, logits in reader.read(inputs):
            wanted = targets[:, asked].to(logits.device)
            loss = cross_entropy(logits.float().transpose(1, 2), wanted, reduction="none")
            pieces.append(loss.cpu())
        found.append(torch.cat(pieces, dim=1))
    return torch.cat(found)


def _short_losses(model: PreTrainedModel, tokens: Tensor, length: int, memory: int) -> Tensor:
    """[N, n] losses with a context of `length` / 2 to `length` tokens."""
    count = tokens.shape[1] - 1
    length = min(length, count)
    step = max(1, length // 2)
    starts = [*range(0, count - length, step), count - length]
    cuts = torch.cat([tokens[:, start : start + length + 1] for start in starts])
    read = _losses(model, cuts, memory).view(len(starts), len(tokens), length)
    losses = torch.empty(len(tokens), count)
    for start, loss in zip(starts, read, strict=True):
        first = 0 if start == 0 else length - step
        losses[:, start + first : start + length] = loss[:, first:]
    return losses


def held_out(
    corpus: str,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    most: int,
    *,
    whole: bool = False,
    corpus_tokens: int | None = None,
) -> Tensor:
    """Up to `most` sequences [N, length + 1] of held-out text of the corpus.

    `whole` takes only the beginnings of documents that are long enough; otherwise all text is
    joined. `corpus_tokens` is the number of tokens that the training read; None is the whole
    corpus.
    """
    store = prepare(corpus, tokenizer, tokens=corpus_tokens)
    texts = store.documents("heldout", at_least=length + 1 if whole else 1)
    return _sequences(texts, store.start, length, most, whole, f"The held-out text of {corpus}")


def any_text(
    source: str, tokenizer: PreTrainedTokenizerBase, length: int, most: int, *, whole: bool = False
) -> Tensor:
    """Up to `most` sequences [N, length + 1] of the whole text of a file or folder."""
    start = start_token(tokenizer)
    texts = (torch.tensor(encode(tokenizer, [text])[0]) for text in documents(source))
    return _sequences(texts, start, length, most, whole, f"The text of {source}")


def _sequences(
    texts: Iterable[Tensor], start: int, length: int, most: int, whole: bool, name: str
) -> Tensor:
    if length < 1 or most < 1:
        raise ValueError(f"length and sequences must be 1 or more, not {length} and {most}")
    cleaned = (text[text != start] for text in texts)
    long = (text[:length] for text in cleaned if len(text) >= length)
    found = list(islice(long if whole else _pieces(cleaned, length), most))
    if not found:
        what = "no document of" if whole else "fewer than"
        raise CorpusError(
            f"{name} has {what} {length:,} tokens: choose a shorter length or give more text."
        )
    tokens = torch.stack(found)
    # the first token of every document in training
    return torch.cat((torch.full((len(tokens), 1), start), tokens), dim=1)


def _pieces(texts: Iterable[Tensor], length: int) -> Iterator[Tensor]:
    """Texts joined and cut into pieces; a last piece that is too short is dropped."""
    waiting: list[Tensor] = []
    for text in texts:
        waiting.append(text)
        if sum(map(len, waiting)) >= length:
            *full, rest = torch.cat(waiting).split(length)
            if len(rest) == length:
                full, rest = [*full, rest], rest[:0]
            yield from full
            waiting = [rest]
