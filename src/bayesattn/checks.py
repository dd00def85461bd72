"""Checks of arguments for all packages."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from functools import cache
from types import UnionType
from typing import (
    Any,
    Literal,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import torch
from torch import Tensor

from bayesattn import plugins

T = TypeVar("T")


def at_least(name: str, value: object, minimum: int) -> int:
    """`value` if it is an integer of at least `minimum`; otherwise an error with its name."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, not {shortened(value)}")
    return value


def fields_at_least(record: object, **minima: int) -> None:
    """Check the integer fields of `record`: `fields_at_least(self, states=2, length=1)`."""
    for name, minimum in minima.items():
        at_least(name, getattr(record, name), minimum)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of the `allowed` words; otherwise an error that lists them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {shortened(value)}")
    return value


def registered(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """The entry of `registry` called `name`; otherwise an error with the nearest name."""
    if not isinstance(name, str):
        raise ValueError(f"the name of a {kind} is a text, not {shortened(name)}")
    if name not in registry:
        plugins.load()  # the name may come from a file that --import names
    if name not in registry:
        near = difflib.get_close_matches(name, registry, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown {kind} {name!r}{hint}; choose one of {', '.join(registry)}")
    return registry[name]


def unknown(kind: str, name: str, names: Iterable[str], owner: str) -> ValueError:
    """An error with the nearest of the `names` of `owner`."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"{owner} has no such field."
    return ValueError(f"unknown {kind} {name!r}: {hint}")


class Strict:
    """Base of dataclasses that refuse an unknown field and name the nearest one.

    They also refuse values of another type than the field's.
    """

    def __new__(cls, *values: Any, **given: Any) -> Self:
        names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
        for name in given:
            if name not in names:
                raise unknown("field", name, names, cls.__name__)
        check_kinds(_kinds(cls), dict(zip(names, values, strict=False)) | given)
        return super().__new__(cls)


MOST = 2**63
"""Largest number of a field of a config, which is torch's limit."""


def check_kinds(kinds: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse values that do not have the declared types of their fields."""
    for name, value in given.items():
        kind = kinds.get(name, Any)
        if not _is_a(kind, value):
            raise ValueError(f"{name} must be {_words(kind)}, not {shortened(value)}")


def shortened(value: object) -> str:
    """A value as Python writes it, shortened for a sentence."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"  # Python refuses to write very long ones
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


@cache
def _kinds(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _is_a(kind: Any, value: object) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_a(one, value) for one in inner)
    if origin is Literal:  # classes check the words themselves
        return type(value) in map(type, inner)
    if kind in (int, float):
        numbers = (int, float) if kind is float else int
        if not isinstance(value, numbers) or isinstance(value, bool):
            return False
        return isinstance(value, float) or abs(value) <= MOST
    if kind in (str, bool, type(None), None):
        return value is None if kind in (type(None), None) else isinstance(value, kind)
    if origin is tuple or origin is list:  # JSON has lists only
        listed = isinstance(value, list | tuple)
        return listed and all(_is_a(inner[0], one) for one in cast(Sequence[object], value))
    if dict in (origin, kind) or is_typeddict(kind):
        return isinstance(value, dict) and all(
            isinstance(name, str) for name in cast(dict[object, object], value)
        )
    return True


def _words(kind: Any) -> str:
    """A type in words.

    >>> _words(int | str | None), _words(Literal["a"]), _words(tuple[float, ...])
    ('an integer, a text or nothing', 'a text', 'a list of numbers')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        *some, last = dict.fromkeys(map(_words, inner))
        return f"{', '.join(some)} or {last}" if some else last
    if origin is Literal:
        return _words(type(inner[0]))
    if origin in (tuple, list):
        return "a list of numbers" if inner[0] in (int, float) else "a list"
    if dict in (origin, kind) or is_typeddict(kind):
        return "a table whose keys are texts"
    names = {int: "an integer", float: "a number", str: "a text", bool: "True or False"}
    return names.get(kind, "nothing")


def changed_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults.

    Names made from these do not change when a field is added.
    """
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(record)
    }
    return {name: value for name, value in asdict(record).items() if value != defaults[name]}


LONGEST = 2**40
"""Largest length in tokens or steps."""


def length_multiple(word: str, unit: int) -> float:
    """Length in units of "10x" (times `unit`) or of a number such as "50"; 0 if not a length."""
    if times := re.fullmatch(r"(\d+(?:\.\d+)?)x", word):
        multiple = float(times[1])
    else:
        multiple = float(word) / unit if re.fullmatch(r"\d+", word) else 0.0
    if multiple * unit > LONGEST:
        raise ValueError(f"{shortened(word)} is longer than {LONGEST:,}, which nothing here can be")
    return multiple


def readable(values: Tensor) -> bool:
    """Whether reading values is cheap: no GPU synchronisation, no break of a compiled graph.

    Inside a transform such as vmap there may be no single value to read.
    """
    return values.is_cpu and not torch.compiler.is_compiling() and not under_transforms()


def under_transforms() -> bool:
    """Whether the code runs inside a transform of torch.func."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
