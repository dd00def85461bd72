"""Work that is killed with signal 9 at random moments and goes on ends as if nothing had been."""

import json

import pytest

from tests.robust.common import TORTURE, count, run

KILLS = {"tunnel": (1, 40), "language": (1, 10), "passkey": (2, 20), "claims": (2, 25)}
"""In the suite, and all of them; the tests of trainings kill 24 more."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", [*KILLS, *(["engine"] if TORTURE else [])])
def test_killed_work_ends_as_if_nobody_had_disturbed_it(tmp_path, kind):
    kills = count(*KILLS.get(kind, (0, 5)))
    code, out, err = run("-m", "tests.robust.killing", kind, tmp_path, kills, 1, timeout=1400)
    assert code == 0, err[-3000:]
    found = json.loads(out)
    assert len(found["moments"]) >= kills
    for ending in found["endings"]:
        assert ending == found["whole"]
    if TORTURE:  # they died all over the work
        assert len({json.dumps(moment) for moment in found["moments"]}) >= kills / 3
