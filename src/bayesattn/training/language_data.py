"""The data of a language model: corpus and needles of a `LanguageConfig` as a task."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora import Mixture, NeedleMaker, TokenStore, fingerprint, prepare, windows
from bayesattn.models.language_config import LanguageConfig
from bayesattn.training.language_task import LanguageTask
from bayesattn.training.schedule import WATCH_SEED

WATCHED = 64
"""Held-out windows of the evaluation during training."""
PROMPTS = 20
"""Needle prompts of it, from the first to the last depth."""
HAYSTACK = 2**20
"""Tokens of the corpus that essays are cut from."""


def make_task(
    language: LanguageConfig, tokenizer: PreTrainedTokenizerBase, seed: int
) -> tuple[LanguageTask, dict[str, Any]]:
    """The task, and what a resumed run compares: hash of the tokenizer, tokens of each split.

    Raises:
        CorpusError: if the corpus is too short, or the length too short for a needle.
    """
    with _turn(language.corpus):  # one process reads a corpus, the others find its tokens
        store = prepare(language.corpus, tokenizer, tokens=language.corpus_tokens)
    maker = _maker(language, tokenizer, store) if language.needle_share else None
    length = language.length
    mixture = Mixture(store, maker, language.needle_share, length, seed)
    heldout = windows(store, "heldout", length, torch.arange(WATCHED), WATCH_SEED)
    prompts = None
    if maker is not None:
        longest = length - maker.answer_length
        prompts = maker.prompts(longest, "equidistant", PROMPTS, WATCH_SEED)
    task = LanguageTask(mixture, heldout, store.bytes_per_token("heldout"), prompts)
    counts = {"train": store.tokens("train"), "heldout": store.tokens("heldout")}
    return task, {"tokenizer": fingerprint(tokenizer), **counts}


def _turn(name: str) -> FileLock:
    """Held by one process of this machine at a time."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir()) / f"bayesattn-{digest}.lock")


def _maker(
    language: LanguageConfig, tokenizer: PreTrainedTokenizerBase, store: TokenStore
) -> NeedleMaker:
    haystack = None
    if language.needles == "essay":
        haystack = torch.from_numpy(store.stream("train")[:HAYSTACK].astype("int64"))
    return NeedleMaker(tokenizer, language.needles, haystack=haystack)
