import numpy as np
import pytest

from bayesattn.corpora.shuffling import permute, window_starts


def keys(count, value):
    return np.full(count, value, dtype=np.uint64)


@pytest.mark.parametrize("size", [*range(1, 70), 1000, 4097])
def test_permutation_is_one(size):
    orders = [permute(np.arange(size), size, keys(size, key)) for key in (0, 1, 2**63)]
    for order in orders:
        assert sorted(order) == list(range(size))
    if size > 10:
        assert len({tuple(order) for order in orders}) == 3


def test_permutation_looks_random():
    size, trials = 64, 400
    orders = np.stack([permute(np.arange(size), size, keys(size, key)) for key in range(trials)])
    # Where the first block goes, and how far neighbours end up: uniform within 5 sigma.
    for column in (orders[:, 0], (orders[:, 1] - orders[:, 0]) % size):
        quarters = np.bincount(column // 16, minlength=4)
        assert np.abs(quarters - trials / 4).max() < 5 * np.sqrt(trials * 3 / 16)
    fixed = (orders == np.arange(size)).sum()
    assert abs(fixed - trials) < 5 * np.sqrt(trials)


@pytest.mark.parametrize(("tokens", "length"), [(10, 10), (19, 10), (20, 10), (1000, 7), (50, 1)])
def test_an_epoch_reads_every_block_once(tokens, length):
    blocks = max(1, (tokens - length + 1) // length)
    starts = window_starts(tokens, length, np.arange(5 * blocks), seed=3).reshape(5, blocks)
    for epoch in starts:
        assert epoch.min() >= 0 and epoch.max() + length <= tokens
        assert (np.diff(np.sort(epoch)) == length).all()
    if blocks > 10:
        assert len({tuple(epoch) for epoch in starts}) == 5


def test_every_shift_happens():
    starts = window_starts(19, 10, np.arange(2000), seed=0)  # one block, ten places
    counts = np.bincount(starts, minlength=10)
    assert len(counts) == 10
    assert np.abs(counts - 200).max() < 5 * np.sqrt(180)


def test_a_window_is_known_by_its_number():
    together = window_starts(10**12, 128, np.arange(100), seed=1)
    alone = [window_starts(10**12, 128, np.array([index]), seed=1)[0] for index in range(100)]
    assert together.tolist() == alone
    assert (window_starts(10**12, 128, np.arange(100), seed=2) != together).all()
