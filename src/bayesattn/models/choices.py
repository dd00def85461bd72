"""The fields of `BayesConfig` as fields of training configs.

    class LanguageConfig(choices()): ...

gives a class one field for each field of `BayesConfig`, with the same type, default and help. So
every `BayesConfig` can be trained, from Python and from the command line.
"""

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, get_args

from transformers import PreTrainedConfig
from typing_extensions import Doc

from bayesattn.checks import Strict, length_multiple
from bayesattn.models.config import BayesConfig

SHORT = {"num_hidden_layers": "layers", "hidden_size": "width", "num_attention_heads": "heads"}
"""Sizes that every architecture has, with their names there."""
NOT_TRAINED = frozenset(
    {"vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "tolerance", "use_cache"}
)
"""Fields that the tokenizer or the tunnel determines, or that have no effect in training."""
WIDER: dict[str, tuple[Any, Any, str]] = {
    "ssmax_horizon": (int | str | None, None, " A number, or 1x: the training length."),
    "log_temperature_start": (int | str, 8192, " A number, or 1x: the training length."),
    "max_position_embeddings": (int | None, None, " The training length if not given."),
}
"""Fields that may also be given relative to the training length: type, default, further help."""
RENAMED = {
    "window": "sliding_window",
    "kv_heads": "num_key_value_heads",
    "inner": "intermediate_size",
    "experts": "num_experts",
    "max_positions": "max_position_embeddings",
    "exempt_header": "exempt",
}
"""Names of fields in older runs, and the names now."""


def renamed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an older run with the present names and values."""
    found = {RENAMED.get(name, name): value for name, value in stored.items()}
    if isinstance(found.get("exempt"), bool):
        found["exempt"] = "header" if found["exempt"] else 0
    if found.get("size") == "small":
        found["size"] = "mini"
    return found


@dataclass(frozen=True, kw_only=True)
class DecoderChoices(Strict):
    """Base of the classes that `choices` makes."""

    def decoder(
        self, length: int, build: Callable[..., BayesConfig] = BayesConfig, **given: Any
    ) -> BayesConfig:
        """The config of the model for training sequences of `length` tokens.

        `build` makes the config from the chosen fields, for example one of `SIZES`; `given` fields
        replace some.
        """
        chosen: dict[str, Any] = {}
        for one in FIELDS:
            value = getattr(self, SHORT.get(one.name, one.name))
            if value is not None or type(None) in get_args(one.type):
                chosen[one.name] = value
        chosen = {"max_position_embeddings": length} | chosen | given
        for name in ("ssmax_horizon", "log_temperature_start"):
            chosen[name] = tokens_of(chosen[name], length, name)
        try:
            return build(**chosen)
        except ValueError as error:
            text = str(error)
            for long, short in SHORT.items():
                text = text.replace(long, short)
            raise ValueError(text) from None


def tokens_of(given: int | str | None, length: int, name: str = "ssmax_horizon") -> int | None:
    """A length in tokens, from a number of tokens or a multiple of the training length."""
    if not isinstance(given, str):
        return given
    tokens = round(length_multiple(given, length) * length)
    if tokens < 1:
        raise ValueError(f"{name} is one length, a multiple such as 1x or a number, not {given!r}")
    return tokens


def choices(**defaults: Any) -> Any:
    """A frozen dataclass with a field for each choice; `defaults` replace `BayesConfig`'s."""
    made: list[tuple[str, Any, Any]] = []
    for one in FIELDS:
        kind, default, more = WIDER.get(one.name, (one.type, one.default, ""))
        name = SHORT.get(one.name, one.name)
        kept = field(default=defaults.pop(name, default))
        if dict in get_args(one.type):  # an absent value is {} in JSON
            kind, kept = dict[str, Any], field(default_factory=dict)
        made.append((name, Annotated[kind, Doc(HELP[one.name] + more)], kept))
    assert not defaults, f"no choices: {', '.join(defaults)}"
    return make_dataclass("Choices", made, bases=(DecoderChoices,), frozen=True, kw_only=True)


def _help(kind: type) -> dict[str, str]:
    """The string below each field of a class; Python does not keep these strings."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        one.target.id: " ".join(other.value.value.split())
        for one, other in pairwise(body.body)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(other, ast.Expr) and isinstance(other.value, ast.Constant)
        if isinstance(other.value.value, str)
    }


_THEIRS = {one.name for one in fields(PreTrainedConfig)}
FIELDS = [
    one for one in fields(BayesConfig) if one.name not in _THEIRS and one.name not in NOT_TRAINED
]
"""Fields of `BayesConfig` that a training may choose."""
HELP = _help(BayesConfig)
