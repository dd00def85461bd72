"""Set-up for every test: no network, no window, no luck with uninitialised memory."""

import functools
import os
import signal

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# Some virtual machines announce AMX and then refuse it: bfloat16 would kill the test process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch
from torch.utils import _device

POISONED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _poison(allocate):
    """`allocate`, but real CPU memory comes back full of NaN, so reading it unwritten fails.

    Fake, meta and GPU tensors pass through: compilation and meta-device loading stay as they are.
    """

    @functools.wraps(allocate)
    def poisoned(*args, **kwargs):
        tensor = allocate(*args, **kwargs)
        if torch.compiler.is_compiling() or type(tensor) is not torch.Tensor:
            return tensor
        if tensor.device.type == "cpu" and tensor.dtype in POISONED:
            with torch.no_grad():
                tensor.fill_(float("nan"))
        return tensor

    return poisoned


def pytest_configure():
    # `with torch.device(...)` recognises constructors by identity and caches the list at first
    # use: fill that cache with the originals, which the poisoned versions still call.
    _device._device_constructors()
    torch.empty = _poison(torch.empty)
    torch.empty_like = _poison(torch.empty_like)
    torch.Tensor.new_empty = _poison(torch.Tensor.new_empty)


@pytest.fixture
def generator():
    """A random generator of the test's own, so that no test depends on another's draws."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def ctrl_c():
    """SIGINT interrupts, even if whoever started the tests ignores it, as `&` in scripts does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
