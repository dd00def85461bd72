"""What a claim measured, as a dataclass and as plain JSON.

A result may hold numbers, strings, None, sequences, mappings and further dataclasses. What is read
back has the type that was asked for, or is refused.
"""

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import numpy as np


def to_plain(value: Any, where: str = "result") -> Any:
    """`value` as JSON can hold it; NaN and infinity are refused."""
    if value is None or isinstance(value, str | bool):
        return value
    if is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name), f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {str(key): to_plain(item, str(key)) for key, item in items}
    if isinstance(value, Sequence | np.ndarray):
        return [to_plain(item, where) for item in cast(Sequence[Any], value)]
    number = int(value) if isinstance(value, int | np.integer) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"the measured {where!r} is not finite: {value}")
    return number


def from_plain(kind: Any, data: Any) -> Any:
    """`data`, read from JSON, as a `kind`; a ValueError if it is no such thing."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, str):
        return data
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, data)
    if kind is None or kind is type(None):
        return _require(data is None, data, kind)
    if is_dataclass(kind):
        return _dataclass(kind, data)
    if kind in (float, int, str, bool):
        fits = isinstance(data, float | int if kind is float else kind)
        return _require(fits, data, kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _require(isinstance(data, dict), data, kind)
        return {inner[0](key): from_plain(inner[1], item) for key, item in data.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        _require(isinstance(data, list), data, kind)
        items = [from_plain(inner[0], item) for item in data]
        return tuple(items) if origin is tuple else items
    raise TypeError(f"a result cannot hold {kind!r}: use numbers, sequences, mappings, dataclasses")


def _dataclass(kind: Any, data: Any) -> Any:
    _require(isinstance(data, dict), data, kind)
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}
    if set(data) != names:
        raise ValueError(f"{kind.__name__} has the fields {sorted(names)}, not {sorted(data)}")
    return kind(**{name: from_plain(hints[name], data[name]) for name in data})


def _first_that_fits(kinds: Sequence[Any], data: Any) -> Any:
    for kind in kinds:
        try:
            return from_plain(kind, data)
        except ValueError:
            continue
    return _require(False, data, kinds)


def _require(fits: bool, data: Any, kind: Any) -> Any:
    if not fits:
        raise ValueError(f"{data!r} is no {kind}")
    return data
