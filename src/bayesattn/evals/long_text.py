"""Long contiguous texts as tokens: held-out text of a corpus, or any file."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora import CorpusError, documents, encode, prepare
from bayesattn.corpora.tokenizers import start_token


def held_out(
    corpus: str, tokenizer: PreTrainedTokenizerBase, length: int, most: int, *, whole: bool = False
) -> Tensor:
    """Up to `most` sequences [N, length + 1] of text that no training on the corpus has seen.

    Args:
        corpus: its name, see `bayesattn.corpora.text`.
        tokenizer: of the model.
        length: tokens to predict in each.
        most: sequences.
        whole: only beginnings of documents that are long enough; else all text joined, as if it
            were one.
    """
    store = prepare(corpus, tokenizer)
    texts = store.documents("heldout", at_least=length + 1 if whole else 1)
    return _sequences(texts, store.start, length, most, whole, f"The held-out text of {corpus}")


def any_text(
    source: str, tokenizer: PreTrainedTokenizerBase, length: int, most: int, *, whole: bool = False
) -> Tensor:
    """The same of a file or folder, all of it."""
    start = start_token(tokenizer)
    texts = (torch.tensor(encode(tokenizer, [text])[0]) for text in documents(source))
    return _sequences(texts, start, length, most, whole, f"The text of {source}")


def _sequences(
    texts: Iterable[Tensor], start: int, length: int, most: int, whole: bool, name: str
) -> Tensor:
    if length < 1 or most < 1:
        raise ValueError(f"length and sequences must be 1 or more, not {length} and {most}")
    cleaned = (text[text != start] for text in texts)
    cut = _beginnings(cleaned, length) if whole else _pieces(cleaned, length)
    found = list(islice(cut, most))
    if not found:
        what = "no document of" if whole else "fewer than"
        raise CorpusError(
            f"{name} has {what} {length:,} tokens: choose a shorter length or give more text."
        )
    tokens = torch.stack(found)
    # as every document that a model is trained on begins
    return torch.cat((torch.full((len(tokens), 1), start), tokens), dim=1)


def _beginnings(texts: Iterable[Tensor], length: int) -> Iterator[Tensor]:
    return (text[:length] for text in texts if len(text) >= length)


def _pieces(texts: Iterable[Tensor], length: int) -> Iterator[Tensor]:
    """Texts joined and cut again; what is left over at the end is dropped."""
    waiting: list[Tensor] = []
    for text in texts:
        waiting.append(text)
        if sum(map(len, waiting)) >= length:
            *full, rest = torch.cat(waiting).split(length)
            if len(rest) == length:
                full, rest = [*full, rest], rest[:0]
            yield from full
            waiting = [rest]
