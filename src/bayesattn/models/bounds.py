"""Refuses configs with impossible sizes, before any memory is allocated.

If every layer of a model type has a dense feed-forward layer, or experts of its width, then

    weights >= vocabulary · width + 2 · layers · width · feed-forward width

for any kind of attention, and with or without a tied output layer. Other model types are not
checked.
"""

import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from bayesattn.models.config import MOST
from bayesattn.source import Source, SourceError

LARGEST = 2**31
"""Largest value of any size in a config."""
PER_BYTE = 8
"""Largest number of weights per byte of a file: a quantised weight has at least one bit."""
COUNTED = (
    *("bayesattn", "gemma", "gemma2", "gemma3_text", "gpt_neox", "granite", "llama", "mistral"),
    *("mixtral", "olmo", "olmo2", "phi", "phi3", "qwen2", "qwen3", "smollm3", "starcoder2"),
)
"""Model types that the bound holds for."""
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
)


def require_sane(config: Any, source: Source) -> None:
    """Refuse impossible sizes, and sizes that need far more weights than are on disk."""
    found = sizes(config)
    for name, size in found.items():
        if not 0 < size <= MOST.get(name, LARGEST):
            raise SourceError(
                f"The config of {source.name} says {name} {size:,}, which no model has: its "
                "config.json is damaged."
            )
    paths = source.files or tuple(Path(source.location).glob("*.safetensors"))
    if source.kind not in ("folder", "safetensors") or not paths:
        return
    stored = sum(path.stat().st_size for path in paths)
    least = fewest(config)
    if least > PER_BYTE * stored:
        try:
            for path in paths:
                safe_open(path, "pt")
        except (OSError, SafetensorError) as error:
            raise SourceError(
                f"{source.name} cannot be read ({error}): download it again."
            ) from None
        raise SourceError(
            f"The config of {source.name} asks for {least:,} weights or more, and its "
            f"files hold {stored:,} bytes: they do not belong together."
        )


def require_memory(weights: int, name: str) -> None:
    """Refuse more random weights than the memory of this machine holds, at four bytes each."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no such system
        return
    if 4 * weights > memory:
        raise SourceError(
            f"{name} has {weights:,} weights, more than fit into the memory of this machine: "
            "choose a smaller model."
        )


def sizes(config: Any) -> dict[str, int]:
    text = config.get_text_config(decoder=True)
    named = {name: getattr(text, name, None) for name in SIZES}
    return {name: size for name, size in named.items() if isinstance(size, int)}


def fewest(config: Any) -> int:
    """Least number of weights of a model with this config; 0 for unknown model types."""
    if config.get_text_config(decoder=True).model_type not in COUNTED:
        return 0
    found = sizes(config)
    table, layers = found.get("vocab_size", 0), found.get("num_hidden_layers", 0)
    return found.get("hidden_size", 0) * (table + 2 * layers * found.get("intermediate_size", 0))
