"""Work that is killed with signal 9 at random moments and goes on ends as if nothing had been."""

import json

import pytest

from tests.robust.common import TORTURE, run

QUICK = {"tunnel": 2, "language": 1, "passkey": 1, "claims": 2}
ALL = {"tunnel": 40, "language": 10, "passkey": 20, "claims": 25, "engine": 5}
"""The tests of trainings kill 24 more."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kills", [{k: n} for k, n in ALL.items()] if TORTURE else [QUICK], ids=str)
def test_killed_work_ends_as_if_nobody_had_disturbed_it(tmp_path, kills):
    words = [f"{kind}={number}" for kind, number in kills.items()]
    code, out, err = run("-m", "tests.robust.killing", tmp_path, 1, *words, timeout=1400)
    assert code == 0, err[-3000:]
    for kind, found in json.loads(out).items():
        assert len(found["moments"]) >= kills[kind]
        for ending in found["endings"]:
            assert ending == found["whole"], kind
        if TORTURE:  # they died all over the work
            assert len({json.dumps(moment) for moment in found["moments"]}) >= kills[kind] / 3
