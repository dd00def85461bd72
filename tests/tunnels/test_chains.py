import torch

from bayesattn.tunnels.chains import sample_chain, sample_observations


def test_a_chain_starts_where_told_and_moves_by_its_own_matrix(generator):
    moves = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]).double()
    stay = torch.eye(3).double()
    first = torch.tensor([2, 1, 0])
    chains = sample_chain(first, torch.stack([moves, stay, moves]), 5, generator)
    assert chains.tolist() == [[2, 0, 1, 2, 0], [1, 1, 1, 1, 1], [0, 1, 2, 0, 1]]
    assert sample_chain(first, torch.stack([moves] * 3), 1, generator).tolist() == [[2], [1], [0]]


def test_moves_have_the_frequencies_of_the_matrix(generator):
    matrix = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.05, 0.9], [1 / 3, 1 / 3, 1 / 3]]).double()
    chains = sample_chain(torch.zeros(500).long(), matrix.expand(500, -1, -1), 200, generator)
    pairs = (chains[:, :-1] * 3 + chains[:, 1:]).flatten().bincount(minlength=9).double()
    pairs = pairs.view(3, 3)
    expected = pairs.sum(1, keepdim=True) * matrix
    assert ((pairs - expected).square() / expected).sum() < 26  # six degrees, p = 2e-4


def test_observations_have_the_frequencies_of_their_states(generator):
    emission = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.85, 0.05, 0.05, 0.05]]).double()
    emission = torch.stack([emission, emission.flip(0)])
    states = torch.randint(2, (2, 20_000), generator=generator)
    symbols = sample_observations(states, emission, generator)
    for row in range(2):
        counts = (states[row] * 4 + symbols[row]).bincount(minlength=8).double().view(2, 4)
        expected = counts.sum(1, keepdim=True) * emission[row]
        assert ((counts - expected).square() / expected).sum() < 26
