"""A language model and its training text as one flat config."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora.sentences import KINDS, Kind
from bayesattn.models.choices import choices, renamed
from bayesattn.models.config import BayesConfig
from bayesattn.models.sizes import SIZES
from bayesattn.models.transformer import BayesForCausalLM


@dataclass(frozen=True, kw_only=True)
class Text:
    """The training text of a language model."""

    corpus: str = "pydoc"
    """Text: a file (.txt, .md, .jsonl), a folder of such files, pydoc, site-packages (Python source
    of installed packages), site-packages:docs, or hf:NAME[:CONFIG[:SPLIT]]."""
    corpus_tokens: int | None = None
    """Largest number of tokens that are read of the corpus."""
    tokenizer: str = "words"
    """words (1,024 pieces), bytes, train:N (N tokens, byte pairs learnt from the corpus), or the
    name or folder of a Hugging Face tokenizer."""
    length: int = 128
    """Tokens of a training sequence."""
    needles: Kind = "passkey"
    """Kind of needle in the needle prompts."""
    needle_share: float = 0.9
    """Share of the sequences that begin with a needle prompt; text fills the rest of these."""


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(choices(), Text):
    """One language model and its text. Every field is a plain JSON value.

    It also has one field for each choice of `BayesConfig`.
    """

    size: str = "tiny"
    """Size of the model: nano, tiny, mini, or one of the authors' l6 to l24."""
    layers: int | None = None
    """Number of layers; that of the size if not given."""
    width: int | None = None
    """Width of the model; that of the size if not given."""
    heads: int | None = None
    """Query heads; those of the size if not given."""

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"length must be 2 or more tokens, not {self.length}.")
        if not 0 <= self.needle_share <= 1:
            raise ValueError(f"needle_share must be a share from 0 to 1, not {self.needle_share}.")
        if self.corpus_tokens is not None and self.corpus_tokens < 1:
            raise ValueError(f"corpus_tokens must be a positive integer, not {self.corpus_tokens}.")
        for name, allowed in (("needles", KINDS), ("size", SIZES)):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}.")
        self.model_config()

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """The config of a run, also of a run of an older version."""
        return cls(**renamed(stored))

    def model_config(self, **changes: Any) -> BayesConfig:
        """The config of the model, a `BayesForCausalLM`; `changes` replace fields."""
        return self.decoder(self.length, SIZES[self.size], **changes)

    def build(
        self, tokenizer: PreTrainedTokenizerBase, seed: int, **changes: Any
    ) -> BayesForCausalLM:
        """The model with initial weights that depend on `seed` only; torch's global state stays."""
        tokens = {
            "vocab_size": len(tokenizer),
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        config = self.model_config(**tokens | changes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return BayesForCausalLM(config)

    def to_dict(self) -> dict[str, Any]:
        """All fields: `LanguageConfig.read(language.to_dict()) == language`."""
        return asdict(self)
