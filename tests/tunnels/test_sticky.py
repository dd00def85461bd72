import itertools
import math

import numpy as np
import pytest
import torch

from bayesattn.tunnels import StickyChain


def test_the_row_of_the_matrix():
    chain = StickyChain()
    row = torch.tensor([0.3, 0.1787, 0.0894, 0.0596, 0.0447, 0.0596, 0.0894, 0.1787]).double()
    for symbol, actual in enumerate(chain.transition):
        torch.testing.assert_close(actual, row.roll(symbol), rtol=0, atol=5e-5)
    torch.testing.assert_close(chain.transition.sum(1), torch.ones(8).double())
    torch.testing.assert_close(chain.transition.sum(0), torch.ones(8).double())
    assert torch.equal(chain.transition.diagonal(), torch.full((8,), 0.3, dtype=torch.float64))


def test_conditional_entropy():
    assert StickyChain().conditional_entropy == pytest.approx(2.71696, abs=1e-5)
    assert StickyChain().conditional_entropy * math.log(2) == pytest.approx(1.88325, abs=1e-5)


def test_paths_stay_as_often_as_stated(generator):
    """The published generator stayed with probability 0.35 instead of 0.30."""
    path = StickyChain(length=500).sample(200, generator).metadata["path"]
    moves = (path.diff(dim=1) % 8).flatten().bincount(minlength=8).double()
    expected = StickyChain().transition[0] * moves.sum()
    assert ((moves - expected).square() / expected).sum() < 29  # seven degrees, p = 1e-4
    first = path[:, 0].bincount(minlength=8)
    assert first.min() > 5


@pytest.mark.parametrize("noise", [0.4, 1.0, 3.0])
def test_posterior_is_that_of_enumerating_all_paths(noise, generator):
    chain = StickyChain(symbols=3, stay=0.5, length=5, width=2, noise=noise, means_seed=3)
    batch = chain.sample(3, generator)
    transition, means = chain.transition.numpy(), chain.means.double().numpy()
    for inputs, posterior in zip(batch.inputs.double().numpy(), batch.posterior, strict=True):
        for step in range(5):
            brute = np.zeros(3)
            for path in itertools.product(range(3), repeat=step + 2):
                prior = math.prod(transition[i, j] for i, j in itertools.pairwise(path))
                gaps = inputs[: step + 1] - means[list(path[:-1])]
                brute[path[-1]] += prior * math.exp(-(gaps**2).sum() / (2 * noise**2))
            np.testing.assert_allclose(posterior[step], brute / brute.sum(), rtol=0, atol=1e-12)


def test_the_next_symbol_follows_from_the_belief_by_one_move(generator):
    chain = StickyChain(symbols=5, length=6, width=3)
    batch = chain.sample(4, generator)
    expected = chain.beliefs(batch.inputs) @ chain.transition
    torch.testing.assert_close(batch.posterior, expected, rtol=0, atol=1e-14)


def test_no_sequence_is_no_mistake():
    chain = StickyChain(length=7, width=3)
    assert chain.exact(torch.zeros(0, 7, 3)).shape == (0, 7, 8)


def test_an_observation_that_no_path_explains_is_named(generator):
    chain = StickyChain(symbols=4, stay=1.0, noise=0.0, length=3)
    inputs = chain.sample(2, generator).inputs
    inputs[1, 2] = next(mean for mean in chain.means if not torch.equal(mean, inputs[1, 0]))
    with pytest.raises(ValueError, match="observation 2 of sequence 1 has probability 0"):
        chain.exact(inputs)


def test_without_noise_the_posterior_is_a_row_of_the_matrix(generator):
    chain = StickyChain(noise=0.0, length=30)
    batch = chain.sample(20, generator)
    expected = chain.transition[batch.metadata["path"][:, :-1]]
    torch.testing.assert_close(batch.posterior, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(batch.inputs, chain.means[batch.metadata["path"][:, :-1]])


def test_observations_are_means_and_noise(generator):
    chain = StickyChain(noise=0.5, length=200, width=4)
    batch = chain.sample(100, generator)
    noise = (batch.inputs - chain.means[batch.metadata["path"][:, :-1]]) / 0.5
    assert noise.mean().abs() < 0.02
    assert (noise.std() - 1).abs() < 0.02
    assert torch.equal(batch.labels, batch.metadata["path"][:, 1:])


def test_means_are_fixed_by_their_seed():
    assert torch.equal(StickyChain().means, StickyChain(length=7).means)
    assert not torch.equal(StickyChain().means, StickyChain(means_seed=1).means)


def test_far_outliers_do_not_underflow():
    chain = StickyChain(length=3, noise=0.01)
    posterior = chain.exact(torch.full((1, 3, 20), 1e4))
    torch.testing.assert_close(posterior.sum(-1), torch.ones(1, 3).double())


def test_bad_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="stay is a probability between 0 and 1, not 1.5"):
        StickyChain(stay=1.5)
    with pytest.raises(ValueError, match="noise must be 0 or positive, not -1"):
        StickyChain(noise=-1)
    with pytest.raises(ValueError, match="symbols must be an integer of at least 2, not 1"):
        StickyChain(symbols=1)
