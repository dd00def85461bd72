"""Checks of arguments that every room may use."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

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


def readable(values: Tensor) -> bool:
    """Whether looking at values is cheap: no GPU has to wait for it, no compiled graph breaks."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()
