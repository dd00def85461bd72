"""The store of measured numbers: one file for each seed of a claim, or for each part of a seed.

    <folder>/measured/<claim>-<tier>[-part]-<seed>.json

A file records registration, versions and commit of its measurement. All verdicts come from these
files.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bayesattn import __version__
from bayesattn.files import read_json
from bayesattn.ledger.statement import Claim, Statement, short_hash
from bayesattn.ledger.study import AnyStudy, Recipe, Tier
from bayesattn.ledger.typed import Stored, from_plain

FOLDER = "measured"
"""Folder of measured seeds, beside the ledger."""


class Measured(Stored):
    """The content of a file."""

    claim: str
    tier: Tier
    part: str | None
    seed: int
    recipe: str
    """Hash of all settings that determine the numbers."""
    versions: Mapping[str, str]
    version: int
    """Version of the registration."""
    registered: Mapping[str, str]
    """Hash of each statement at the time of the measurement."""
    commit: str | None
    seconds: float
    numbers: Any

    @property
    def name(self) -> str:
        return file_name(self.claim, self.tier, self.part, self.seed)


def file_name(claim: str, tier: Tier, part: str | None, seed: int) -> str:
    """Name of the file of a measurement.

    >>> file_name("bam-retrieval", Tier.FULL, "RoPE, YaRN + SSMax", 3)
    'bam-retrieval-full-rope-yarn-ssmax-3'
    """
    words = "" if part is None else "-" + re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")
    return f"{claim}-{tier}{words}-{seed}"


def read(path: Path) -> Measured:
    """The content of a file; ValueError if it is not a measurement."""
    return from_plain(Measured, read_json(path))


def recipe_hash(recipe: Recipe) -> str:
    """Hash of the settings that determine the numbers; other settings may change."""
    fields = asdict(recipe).items()
    return short_hash({name: value for name, value in fields if name not in recipe.wishes})


def versions() -> dict[str, str]:
    """Versions of the packages that compute."""
    return {"bayesattn": __version__, "torch": torch.__version__}


def objection(study: AnyStudy, found: Measured) -> str | None:
    """Reason not to combine it with seeds that are measured now; None if there is none."""
    for name, own in versions().items():
        if found.versions.get(name) != own:
            return f"it was measured with {name} {found.versions.get(name)}, and this is {own}"
    return misfit(study, found)


def misfit(study: AnyStudy, found: Measured) -> str | None:
    """Reason why the numbers do not belong to the present claim; None if they do."""
    claim = study.claim
    if found.tier not in study.recipes or found.recipe != recipe_hash(study.recipes[found.tier]):
        return f"it was measured by another recipe than the {found.tier} tier of {claim.id} has"
    if found.tier is not Tier.QUICK:  # which gives no verdict
        for own in claim.statements:
            if not counts_for(claim, own, found):
                return f"it was measured before {claim.id}/{own.name} was registered as it is"
    try:
        study.read({found.seed: seed_numbers([found])})
    except ValueError as error:
        return f"it holds other numbers than {claim.id} measures ({error})"
    return None


def counts_for(claim: Claim, own: Statement, found: Measured) -> bool:
    """Whether a statement was registered before this measurement, or was declared `after`."""
    changes = [change for change in claim.changes if change.version > found.version]
    same = found.registered.get(own.name) == own.hash
    return same or (bool(changes) and all(change.after for change in changes))


def seed_numbers(parts: Sequence[Measured]) -> Any:
    """The numbers of one seed, measured whole or in parts."""
    if parts[0].part is None:
        return parts[0].numbers
    return {one.part: one.numbers for one in parts}


def seeds_in(
    study: AnyStudy, tier: Tier, folder: Path, seeds: Iterable[int]
) -> dict[int, list[Measured]]:
    """Measured seeds in order, up to the first that is missing or has other versions."""
    there: dict[int, list[Measured]] = {}
    by: Mapping[str, str] = {}
    for seed in seeds:
        try:
            names = [file_name(study.claim.id, tier, part, seed) for part in study.parts(tier)]
            own = [read(folder / FOLDER / f"{name}.json") for name in names]
        except OSError:
            break
        except ValueError as error:
            damaged = f"Seed {seed} of {study.claim.id} in {folder} is damaged ({error})"
            warnings.warn(f"{damaged}: neither it nor those after it count.", stacklevel=2)
            break
        by = by or own[0].versions
        if any(one.versions != by or misfit(study, one) for one in own):
            break
        there[seed] = own
    return there
