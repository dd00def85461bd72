"""Byte-pair tokenizers that are trained on a corpus: `train:8192`.

Text is cut into words with the space before them, into runs of other characters, and into single
digits, so a number has one encoding only. The most frequent pairs of neighbours become tokens until
the requested number is reached. Any text can be encoded, if need be byte by byte.

A tokenizer is trained once for a corpus and kept beside its tokens. Every run has a copy.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bayesattn.corpora.forms import number_field
from bayesattn.corpora.store import corpora_folder, to_be_held_out
from bayesattn.corpora.text import CorpusError, listing, parts
from bayesattn.corpora.tokenizers import SPECIAL, load_tokenizer, make_fast
from bayesattn.files import TEMPORARY, sync, writing

FORMAT = 1
"""Raise this when the same corpus gives another tokenizer."""
SAMPLE = 2**24
"""Number of characters of the corpus that the training reads."""
FILE = "tokenizer.json"
SMALLEST = 256 + len(SPECIAL)
"""Every byte, and the special tokens."""
DIGITS = 5
NAME = re.compile(r"train:(\d+)")


def tokenizer_of(name: str, corpus: str, kept: Path | str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer called `name`; "train:N" is one of N tokens, trained on the `corpus`.

    Args:
        name: see `load_tokenizer`, or "train:N".
        corpus: see `bayesattn.corpora.text`.
        kept: the folder of a run that has a trained tokenizer.
    """
    match = NAME.fullmatch(name)
    if match is None:
        return load_tokenizer(name)
    if kept is not None and (Path(kept) / FILE).exists():
        return read(Path(kept))
    size = int(match[1])
    decisive = [FORMAT, size, SAMPLE, listing(corpus)]
    digest = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]
    folder = corpora_folder() / "tokenizers" / digest
    if not folder.exists():
        write(train(corpus, size), folder)
    return read(folder)


def is_trained(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def train(corpus: str, size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of `size` tokens, trained on the training text of the corpus."""
    if size < SMALLEST:
        raise CorpusError(
            f"A tokenizer of {size} tokens is too small: bytes and special tokens alone are "
            f"{SMALLEST}, so choose train:{SMALLEST} or more."
        )
    tokenizer = Tokenizer(models.BPE())
    cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(corpus), trainer)
    found = tokenizer.get_vocab_size()
    if found < size:
        raise CorpusError(
            f"The text of {corpus} supports a tokenizer of {found:,} tokens, not of {size:,}: "
            f"choose train:{found} or fewer, or give more text."
        )
    fast = make_fast(tokenizer)
    if len(number_field(fast, DIGITS).slots) != DIGITS:
        raise AssertionError("a trained tokenizer merges digits")
    return fast


def write(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer in Hugging Face's format, atomically."""
    temporary = folder.with_name(f"{TEMPORARY}{os.getpid()}-{folder.name}")
    with writing(str(folder), "make room there, or choose another folder"):
        try:
            tokenizer.save_pretrained(temporary)
            for path in temporary.iterdir():
                sync(path)
            try:
                temporary.rename(folder)
            except OSError:  # another process may have been faster, with the same result
                if not (folder / FILE).exists():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def read(folder: Path) -> PreTrainedTokenizerBase:
    try:
        return PreTrainedTokenizerFast.from_pretrained(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"The tokenizer in {folder} is damaged: delete that folder.") from error


def _sample(corpus: str) -> Iterator[str]:
    room, begun, held = SAMPLE, False, False
    for part in parts(corpus):
        if part.first:
            held = to_be_held_out(part, alone=not begun)
            begun = True
        if not held:
            yield part.text[:room]
            room -= len(part.text)
        if room <= 0:
            return
