"""Which studies exist. A new one is one file in this folder with a class under `@register`."""

import difflib
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from bayesattn.errors import UserError
from bayesattn.ledger.study import AnyStudy

S = TypeVar("S", bound=AnyStudy)
_classes: dict[str, type[AnyStudy]] = {}


def register(study: type[S]) -> type[S]:
    """Class decorator: make a study known under the id of its claim."""
    known = _classes.setdefault(study.claim.id, study)
    if known is not study:
        raise ValueError(
            f"two studies claim the id {study.claim.id!r}: "
            f"{known.__qualname__} and {study.__qualname__}; rename one"
        )
    return study


def all_studies() -> list[AnyStudy]:
    """Every registered claim, by id."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        import_module(f"{__package__}.{module.name}")
    return [_classes[name]() for name in sorted(_classes)]


def find_study(name: str) -> AnyStudy:
    """The study of one claim; a misspelt name is answered with the nearest one."""
    studies = {study.claim.id: study for study in all_studies()}
    if name in studies:
        return studies[name]
    near = difflib.get_close_matches(name, studies, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(studies)}."
    raise UserError(f"There is no claim {name!r}: {hint}")
