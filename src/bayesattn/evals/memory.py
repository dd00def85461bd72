"""Memory of a long prompt, and the largest possible chunks."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (configs of transformers have no types)

import re
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from bayesattn.evals.room import MARKS
from bayesattn.system import GIBIBYTE

MEMORY = 2 * GIBIBYTE
"""Largest memory for reading, besides the model."""
LARGEST_CHUNK = 4096
"""Largest chunk: attention is not faster with more queries at once."""
_FEWEST = 16  # tokens; with smaller chunks a prompt would take days
_FIXED = 96 << 20  # scratch of kernels, and memory that allocators keep
# Hidden states in memory at once in a layer: residual, normed, q, k, v, attended, projected, spare.
_STATES = 8


def config_of(model: PreTrainedModel) -> Any:
    return model.config.get_text_config(decoder=True)


def chunk_size(
    model: PreTrainedModel, batch: int, tokens: int, *, every: bool, memory: int = MEMORY
) -> int:
    """Largest number of tokens to read at once with caches and states within `memory` bytes.

    `batch` sequences of so many `tokens`, answer included, are read together. `every`: logits are
    needed after every token, not after a few.
    """
    config = config_of(model)
    size = model.dtype.itemsize
    heads, hidden = config.num_attention_heads, config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    states = size * (_STATES * hidden + 3 * inner)
    logits = 2 * 4 * config.vocab_size if every else 0
    spare = memory - _FIXED - batch * cache_bytes(model, tokens)
    # a table of the prior in each head, and copies of it
    spare -= 16 * heads * tokens
    chunk = int(spare // (batch * (states + logits + tokens * _bytes_per_pair(model, heads))))
    if chunk < min(_FEWEST, tokens):
        least = (memory - spare + _FEWEST * batch * states) / GIBIBYTE
        raise ValueError(
            f"{tokens:,} tokens need about {least:.1f} GiB for keys and values, more than the "
            f"{memory / GIBIBYTE:.1f} GiB allowed; allow more memory or take shorter prompts"
        )
    if whole_only(model):
        if chunk < tokens:
            raise ValueError(
                f"this model's rotary encoding depends on the length, so its {tokens:,} tokens "
                f"must be read at once, and {memory / GIBIBYTE:.1f} GiB are not enough for that"
            )
        return tokens
    chunk = min(chunk, LARGEST_CHUNK)
    return tokens if tokens <= chunk else chunk // 256 * 256 or chunk


def cache_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Bytes of keys and values of so many tokens, and of marked windows."""
    config = config_of(model)
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    kept = (tokens if size is None else min(tokens, size * MARKS) for size in windows(config))
    return 2 * sum(kept) * kv_heads * width * model.dtype.itemsize


def windows(config: Any) -> list[int | None]:
    """Window of each layer with attention, for bayesattn models; None for all keys."""
    if config.model_type != "bayesattn":
        return [None] * config.num_hidden_layers
    return config.windows()[: config.num_attending]


def whole_only(model: PreTrainedModel) -> bool:
    """Whether the prompt must be read in one piece (dynamic NTK, LongRoPE).

    Angles of these encodings depend on the length, and cached keys keep the angles of their call.
    """
    config = config_of(model)
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("rope_type") in ("dynamic", "longrope")


def longest_context(model: PreTrainedModel) -> int | None:
    """Number of learned positions of the model; None if there is no such limit."""
    config = config_of(model)
    limit: int | None = getattr(config, "max_position_embeddings", None)
    if limit is None:
        return None
    if config.model_type == "bayesattn":
        return limit if config.encoding == "learned" else None
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and re.search(r"wpe|position", name):
            return limit
    return None


def check_length(model: PreTrainedModel, tokens: int) -> None:
    limit = longest_context(model)
    if limit is not None and tokens > limit:
        raise ValueError(
            f"this model has learned positions for {limit:,} tokens and cannot read {tokens:,}; "
            "ask for shorter lengths"
        )


def _bytes_per_pair(model: PreTrainedModel, heads: int) -> int:
    """Bytes for each pair of query and key."""
    config = config_of(model)
    eager = config._attn_implementation == "eager" or getattr(config, "kernel", None) == "dense"
    if eager:
        return 12 * heads  # scores, posterior and one temporary, in float32
    if config.model_type == "bayesattn" and model.device.type == "cpu":
        return 0  # the strided kernel writes no matrix
    return 8  # a boolean mask, and one of numbers
