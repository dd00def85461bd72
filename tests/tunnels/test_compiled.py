import sys

import numpy as np
import pytest
import torch

from bayesattn.tunnels import Bijection, compiled
from bayesattn.tunnels.bijection import eliminate


def double(numbers):
    return 2 * numbers


@pytest.fixture(autouse=True)
def forgotten():
    """No test finds what another one compiled."""
    yield
    compiled.has_numba.cache_clear()
    compiled._compile.cache_clear()


def test_large_batches_are_compiled_once():
    pytest.importorskip("numba")
    rows = torch.zeros(compiled.MANY, 3)
    loop = compiled.compiled(double, rows)
    assert loop is not None and loop is compiled.compiled(double, rows)
    assert loop is not double and loop(np.arange(3)).tolist() == [0, 2, 4]


def test_small_batches_do_not_wait_for_the_compiler():
    assert compiled.compiled(double, torch.zeros(compiled.MANY - 1, 3)) is None


def test_only_what_lies_on_a_cpu_is_given_to_a_loop():
    assert compiled.compiled(double, torch.zeros(compiled.MANY, 3, device="meta")) is None


def test_without_numba_samplers_do_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled.has_numba.cache_clear()
    assert not compiled.has_numba()
    assert compiled.compiled(double, torch.zeros(compiled.MANY, 3)) is None


@pytest.mark.parametrize("length, replacement", [(19, False), (7, False), (19, True), (80, True)])
def test_bijections_have_the_same_posterior_either_way(length, replacement, monkeypatch):
    pytest.importorskip("numba")
    tunnel = Bijection(20, length, replacement=replacement)
    batches = []
    for many in (0, 10**9):
        monkeypatch.setattr(compiled, "MANY", many)
        batches.append(tunnel.sample(300, torch.Generator().manual_seed(1)))
    loop, tensors = batches
    assert torch.equal(loop.posterior, tensors.posterior)
    assert torch.equal(loop.metadata["seen"], tensors.metadata["seen"])
    assert torch.equal(loop.inputs, tensors.inputs)
    assert loop.metadata["seen"].any() == replacement


def test_elimination_by_hand():
    keys, values = np.array([[2, 0, 2, 1]]), np.array([[1, 2, 1, 0]])
    posterior, seen = np.full((1, 4, 3), 9.0), np.ones((1, 4), dtype=bool)
    eliminate(keys, values, posterior, seen)
    third = 1 / 3
    assert posterior.tolist() == [[[third] * 3, [0.5, 0, 0.5], [0, 1, 0], [1, 0, 0]]]
    assert seen.tolist() == [[False, False, True, False]]
