"""Ready sizes: functions that return a `BayesConfig`, any field of which can be overridden.

    config = RECIPES["l12"](encoding="rope", prior="uniform", ssmax=False)

`l6` … `l24` are the authors' sizes (vocabulary 32,768 of the Mistral-7B-Instruct-v0.3 tokenizer,
SwiGLU of twice the width, untied embeddings, trained at 512 tokens). `nano`, `tiny` and `small`
train on a CPU in minutes; give them the vocabulary of your task.
"""

from collections.abc import Callable
from typing import Any

from bayesattn.models.config import BayesConfig


def _size(
    hidden_size: int, layers: int, heads: int, settings: dict[str, Any], **common: Any
) -> BayesConfig:
    size: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    return BayesConfig(**(size | common | settings))


_AUTHORS: dict[str, Any] = {
    "vocab_size": 32_768,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_CPU: dict[str, Any] = {"vocab_size": 64, "max_position_embeddings": 128}


def l6(**settings: Any) -> BayesConfig:
    """49M parameters."""
    return _size(512, 6, 16, settings, **_AUTHORS)


def l8(**settings: Any) -> BayesConfig:
    """98M parameters."""
    return _size(768, 8, 16, settings, **_AUTHORS)


def l12(**settings: Any) -> BayesConfig:
    """121M parameters, the model of the paper's headline."""
    return _size(768, 12, 16, settings, **_AUTHORS)


def l15(**settings: Any) -> BayesConfig:
    """275M parameters."""
    return _size(1152, 15, 24, settings, **_AUTHORS)


def l18(**settings: Any) -> BayesConfig:
    """525M parameters."""
    return _size(1536, 18, 32, settings, **_AUTHORS)


def l24(**settings: Any) -> BayesConfig:
    """1.14B parameters."""
    return _size(2048, 24, 64, settings, **_AUTHORS)


def nano(**settings: Any) -> BayesConfig:
    """0.05M parameters: learns small tasks in seconds."""
    return _size(48, 2, 4, settings, **_CPU)


def tiny(**settings: Any) -> BayesConfig:
    """0.5M parameters: learns passkeys in minutes."""
    return _size(128, 3, 8, settings, **_CPU)


def small(**settings: Any) -> BayesConfig:
    """4.0M parameters: an hour on two cores."""
    return _size(256, 6, 8, settings, **_CPU)


RECIPES: dict[str, Callable[..., BayesConfig]] = {
    recipe.__name__: recipe for recipe in (nano, tiny, small, l6, l8, l12, l15, l18, l24)
}
