"""Checks of arguments that every room may use."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def at_least(name: str, value: object, minimum: int) -> int:
    """`value` if it is an integer of at least `minimum`, an error naming it otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, not {value!r}")
    return value


def fields_at_least(record: object, **minima: int) -> None:
    """Check the integer fields of `record`: `fields_at_least(self, states=2, length=1)`."""
    for name, minimum in minima.items():
        at_least(name, getattr(record, name), minimum)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of the `allowed` words, an error naming them otherwise."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def registered(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """What `registry` holds under `name`, an error with the nearest name otherwise."""
    if name not in registry:
        near = difflib.get_close_matches(name, registry, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown {kind} {name!r}{hint}; choose one of {', '.join(registry)}")
    return registry[name]


def unknown(kind: str, name: str, names: Iterable[str], owner: str) -> ValueError:
    """An error that names the nearest of the `names` that `owner` has."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"{owner} has no such field."
    return ValueError(f"unknown {kind} {name!r}: {hint}")


class Strict:
    """Base of dataclasses that refuse an unknown field with the name of the nearest one."""

    def __new__(cls, **given: Any) -> Self:
        names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
        for name in given:
            if name not in names:
                raise unknown("field", name, names, cls.__name__)
        return super().__new__(cls)


def changed_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that do not have their default.

    What is named after these keeps its name when a field is added.
    """
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(record)
    }
    return {name: value for name, value in asdict(record).items() if value != defaults[name]}


def length_multiple(word: str, unit: int) -> float:
    """How many units "10x", or a number such as "50", is long; 0 for what is no length."""
    if times := re.fullmatch(r"(\d+(?:\.\d+)?)x", word):
        return float(times[1])
    return int(word) / unit if re.fullmatch(r"\d+", word) else 0.0


def readable(values: Tensor) -> bool:
    """Whether looking at values is cheap: no GPU has to wait for it, no compiled graph breaks.

    Under a transform such as vmap there may be no single value to look at.
    """
    return values.is_cpu and not torch.compiler.is_compiling() and not under_transforms()


def under_transforms() -> bool:
    """Whether a transform of torch.func is at work."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
