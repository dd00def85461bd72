"""Configs that ask for more than there is: refused before any memory is taken.

weights >= vocabulary · width + layers · width · (width + feed-forward width)
"""

import os
from pathlib import Path
from typing import Any

from bayesattn.models.config import MOST
from bayesattn.models.source import Source, SourceError

LARGEST = 2**31
"""Of any size in a config."""
PER_BYTE = 6
"""Weights in a byte of a file, at most: 4 are packed at 1.58 bits."""
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
)


def require_sane(config: Any, source: Source) -> None:
    """Refuse sizes that no model has, or that the weights on disk are far too few for."""
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
    if fewest(found) > PER_BYTE * stored:
        raise SourceError(
            f"The config of {source.name} asks for {fewest(found):,} weights or more, and its "
            f"files hold {stored:,} bytes: they do not belong together."
        )


def require_memory(config: Any, name: str) -> None:
    """Refuse to draw more random weights than this machine could hold, at four bytes each."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # no such system
        return
    if 4 * fewest(sizes(config)) > memory:
        raise SourceError(
            f"{name} has {fewest(sizes(config)):,} weights or more, for which this machine has no "
            "memory: choose a smaller model."
        )


def sizes(config: Any) -> dict[str, int]:
    """The sizes that a config names."""
    text = config.get_text_config(decoder=True)
    named = {name: getattr(text, name, None) for name in SIZES}
    return {name: size for name, size in named.items() if isinstance(size, int)}


def fewest(found: dict[str, int]) -> int:
    """Weights that a model of such sizes has at least."""
    width = found.get("hidden_size", 0)
    layer = width * (width + found.get("intermediate_size", 0))
    return found.get("vocab_size", 0) * width + found.get("num_hidden_layers", 0) * layer
