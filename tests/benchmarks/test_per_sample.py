"""The samplers against code that draws one sequence at a time: same beliefs, same distribution."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats

from bayesattn.benchmarks.per_sample import PER_SAMPLE
from bayesattn.benchmarks.per_sample.matrices import discretise
from bayesattn.tunnels import HMM, Bijection, GroupFilter, Hops, Recall, Revision, StickyChain

TUNNELS = {
    "bijection": Bijection(8, 7),
    "all keys": Bijection(6, 6),
    "replacement": Bijection(6, 9, replacement=True),
    "hmm": HMM(),
    "hmm off the grid": HMM(3, 4, 6, grid=None, min_prob=0.02, alpha=0.7),
    "hmm tokens": HMM(3, 4, 8, header="tokens"),
    "recall": Recall(pairs=6, queries=3, filler=4, keys=12, values=9),
    "revision": Revision(hypotheses=5),
    "sticky": StickyChain(length=30),
    "sticky without noise": StickyChain(length=8, noise=0.0),
    "hops direct": Hops(6, 4, 4, "direct"),
    "hops cot": Hops(6, 5, 3, "cot"),
    "hops filler": Hops(5, 4, 4, "filler"),
    "hops shuffled": Hops(5, 4, 3, "shuffled"),
    "hops short": Hops(5, 6, 2, "short"),
    "group": GroupFilter(length=5),
    "group product": GroupFilter("S3", 5, 0.7, "product", "generators"),
    "group argmax": GroupFilter("Z5", 5, scratch="argmax"),
    "group filler": GroupFilter("S4", 3, scratch="filler"),
}
each = pytest.mark.parametrize("name", TUNNELS)
DRAWN = 400
LIMIT = 1e-3  # a false alarm once in a thousand seeds; the seeds here are fixed


class Drawn(NamedTuple):
    inputs: np.ndarray
    posterior: np.ndarray
    labels: np.ndarray


def vectorised(tunnel, count: int, seed: int = 0) -> Drawn:
    batch = tunnel.sample(count, torch.Generator().manual_seed(seed))
    return Drawn(batch.inputs.numpy(), batch.posterior.numpy(), batch.labels.numpy())


def one_by_one(tunnel, count: int, seed: int = 0) -> Drawn:
    plain, rng = PER_SAMPLE[tunnel.name](tunnel), np.random.default_rng(seed)
    drawn = [plain.sample(rng) for _ in range(count)]
    return Drawn(*(np.stack(part) for part in zip(*drawn, strict=True)))


def entropies(posterior: np.ndarray) -> np.ndarray:
    return -np.where(posterior > 0, posterior * np.log2(np.maximum(posterior, 1e-300)), 0).sum(-1)


def spread(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def p_value(first: Drawn, second: Drawn) -> float:
    """Smallest p of many two-sample tests, times their number."""
    found = []
    columns = [(drawn.inputs.reshape(len(drawn.inputs), -1)) for drawn in (first, second)]
    for column in spread(columns[0].shape[1], 60):
        one, other = columns[0][:, column], columns[1][:, column]
        found.append(_compare(one, other))
    for step in spread(first.labels.shape[1], 8):
        found.append(_compare(first.labels[:, step], second.labels[:, step]))
        found.append(_compare(entropies(first.posterior[:, step]).round(9),
                              entropies(second.posterior[:, step]).round(9)))  # fmt: skip
        found.append(_compare(_of_label(first, step), _of_label(second, step)))
    return min(1.0, min(found) * len(found))


def _of_label(drawn: Drawn, step: int) -> np.ndarray:
    """How likely the truth was: labels and posteriors together."""
    chosen = drawn.posterior[:, step]
    return np.take_along_axis(chosen, drawn.labels[:, step, None], 1)[:, 0].round(9)


def _compare(one: np.ndarray, other: np.ndarray) -> float:
    values = np.unique(np.concatenate([one, other]))
    if len(values) == 1:
        return 1.0
    if len(values) > 30:
        return float(stats.ks_2samp(one, other, method="asymp").pvalue)
    counts = [[np.count_nonzero(drawn == value) for value in values] for drawn in (one, other)]
    return float(stats.chi2_contingency(counts, correction=False).pvalue)


@each
def test_posterior_of_the_samplers_own_inputs(name):
    tunnel = TUNNELS[name]
    plain, drawn = PER_SAMPLE[tunnel.name](tunnel), vectorised(tunnel, 50)
    exact = tunnel.exact(torch.from_numpy(drawn.inputs)).numpy()
    for inputs, posterior, again in zip(drawn.inputs, drawn.posterior, exact, strict=True):
        expected = plain.posterior(inputs)
        np.testing.assert_allclose(posterior, expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(again, expected, rtol=0, atol=1e-10)


@each
def test_posterior_of_one_by_one_inputs(name):
    """The same inputs in both directions: layout, dtype and posterior are the tunnel's own."""
    tunnel = TUNNELS[name]
    drawn, ours = one_by_one(tunnel, 20), vectorised(tunnel, 20)
    assert drawn.inputs.dtype == ours.inputs.dtype
    assert drawn.inputs.shape == ours.inputs.shape
    assert drawn.labels.shape == ours.labels.shape
    exact = tunnel.exact(torch.from_numpy(drawn.inputs)).numpy()
    rounding = 1e-5 if "off the grid" in name else 1e-10  # off the grid, features are rounded
    np.testing.assert_allclose(drawn.posterior, exact, rtol=0, atol=rounding)


