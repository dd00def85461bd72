"""Adds seeds that were measured elsewhere to a ledger, after checking them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bayesattn.errors import UserError
from bayesattn.files import TEMPORARY
from bayesattn.ledger.measured import FOLDER, Measured, objection, read
from bayesattn.ledger.study import AnyStudy


class Added(NamedTuple):
    """Result of adding the seeds of a folder."""

    new: list[Measured]
    known: list[Measured]
    """Seeds that already existed with the same numbers."""


def add_seeds(source: Path, folder: Path, find_study: Callable[[str], AnyStudy]) -> Added:
    """Copy all measurements in `source` to `folder`; none if any file is refused."""
    found = [(path, _read(path)) for path in measured_files(source)]
    added = Added([], [])
    for path, own in found:
        if problem := objection(find_study(own.claim), own):
            raise UserError(f"{path} cannot be added: {problem}.")
        added[_already_there(path, own, folder)].append(own)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for path, own in found:
        target = folder / FOLDER / f"{own.name}.json"
        if not target.exists():
            copy = target.with_name(f"{TEMPORARY}{target.name}")
            shutil.copyfile(path, copy)
            copy.replace(target)
    return added


def measured_files(source: Path) -> list[Path]:
    inside = source / FOLDER
    paths = sorted((inside if inside.is_dir() else source).glob("*.json"))
    if not paths:
        raise UserError(
            f"There are no measured seeds in {source}: name a folder that `bayesattn claims run` "
            f"wrote, or its {FOLDER}."
        )
    return paths


def _read(path: Path) -> Measured:
    try:
        return read(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no measured seed ({error}).") from None


def _already_there(path: Path, own: Measured, folder: Path) -> bool:
    target = folder / FOLDER / f"{own.name}.json"
    if not target.exists():
        return False
    if _read(target).numbers != own.numbers:
        raise UserError(
            f"Seed {own.seed} of {own.claim} exists twice with different numbers: "
            f"remove {path} or {target}."
        )
    return True
