"""Memory that a process keeps for its next tensors."""

import subprocess
import sys

import pytest

from bayesattn.system import keep_memory

FAULTS = """
import resource, torch
from bayesattn.system import keep_memory

faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step = lambda: [torch.ones(1 << 20) for _ in range(40)]  # as many tensors as a backward pass frees
for how in ("leave", "keep"):
    if how == "keep":
        assert keep_memory()
    step(), step(), step()
    before = faults()
    step()
    print(faults() - before)
"""


def test_memory_of_freed_tensors_is_used_again():
    if not keep_memory():
        pytest.skip("this C library has no mallopt")

    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    leave, keep = map(int, done.stdout.split())
    # 40 tensors of 1,024 pages each
    assert leave > 10_000
    assert keep < 5_000
