"""Checkpoints: folders `step-000123`, written atomically.

Each has safetensors files and state.json, which has the hash of every other file. A checkpoint is
written under a temporary name, synced to the disk and renamed. So a killed writer leaves the
previous checkpoint unchanged, and the hashes reveal later damage.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bayesattn import files
from bayesattn.errors import DamagedCheckpointError

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk."""

    folder: Path
    step: int
    state: dict[str, Any]

    def tensors(self, name: str) -> Tensors:
        return load_file(self.folder / f"{name}.safetensors")

    def has(self, name: str) -> bool:
        return f"{name}.safetensors" in self.state["sha256"]


def save_checkpoint(
    root: Path, step: int, tensors: Mapping[str, Tensors], state: Mapping[str, Any]
) -> None:
    """Write `root/step-…`, replacing one of the same step; an error leaves no files.

    Each of the `tensors` gets its own safetensors file; the `state` is plain JSON values.
    """
    target = root / _name(step)
    temporary = root / f"{files.TEMPORARY}{_name(step)}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        hashes: dict[str, str] = {}
        for name, content in tensors.items():
            path = temporary / f"{name}.safetensors"
            save_file(content, path)
            path.chmod(0o644)  # safetensors makes files that only the owner can read
            files.sync(path)
            hashes[path.name] = files.sha256(path)
        data = {"step": step, **state, "sha256": hashes}
        with (temporary / "state.json").open("w", encoding="utf-8") as file:
            file.write(files.with_checksum(json.dumps(data, allow_nan=False)))
            file.flush()
            os.fsync(file.fileno())
        files.sync_folder(temporary)
        if target.exists():
            files.remove(target)
        temporary.rename(target)
        files.sync_folder(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def checkpoint_steps_in(root: Path) -> list[int]:
    found = (re.fullmatch(r"step-(\d{6,18})", path.name) for path in root.glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def read_state(root: Path, step: int) -> dict[str, Any]:
    """state.json of the checkpoint of `step`, which lists the other files."""
    path = root / _name(step) / "state.json"
    try:
        state = files.read_json(path)
        known = isinstance(state["sha256"], dict) and isinstance(state["step"], int)
        if not known or any(Path(name).name != name for name in state["sha256"]):
            raise ValueError("it is no state")
        return state
    except OSError as error:
        reason = f"{path.name}: {error.strerror}"
    except (ValueError, KeyError, TypeError) as error:
        reason = f"state.json cannot be read: {error}"
    raise DamagedCheckpointError(f"The checkpoint {path.parent} is damaged ({reason}).")


def read_checkpoint(root: Path, step: int) -> Checkpoint:
    """The checkpoint of `step`, after checking every hash."""
    folder, state = root / _name(step), read_state(root, step)
    for name, expected in state["sha256"].items():
        try:
            right = files.sha256(folder / name) == expected
            reason = f"the hash of {name} is wrong"
        except OSError as error:
            right, reason = False, f"{name}: {error.strerror}"
        if not right:
            raise DamagedCheckpointError(f"The checkpoint {folder} is damaged ({reason}).")
    return Checkpoint(folder, state["step"], state)


def last_good_checkpoint(root: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint; warns of each newer, damaged one."""
    for step in reversed(checkpoint_steps_in(root)):
        try:
            return read_checkpoint(root, step)
        except DamagedCheckpointError as error:
            warnings.warn(f"{error} Going back to the one before it.", stacklevel=2)
    return None


def prune_checkpoints(root: Path, keep: Collection[int], last: int = 2) -> None:
    """Remove all checkpoints but the `last` newest and those of the steps `keep`."""
    for step in checkpoint_steps_in(root)[:-last]:
        if step not in keep:
            files.remove(root / _name(step))


def model_tensors(model: nn.Module) -> Tensors:
    """Parameters and buffers by name; tied ones under their first name only."""
    found: Tensors = {}
    known: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in known:
            known.add(id(tensor))
            found[name] = tensor.detach().contiguous()
    return found


@torch.no_grad()
def load_model_tensors(model: nn.Module, tensors: Tensors) -> None:
    """Set parameters and buffers in place."""
    own = model.state_dict(keep_vars=True)
    expected = model_tensors(model).keys()
    if strange := expected ^ tensors.keys():
        raise ValueError(f"The weights are of another model: {min(strange)} is not in both.")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def _name(step: int) -> str:
    return f"step-{step:06d}"