@each
def test_equal_in_distribution(name):
    tunnel = TUNNELS[name]
    assert p_value(one_by_one(tunnel, DRAWN), vectorised(tunnel, 10 * DRAWN)) > LIMIT


@each
@pytest.mark.parametrize("draw, count", [(vectorised, 20_000), (one_by_one, DRAWN)])
def test_labels_follow_the_posterior(name, draw, count):
    """Each outcome comes up as often as expected: z of label minus posterior, summed by sequence.

    Sharper than two samples, since nothing but the labels is random.
    """
    drawn = draw(TUNNELS[name], count)
    came = np.eye(drawn.posterior.shape[-1])[drawn.labels]
    surplus = (came - drawn.posterior).sum(1)
    error = surplus.std(0) / np.sqrt(count)
    assert (np.abs(surplus.mean(0)) <= 4 * error + 1e-9).all()


@pytest.mark.parametrize(
    "name, other",
    [
        ("hmm", HMM(alpha=1.5)),
        ("hmm", HMM(min_prob=0.03)),
        ("sticky", StickyChain(length=30, stay=0.3498)),
        ("sticky", StickyChain(length=30, noise=1.1)),
    ],
)
def test_another_distribution_is_noticed(name, other):
    drawn = one_by_one(TUNNELS[name], DRAWN)
    assert p_value(drawn, vectorised(other, 10 * DRAWN)) < LIMIT


@pytest.mark.parametrize("name", ["replacement", "hmm", "revision", "hops cot", "group"])
def test_labels_of_other_sequences_are_noticed(name):
    """Each column alone looks right; labels and posteriors together do not."""
    drawn = vectorised(TUNNELS[name], 10 * DRAWN)
    moved = drawn._replace(labels=np.roll(drawn.labels, 1, axis=0))
    assert p_value(one_by_one(TUNNELS[name], DRAWN), moved) < LIMIT


def test_equal_distributions_rarely_alarm():
    tunnel = TUNNELS["hmm tokens"]
    pairs = [(vectorised(tunnel, 400, s), vectorised(tunnel, 4000, 99 + s)) for s in range(20)]
    assert min(p_value(*pair) for pair in pairs) > LIMIT


@pytest.mark.parametrize(
    "row, expected",
    [
        ([0.25, 0.25, 0.5], [25, 25, 50]),
        ([0.336, 0.336, 0.328], [33, 33, 34]),  # 34 + 34 + 33: one too many, from a largest
        ([0.333, 0.333, 0.334], [33, 33, 34]),
        ([0.0, 0.5, 0.5], [5, 47, 48]),  # five too many, from the two large ones in turn
        ([0.1149, 0.4428, 0.4423], [12, 44, 44]),  # 11 + 44 + 44: one missing, to the smallest
    ],
)
def test_discretise(row, expected):
    found = discretise(np.array(row), 0.01, 0.05) * 100
    assert sorted(found.round(9).tolist()) == sorted(expected)
