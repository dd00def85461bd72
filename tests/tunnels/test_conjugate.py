"""Closed forms beside sums over parameters: integrals on a grid, and enumerated hidden labels."""

import itertools
import math

import pytest
import torch
from scipy.integrate import quad
from scipy.special import beta as beta_function

from bayesattn.tunnels import Dice, Labels, Markov


def by_integration(shown, concentration):
    """P(next = 0 | shown) of a coin, ∫ p L(p) prior(p) dp / ∫ L(p) prior(p) dp."""
    zeros = shown.count(0)
    ones = len(shown) - zeros

    def density(p):
        prior = (p * (1 - p)) ** (concentration - 1) / beta_function(concentration, concentration)
        return p**zeros * (1 - p) ** ones * prior

    return quad(lambda p: p * density(p), 0, 1)[0] / quad(density, 0, 1)[0]


@pytest.mark.parametrize("concentration", [1.0, 0.5, 3.0])
def test_a_coin_is_an_integral_over_its_bias(concentration):
    for shown in itertools.product(range(2), repeat=4):
        exact = Dice(4, 2, concentration).exact(torch.tensor([shown]))[0]
        for step in range(4):
            truth = by_integration(shown[: step + 1], concentration)
            assert float(exact[step, 0]) == pytest.approx(truth, abs=1e-6)


def test_a_die_of_three_faces_is_a_mean_over_chances():
    concentration = torch.full((3,), 0.8, dtype=torch.float64)
    torch.manual_seed(0)
    chances = torch.distributions.Dirichlet(concentration).sample((400_000,))
    shown = [0, 2, 2, 1, 2]
    weights = torch.stack([chances[:, x] for x in shown]).prod(0)
    truth = (weights[:, None] * chances).sum(0) / weights.sum()
    exact = Dice(5, 3, 0.8).exact(torch.tensor([shown]))[0, -1]
    torch.testing.assert_close(exact, truth, atol=3e-3, rtol=0)


def test_a_chain_is_a_mean_over_transition_matrices():
    torch.manual_seed(0)
    row = torch.full((2, 2), 0.7, dtype=torch.float64)
    matrices = torch.distributions.Dirichlet(row).sample((400_000,))
    shown = [0, 1, 1, 0, 1, 0, 0]
    weights = torch.stack([matrices[:, a, b] for a, b in itertools.pairwise(shown)]).prod(0)
    truth = (weights[:, None] * matrices[:, shown[-1]]).sum(0) / weights.sum()
    exact = Markov(7, 2, 0.7).exact(torch.tensor([shown]))[0, -1]
    torch.testing.assert_close(exact, truth, atol=3e-3, rtol=0)


@pytest.mark.parametrize("alpha", [0.6, 0.9])
def test_labels_are_a_sum_over_both_hidden_ones(alpha):
    for shown in itertools.product(range(2), repeat=5):
        joint = [
            math.prod([0.5, *(alpha if x == hidden else 1 - alpha for x in shown)])
            for hidden in (0, 1)
        ]
        first = (joint[0] * alpha + joint[1] * (1 - alpha)) / (joint[0] + joint[1])
        exact = Labels(5, alpha).exact(torch.tensor([shown]))[0, -1]
        assert float(exact[0]) == pytest.approx(first, abs=1e-12)


def test_a_chain_counts_moves_of_the_present_state_only():
    exact = Markov(4, 3, 1.0).exact(torch.tensor([[0, 1, 0, 2]]))[0]
    torch.testing.assert_close(exact[2], torch.tensor([1.0, 2.0, 1.0]).double() / 4)
    torch.testing.assert_close(exact[3], torch.ones(3).double() / 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dice(faces=1), "faces"),
        (lambda: Dice(concentration=0.0), "alpha must be positive"),
        (lambda: Markov(states=1), "states"),
        (lambda: Labels(alpha=0.5), "alpha must lie between 0.5 and 1"),
    ],
)
def test_bad_fields_are_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
