"""Ready sizes of the decoder: the authors', and smaller ones that train on a CPU."""

from collections.abc import Callable
from typing import Any

from bayesattn.models.config import BayesConfig


def _size(hidden_size: int, layers: int, heads: int, **common: Any) -> Callable[..., BayesConfig]:
    """A function that makes a config of this size; it takes further settings."""
    size: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    return lambda **settings: BayesConfig(**(common | size | settings))


_CPU: dict[str, Any] = {"vocab_size": 64, "max_position_embeddings": 128}
_AUTHORS: dict[str, Any] = {
    "vocab_size": 32_768,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SIZES: dict[str, Callable[..., BayesConfig]] = {
    "nano": _size(48, 2, 4, **_CPU),  # 0.05M parameters: learns small tasks in seconds
    "tiny": _size(128, 3, 8, **_CPU),  # 0.5M: learns passkeys in minutes
    "mini": _size(256, 6, 8, **_CPU),  # 4.0M: an hour on two cores
    "l6": _size(512, 6, 16, **_AUTHORS),  # 49M
    "l8": _size(768, 8, 16, **_AUTHORS),  # 98M
    "l12": _size(768, 12, 16, **_AUTHORS),  # 121M, the model of the paper's headline
    "l15": _size(1152, 15, 24, **_AUTHORS),  # 275M
    "l18": _size(1536, 18, 32, **_AUTHORS),  # 525M
    "l24": _size(2048, 24, 64, **_AUTHORS),  # 1.14B
}
"""Ready sizes, any field of which can be overridden: `SIZES["l12"](encoding="rope", ssmax=False)`.

`l6` to `l24` are the authors' (the vocabulary of the Mistral-7B-Instruct-v0.3 tokenizer, SwiGLU of
twice the width, untied embeddings, trained at 512 tokens). The others train on a CPU; give them the
vocabulary of your task.
"""
