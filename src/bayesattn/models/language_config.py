"""What a language model is trained on, and what it is: one flat config."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from bayesattn.attention.ssmax import Scope
from bayesattn.corpora.sentences import KINDS, Kind
from bayesattn.models import RECIPES, BayesConfig, BayesForCausalLM
from bayesattn.models.architectures.transformer import EncodingName


@dataclass(frozen=True, kw_only=True)
class LanguageConfig:
    """One language model and its text. Every field is a plain JSON value."""

    corpus: str = "pydoc"
    """Text: pydoc, a file (.txt, .md, .jsonl), a folder of them, or hf:NAME[:CONFIG[:SPLIT]]."""
    corpus_tokens: int | None = None
    """Read no more of it than so many tokens."""
    tokenizer: str = "words"
    """words (1,024 pieces), bytes, or a Hugging Face tokenizer, its name or folder."""
    length: int = 128
    """Tokens of a training sequence."""
    needles: Kind = "passkey"
    """What is hidden in some of the sequences."""
    needle_share: float = 0.9
    """Share of the sequences that begin with a needle prompt; the rest of each is text."""
    size: str = "tiny"
    """Of the model, a name from `bayesattn.models.RECIPES`: nano, tiny, small, l6 to l24."""
    layers: int | None = None
    """Number of layers; that of the size if not given."""
    width: int | None = None
    """Width of the model; that of the size if not given."""
    heads: int | None = None
    """Query heads; those of the size if not given."""
    prior: str = "ggd"
    """Prior over distance: uniform, laplace, ggd, student or bucketed."""
    prior_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the prior, for example init mixed."""
    shared_prior: bool = False
    """One prior for all layers instead of one per layer."""
    encoding: EncodingName = "none"
    """Position encoding besides the prior."""
    rope_parameters: dict[str, Any] = field(default_factory=dict)
    """Arguments of encoding rope, for example rope_theta 10000."""
    ssmax: bool = True
    """Scale the logits with the log of the number of visible keys."""
    ssmax_scope: Scope = "content+prior"
    """What SSMax scales."""
    ssmax_learned: bool = True
    """Learn a temperature per head; else all stay 1."""
    window: int | None = None
    """Number of most recent keys a query sees, its own included; all if not given."""

    def __post_init__(self) -> None:
        """Raise ValueError with one sentence about the first field that cannot work."""
        if self.length < 2:
            raise ValueError(f"length must be 2 or more tokens, not {self.length}.")
        if not 0 <= self.needle_share <= 1:
            raise ValueError(f"needle_share must be a share from 0 to 1, not {self.needle_share}.")
        for name in ("corpus_tokens", "layers", "width", "heads", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value}.")
        for name, allowed in (("needles", KINDS), ("size", RECIPES)):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}.")
        self.model_config()

    def model_config(self, **changes: Any) -> BayesConfig:
        """The model alone, as the config of a `BayesForCausalLM`; `changes` replace its fields."""
        known = {field.name for field in fields(BayesConfig)}
        if strange := changes.keys() - known:
            raise ValueError(f"the model has no setting {min(strange)!r} that could be changed.")
        size = {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
        }
        settings = {
            **{name: value for name, value in size.items() if value is not None},
            "max_position_embeddings": self.length,
            "prior": self.prior,
            "prior_options": self.prior_options,
            "shared_prior": self.shared_prior,
            "encoding": self.encoding,
            "rope_parameters": self.rope_parameters or None,
            "ssmax": self.ssmax,
            "ssmax_scope": self.ssmax_scope,
            "ssmax_learned": self.ssmax_learned,
            "sliding_window": self.window,
        }
        return RECIPES[self.size](**settings | changes)

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
        """The fields: `LanguageConfig(**language.to_dict()) == language`."""
        return asdict(self)
