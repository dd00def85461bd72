"""Dataclasses from plain values and back: results of claims in JSON, their recipes in TOML.

They may contain numbers, strings, None, sequences, mappings and further dataclasses. Values that
are read back have the requested type, or are refused.
"""

import difflib
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import (
    Any,
    ClassVar,
    Literal,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Stored:
    """Base of stored results: every subclass is a frozen dataclass with keyword arguments only."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


def to_plain(value: Any, where: str = "result") -> Any:
    """`value` as plain JSON values; NaN and infinity are refused."""
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
    """`data`, read from JSON or TOML, as a `kind`; ValueError if it does not fit.

    A whole number is accepted for a float and stays an int, because hashes of recipes differ for 1
    and 1.0.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, str):
        return data
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, data)
    if origin is Literal:
        return _require(data in inner, data, f"one of {', '.join(map(repr, inner))}")
    if kind is None or kind is type(None):
        return _require(data is None, data, "None")
    if is_dataclass(kind):
        return _dataclass(kind, data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if hasattr(kind, "_fields"):  # a NamedTuple is stored as a list
        kinds = [*get_type_hints(kind).values()]
        _require(isinstance(data, list) and len(data) == len(kinds), data, f"list of {len(kinds)}")
        return kind(*(from_plain(own, item) for own, item in zip(kinds, data, strict=True)))
    if kind in (float, int, str, bool):
        fits = isinstance(data, float | int if kind is float else kind)
        fits = fits and (kind is bool or not isinstance(data, bool))
        return _require(fits and (kind is not float or math.isfinite(data)), data, kind.__name__)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _require(isinstance(data, dict), data, "table")
        return {inner[0](key): from_plain(inner[1], item) for key, item in data.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        _require(isinstance(data, list), data, "list")
        if origin is not tuple:
            return [from_plain(inner[0], item) for item in data]
        kinds = inner[:1] * len(data) if inner[-1] is ... else inner
        _require(len(data) == len(kinds), data, f"list of {len(kinds)}")
        return tuple(from_plain(kind, item) for kind, item in zip(kinds, data, strict=True))
    raise TypeError(f"a result cannot hold {kind!r}: use numbers, sequences, mappings, dataclasses")


def _dataclass(kind: Any, data: Any) -> Any:
    """A field with a default may be missing."""
    _require(isinstance(data, dict), data, kind.__name__)
    hints, known = get_type_hints(kind), {own.name: own for own in fields(kind)}
    for name in data:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
            raise ValueError(f"{kind.__name__} has no {name!r}; the nearest name is {near!r}")
    for name, own in known.items():
        if name not in data and own.default is own.default_factory is MISSING:
            raise ValueError(f"{kind.__name__} needs {name!r}")
    own = {name: _field(hints[name], name, item) for name, item in data.items()}
    try:
        return kind(**own)
    except TypeError as error:  # from the dataclass's own checks
        raise ValueError(f"{kind.__name__}: {error}") from None


def _field(kind: Any, name: str, data: Any) -> Any:
    try:
        return from_plain(kind, data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _first_that_fits(kinds: Sequence[Any], data: Any) -> Any:
    for kind in kinds:
        try:
            return from_plain(kind, data)
        except ValueError:
            continue
    raise ValueError(f"{data!r} is none of {', '.join(map(str, kinds))}")


def _require(fits: bool, data: Any, kind: str) -> Any:
    if not fits:
        raise ValueError(f"{data!r} is no {kind}")
    return data
