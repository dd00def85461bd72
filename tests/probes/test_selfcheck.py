"""What a self-check says: what is wrong, what is refused for it, what is in doubt."""

import math

import pytest

from bayesattn.probes.rounding import Gap
from bayesattn.probes.selfcheck import LOOSE, SelfCheck


def test_the_worst_of_each_comparison_is_kept():
    gaps = [
        ("values", Gap(0.0)),
        ("recomputed rows", Gap(0.3, 0.6)),
        ("values", Gap(1e-9)),
        ("recomputed rows", Gap(0.01, 0.011)),
        ("lengths of keys", Gap(math.nan, 1.0)),
        ("lengths of keys", Gap(0.5, 1.0)),
    ]
    found = SelfCheck.of(gaps)
    assert found.differences == pytest.approx(
        {"values": 1e-9, "recomputed rows": 0.01, "lengths of keys": math.nan}, nan_ok=True
    )
    assert found.allowed == {"recomputed rows": 0.011, "lengths of keys": 1.0}
    assert {*found.wrong} == {"values", "lengths of keys"}


def test_what_is_told():
    found = SelfCheck({"values": 0.0, "sums of rows": math.nan}, {"sums of rows": 1e-5})
    assert {*found.wrong} == {"sums of rows"} and not found.good
    assert found.to_dict()["good"] is False
    assert {*found.refused} == {"attention"} == {*found.to_dict()["refused"]}
    assert "is not what the model computes (off: sums of rows by nan)" in found.refused["attention"]
    assert found.sentence == "The self-check of the capture refused attention."
    found.require("logits")
    with pytest.raises(ValueError, match="not what it computes .off: sums of rows by nan"):
        found.require()
    assert SelfCheck({"sums of rows": 1e-6}, {"sums of rows": 1e-5}).good
    assert not SelfCheck({"values": 1e-9}, {"sums of rows": 1e-5}).good
    assert SelfCheck().sentence == "The self-check of the capture passed."


def test_what_rounding_explains_is_in_doubt_and_not_refused():
    found = SelfCheck({"recomputed rows": 0.5}, {"recomputed rows": 0.8}, slack=0.9)
    assert found.good and not found.refused and {*found.doubts} == {"attention"}
    assert "may move a weight of attention by 0.9" in found.doubts["attention"]
    assert found.sentence == "The self-check of the capture is in doubt about attention."
    assert not SelfCheck(slack=LOOSE).doubts
    wrong = SelfCheck({"rows": 0.5}, slack=0.9)
    assert wrong.refused and not wrong.doubts
