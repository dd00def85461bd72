"""Memory that a process keeps for its next tensors."""

import subprocess
import sys

import pytest

from bayesattn.system import keep_memory

FAULTS = """
import resource, sys, torch
from bayesattn.system import keep_memory

if sys.argv[1] == "keep":
    assert keep_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step = lambda: [torch.ones(1 << 20) for _ in range(40)]  # as many tensors as a backward pass frees
step(), step(), step()
before = faults()
step()
print(faults() - before)
"""


def test_memory_of_freed_tensors_is_used_again():
    if not keep_memory():
        pytest.skip("this C library has no mallopt")

    def faults(how):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    # 40 tensors of 1,024 pages each
    assert faults("leave") > 10_000
    assert faults("keep") < 5_000
