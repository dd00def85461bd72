"""Which claims exist, and what was registered of them before anything was measured.

A new claim is two files of this folder: `registered/<claim-id>.toml` says what it states, how each
statement is judged, and how much each tier computes; a class under `@register("<claim-id>")`
measures it.
"""

import difflib
import pkgutil
import tomllib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from bayesattn import plugins
from bayesattn.errors import UserError
from bayesattn.ledger.statement import Claim, Statement
from bayesattn.ledger.study import AnyStudy, Recipe, Tier
from bayesattn.ledger.typed import from_plain

S = TypeVar("S", bound=AnyStudy)
FOLDER = Path(__file__).with_name("registered")
_studies: dict[str, AnyStudy] = {}


class Registered(Claim):
    """A claim's file."""

    quick: Mapping[str, Any] | None = None
    full: Mapping[str, Any] | None = None
    paper: Mapping[str, Any] | None = None
    like: str = ""
    """Another claim, whose words, statements and recipes it has but for what its file says."""


def register(name: str, folder: Path | None = None) -> Callable[[type[S]], type[S]]:
    """Class decorator: the claim `name`, whose words and recipes are in a file of `folder`.

    One class may measure several claims. By itself it has the words of the first of them.
    """

    def named(kind: type[S]) -> type[S]:
        study = kind()
        words = read_words(kind, name, (folder or FOLDER) / f"{name}.toml")
        study.claim, study.recipes = words
        known = _studies.setdefault(name, study)
        if type(known) is not kind:
            raise ValueError(
                f"two studies claim the id {name!r}: "
                f"{type(known).__qualname__} and {kind.__qualname__}; rename one"
            )
        if "claim" not in vars(kind):
            kind.claim, kind.recipes = study.claim, study.recipes
        return kind

    return named


def read_words(kind: type[AnyStudy], name: str, path: Path) -> tuple[Claim, Mapping[Tier, Recipe]]:
    """What the file at `path` says: the claim, and the recipe of each tier."""
    try:
        found = parse(name, _text(path))
        return _claim(found), recipes_of(found, kind)
    except OSError as error:
        raise UserError(f"The claim {name} needs the file {path} ({error.strerror}).") from None
    except ValueError as error:
        raise UserError(f"{path.name}: {error}.") from None


def _claim(found: Registered) -> Claim:
    return Claim(**{own.name: getattr(found, own.name) for own in fields(Claim)})


def parse(
    name: str, text: str, file: Callable[[str], str] = lambda name: _text(FOLDER / f"{name}.toml")
) -> Registered:
    """What the text of a claim's file says; a ValueError if it is no such file.

    `file` gives the text of another claim's file. One that is `like` it has tiers, a version and a
    scale of its own.
    """
    plain = _one_line(tomllib.loads(text))
    if other := plain.get("like"):
        base = _one_line(tomllib.loads(file(other)))
        scale = plain.pop("scale")
        base["statements"] = [{**own, "scale": scale} for own in base["statements"]]
        tiers = {tier: {**base.pop(tier, {}), **plain[tier]} for tier in Tier if tier in plain}
        kept = base.keys() - {*Tier, "version", "changes", "first_seed"}
        plain = {name: base[name] for name in kept} | plain | tiers
    statements = plain.get("statements", [])
    for number, own in enumerate(statements, 1):
        try:
            from_plain(Statement, own)
        except ValueError as error:
            raise ValueError(f"[[statements]] {own.get('name', number)}: {error}") from None
    return from_plain(Registered, {**plain, "id": name})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _one_line(value: Any) -> Any:
    """Every text in one line, however the file breaks it."""
    if isinstance(value, dict):
        return {key: _one_line(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_one_line(item) for item in cast(list[Any], value)]
    return " ".join(value.split()) if isinstance(value, str) else value


def recipes_of(found: Registered, study: type[AnyStudy]) -> dict[Tier, Recipe]:
    """What a claim's file says of each tier, as the study's own type of recipe."""
    recipes: dict[Tier, Recipe] = {}
    for tier in Tier:
        own = getattr(found, tier)
        if own is None:
            continue
        if found.statements and tier is not Tier.QUICK and "seeds" in own:
            raise ValueError(f"[{tier}] has no seeds: the looks of the statements say how many")
        try:
            recipes[tier] = from_plain(_recipe_type(study), own)
        except ValueError as error:
            raise ValueError(f"[{tier}] {error}") from None
    return recipes


def _recipe_type(study: type[AnyStudy]) -> type[Recipe]:
    """R of the Study[R, M] that it is."""
    for base in study.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            for argument in get_args(generic):
                if isinstance(argument, type) and issubclass(argument, Recipe):
                    return argument
    raise TypeError(f"{study.__qualname__} must say its recipe's type: Study[SomeRecipe, …]")


def claim_names() -> list[str]:
    """Names of all claims; nothing that measures them is imported."""
    return sorted(_studies.keys() | {path.stem for path in FOLDER.glob("*.toml")})


def listed() -> list[tuple[Claim, list[str]]]:
    """Every claim and its tiers, of which nothing that measures is imported."""
    known = {name: (study.claim, [*map(str, study.recipes)]) for name, study in _studies.items()}
    for name in set(claim_names()) - known.keys():
        found = parse(name, _text(FOLDER / f"{name}.toml"))
        known[name] = _claim(found), [own for own in Tier if getattr(found, own) is not None]
    return [known[name] for name in sorted(known)]


def require_claim(name: str) -> None:
    """A UserError with the nearest name if there is no such claim."""
    known = claim_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
        raise UserError(f"There is no claim {name!r}: {hint}")


def all_studies() -> list[AnyStudy]:
    plugins.load()
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        import_module(f"{__package__}.{module.name}")
    return [copy(_studies[name]) for name in sorted(_studies)]


def find_study(name: str) -> AnyStudy:
    """The study of one claim; a misspelt name is answered with the nearest one."""
    if name not in _studies:
        all_studies()
    if name not in _studies:
        require_claim(name)
        raise UserError(f"The claim {name!r} is registered, but nothing here measures it.")
    return copy(_studies[name])
