"""Training a language model on text, and on needle prompts before the text.

    loss = - Σ ln q(token_t | tokens before it) / number of targets

Every token but the first of a document is a target, so no document is predicted from the document
before it. Shapes: B sequences, L tokens, N prompts.
"""

import hashlib
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Generator, Tensor, nn
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora import (
    Mixture,
    NeedleMaker,
    Prompts,
    TokenStore,
    Windows,
    fingerprint,
    prepare,
    tokenizer_of,
    windows,
)
from bayesattn.corpora.trained import is_trained, write
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.transformer import BayesForCausalLM
from bayesattn.runs import TOKENIZER, Run
from bayesattn.training.config import TrainConfig
from bayesattn.training.loop import train_run
from bayesattn.training.schedule import WATCH_SEED

PIECE = 16
"""Number of held-out windows in one pass."""
IGNORED = -100
WATCHED = 64
"""Number of held-out windows in an evaluation during training."""
PROMPTS = 20
"""Number of needle prompts in this evaluation, from the first to the last depth."""
HAYSTACK = 2**20
"""Number of tokens of the corpus from which essays are cut."""


def train_language(
    language: LanguageConfig,
    training: TrainConfig,
    folder: Path | str,
    *,
    progress: bool = True,
    command: str | None = None,
) -> Run:
    """Train in the run `folder`, as `train_tunnel` does."""
    parts = {"language": language, "training": training}
    kept = Path(folder) / TOKENIZER

    def keep() -> None:
        """Copy the trained tokenizer into the run."""
        if is_trained(language.tokenizer) and not kept.exists():
            write(tokenizer_of(language.tokenizer, language.corpus), kept)

    return train_run(parts, lambda: make(language, training, kept), folder, progress, command, keep)


def make(
    language: LanguageConfig, training: TrainConfig, kept: Path | None = None
) -> tuple["LanguageTask", BayesForCausalLM, dict[str, Any]]:
    """The task, the model, and a description of the data; `kept` is the run's tokenizer."""
    with _machine_lock(language.corpus):  # one process reads a corpus, the others find its tokens
        tokenizer = tokenizer_of(language.tokenizer, language.corpus, kept)
    task, data = make_task(language, tokenizer, training.seed)
    return task, language.build(tokenizer, training.seed), {"data": data}


def parse_config(run: Run) -> tuple[LanguageConfig, TrainConfig]:
    with run.reading("language model"):
        language, training = run.config["language"], run.config["training"]
        return LanguageConfig.read(language), TrainConfig(**training)


@dataclass(frozen=True)
class LanguageBatch:
    """Windows, and the mean number of targets per row of the whole batch.

    Rows have different numbers of targets. All parts of a batch divide by the same number, so the
    mean over equal parts is the mean over all targets.
    """

    windows: Windows
    targets: float

    def rows(self, rows: slice) -> "LanguageBatch":
        return LanguageBatch(self.windows.rows(rows), self.targets)

    def to(self, device: torch.device | str) -> "LanguageBatch":
        return LanguageBatch(self.windows.to(device), self.targets)


class LanguageTask:
    """Cross-entropy of the next token; loss on held-out text, and needles found."""

    goal = "heldout"

    def __init__(
        self,
        mixture: Mixture,
        heldout: Windows,
        bytes_per_token: float,
        prompts: Prompts | None = None,
    ) -> None:
        self.mixture, self.heldout, self.prompts = mixture, heldout, prompts
        self.bytes_per_token = bytes_per_token
        self.tokens = mixture.length

    def batch(self, generator: Generator, batch_size: int, step: int) -> LanguageBatch:
        """The next sequences of the stream; the generator places the needles."""
        indices = torch.arange(step * batch_size, (step + 1) * batch_size)
        windows = self.mixture.batch(indices, generator)
        return LanguageBatch(windows, windows.targets.sum().item() / batch_size)

    def loss(self, model: nn.Module, batch: LanguageBatch) -> Tensor:
        """Nats per target."""
        return _nats(model, batch.windows) / (len(batch.windows) * batch.targets)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Nats per token ("heldout"), "bits_per_byte", and the share of "needles" found."""
        device = next(model.parameters()).device
        pieces = range(0, len(self.heldout), PIECE)
        total = sum(
            _nats(model, self.heldout.rows(slice(start, start + PIECE)).to(device)).item()
            for start in pieces
        )
        nats = total / self.heldout.targets.sum().item()
        found = {"heldout": nats, "bits_per_byte": nats / math.log(2) / self.bytes_per_token}
        if self.prompts is not None:
            found["needles"] = retrieved(model, self.prompts).double().mean().item()
        return found


def retrieved(model: nn.Module, prompts: Prompts) -> Tensor:
    """[N] whether every token of the answer is the model's most probable one.

    Teacher-forced: each token is predicted after the right tokens before it.
    """
    tokens = torch.cat([prompts.tokens, prompts.answers], 1)[:, :-1]
    count = prompts.answers.shape[1]
    device = next(model.parameters()).device
    output: Any = model(tokens.to(device), logits_to_keep=count, use_cache=False)
    right = output.logits.argmax(-1).cpu() == prompts.answers
    return (right | ~prompts.scored).all(-1)


def _nats(model: nn.Module, windows: Windows) -> Tensor:
    """Sum of -ln q over all targets."""
    tokens, documents = windows.tokens, windows.documents
    output: Any = model(tokens[:, :-1], document_ids=documents[:, :-1], use_cache=False)
    targets = torch.where(windows.targets, tokens[:, 1:], IGNORED)
    return nn.functional.cross_entropy(
        output.logits.flatten(0, 1).float(),
        targets.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
    )


def make_task(
    language: LanguageConfig, tokenizer: PreTrainedTokenizerBase, seed: int
) -> tuple[LanguageTask, dict[str, Any]]:
    """The task, and the data that a resumed run compares: hash of the tokenizer, tokens per split.

    Raises:
        CorpusError: if the corpus is too short, or the length too short for a needle.
    """
    with _machine_lock(language.corpus):
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


def _machine_lock(name: str) -> FileLock:
    """A lock that one process of this machine holds at a time."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return FileLock(Path(tempfile.gettempdir()) / f"bayesattn-{digest}.lock")


def _maker(
    language: LanguageConfig, tokenizer: PreTrainedTokenizerBase, store: TokenStore
) -> NeedleMaker:
    haystack = None
    if language.needles == "essay":
        haystack = torch.from_numpy(store.stream("train")[:HAYSTACK].astype("int64"))
    return NeedleMaker(tokenizer, language.needles, haystack=haystack)
