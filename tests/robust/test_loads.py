"""Much of everything, in bounded memory and time; docs/reliability.md has what was measured."""

import json

import pytest

from tests.robust.common import TORTURE, run

QUICK = {"metrics": (3, 40, 1), "corpus": (40, 600, 0), "attend": (300, 60, 1)}
ALL = {
    "metrics": (100, 40, 1),
    "runs": (500, 200, 8),
    "prompts": (200_000, 300, 0),
    "corpus": (1024, 600, 0),
    "attend": (10_000, 60, 0),
}
"""Of each load: how much, MiB that it may take, MiB that its page may have."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("load", ALL if TORTURE else QUICK)
def test_a_load_is_borne_in_bounded_memory(tmp_path, load):
    size, most, page = (ALL if TORTURE else QUICK)[load]
    code, out, err = run("-m", "tests.robust.loads", load, tmp_path, size, timeout=1400)
    assert code == 0, err[-3000:]
    found = json.loads(out)
    print(load, size, found)
    assert found["peak MiB"] - found["before MiB"] < most, found
    assert found.get("page MiB", 0) <= page, found
