"""Results as dataclasses and as plain JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from bayesattn.ledger.typed import from_plain, to_plain


@dataclass(frozen=True, kw_only=True)
class Part:
    value: float
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Result:
    count: int
    curve: list[float]
    pair: tuple[float, ...]
    parts: Mapping[str, Part]
    rows: Sequence[Sequence[float]]
    maybe: float | None = None


RESULT = Result(
    count=3,
    curve=[1.0, 2.0],
    pair=(0.5, 1.0),
    parts={"a": Part(value=1.5), "b": Part(value=2, name="x")},
    rows=[[1.0], [2.0]],
)


def test_what_is_written_is_what_is_read():
    stored = json.loads(json.dumps(to_plain(RESULT)))
    assert from_plain(Result, stored) == RESULT
    assert stored["parts"]["b"] == {"value": 2, "name": "x"}
    assert from_plain(Mapping[str, Part], stored["parts"]) == RESULT.parts
    assert from_plain(Any, stored) == stored


def test_numbers_of_numpy_become_plain_ones():
    assert to_plain({"a": np.float32(2.5), "b": np.arange(2), "c": True}) == {
        "a": 2.5,
        "b": [0, 1],
        "c": True,
    }


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="the measured 'value' is not finite"):
        to_plain({"x": Part(value=bad)})
    with pytest.raises(ValueError, match="the measured 'many' is not finite"):
        to_plain({"many": [1.0, bad]})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"name": "a"},
        {"value": 1.0, "name": "a", "more": 1},
        {"value": True, "name": "a"},
        {"value": "1.0", "name": "a"},
        {"value": [1.0], "name": "a"},
        [1.0, "a"],
        None,
    ],
)
def test_unknown_missing_and_other_fields_are_not_this_result(data):
    with pytest.raises(ValueError, match=r"is no|has no|needs"):
        from_plain(Part, data)


def test_what_is_wrong_is_said_by_name():
    with pytest.raises(ValueError, match="Part has no 'vlaue'; the nearest name is 'value'"):
        from_plain(Part, {"vlaue": 1.0})
    with pytest.raises(ValueError, match="Part needs 'value'"):
        from_plain(Part, {})
    with pytest.raises(ValueError, match=r"parts: value: 'x' is no float"):
        from_plain(Result, to_plain(RESULT) | {"parts": {"a": {"value": "x"}}})


def test_a_field_with_a_default_may_be_missing():
    assert from_plain(Part, {"value": 1.0}) == Part(value=1.0)


def test_tuples_choices_and_pairs():
    assert from_plain(tuple[tuple[str, int], ...], [["a", 1], ["b", 2]]) == (("a", 1), ("b", 2))
    assert from_plain(Literal["fp32", "bf16"], "bf16") == "bf16"
    for kind, data in [(tuple[str, int], ["a"]), (Literal["fp32"], "bf16"), (int, 1.5)]:
        with pytest.raises(ValueError, match="is no"):
            from_plain(kind, data)


def test_a_result_that_json_cannot_hold_is_a_mistake_in_the_claim():
    with pytest.raises(TypeError, match="a result cannot hold"):
        from_plain(set[float], [1.0])
