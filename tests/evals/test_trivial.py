import math

import pytest
import torch

from bayesattn.bits import entropy
from bayesattn.evals.fidelity import constant_entropy_maes, trivial_predictors


@pytest.fixture
def posterior(generator):
    weights = torch.rand(40, 6, 5, dtype=torch.float64, generator=generator).pow(4)
    weights[:, :, 0] = 0
    return weights / weights.sum(-1, keepdim=True)


def divergence(posterior, predictor):
    return (torch.xlogy(posterior, posterior) - torch.xlogy(posterior, predictor)).sum(-1).mean()


def test_entropy_counts_zeros_as_nothing():
    rows = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
    assert entropy(rows).tolist() == [1.0, 0.0, 1.5]


def test_predictors_are_distributions_of_the_shape_of_the_posterior(posterior):
    guesses = trivial_predictors(posterior)
    for guess in guesses.values():
        assert guess.shape == posterior.shape
        torch.testing.assert_close(guess.sum(-1), torch.ones(40, 6).double())
    assert (guesses["uniform"] == 0.2).all()


def test_the_mean_is_the_best_constant(posterior, generator):
    guesses = trivial_predictors(posterior)
    best = divergence(posterior, guesses["constant"])
    for _ in range(20):
        other = guesses["constant"] + 0.02 * torch.rand(5, generator=generator)
        other = other / other.sum(-1, keepdim=True)
        assert divergence(posterior, other) > best
    own = divergence(posterior, guesses["instance"])
    assert own < best < divergence(posterior, guesses["uniform"])


def test_the_instance_predictor_sees_its_own_sequence_only(posterior):
    guess = trivial_predictors(posterior)["instance"]
    torch.testing.assert_close(guess[3, 2], posterior[3].mean(0))
    assert torch.equal(guess[3, 0], guess[3, 5])


def test_no_constant_entropy_beats_the_median(posterior):
    bits = entropy(posterior)
    candidates = torch.linspace(0, math.log2(5), 400).double()
    errors = (bits.flatten() - candidates[:, None]).abs().mean(1)
    found = constant_entropy_maes(posterior)
    assert found["constant"] <= errors.min() + 1e-12
    assert found["constant"] == pytest.approx(errors.min().item(), abs=5e-3)
    own = (bits[:, None] - candidates[:, None]).abs().mean(2).amin(1).mean().item()
    assert found["instance"] == pytest.approx(own, abs=5e-3)
