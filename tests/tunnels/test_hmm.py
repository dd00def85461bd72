import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesattn.bits import entropy
from bayesattn.evals.fidelity import constant_entropy_maes
from bayesattn.tunnels import HMM
from tests.tunnels.oracles import enumerate_paths, uniform_entropy_mae

both_headers = pytest.mark.parametrize("header", ["rows", "tokens"])


@both_headers
@pytest.mark.parametrize(("states", "symbols"), [(2, 4), (3, 3), (4, 2)])
def test_posterior_is_that_of_enumerating_all_paths(header, states, symbols, generator):
    tunnel = HMM(states, symbols, 7, header=header)
    batch = tunnel.sample(2, generator)
    for row in range(2):
        transition, emission, observations = (
            batch.metadata[name][row].numpy() for name in ("transition", "emission", "observations")
        )
        for step in (0, 1, 3, 6):
            brute, _ = enumerate_paths(
                np.full(states, 1 / states), transition, emission, observations[: step + 1]
            )
            np.testing.assert_allclose(batch.posterior[row, step], brute, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("length", "positions"), [(15, 83), (20, 93), (30, 113), (50, 153)])
def test_token_layout_is_the_published_one(length, positions, generator):
    tunnel = HMM(5, 5, length, header="tokens")
    assert (tunnel.positions, tunnel.vocabulary, tunnel.prefix) == (positions, 105, 53)
    assert tunnel.scored.tolist() == [53 + 2 * t + 1 for t in range(length)]
    batch = tunnel.sample(20, generator)
    tokens, data = batch.inputs, batch.metadata
    assert (tokens[:, [0, 26, 52]] == torch.tensor([96, 97, 98])).all()
    cents = torch.cat([tokens[:, 1:26], tokens[:, 27:52]], dim=1) + 5
    matrices = torch.cat([data["transition"].flatten(1), data["emission"].flatten(1)], dim=1)
    assert torch.equal(cents.double() / 100, matrices)
    assert (tokens[:, 53::2] == 99).all()
    assert torch.equal(tokens[:, 54::2] - 100, data["observations"])


def test_row_layout(generator):
    tunnel = HMM(3, 4, 6)
    assert (tunnel.positions, tunnel.features, tunnel.prefix) == (12, 14, 6)
    assert tunnel.scored.tolist() == list(range(6, 12))
    batch = tunnel.sample(5, generator)
    inputs, data = batch.inputs, batch.metadata
    expected = torch.zeros(5, 12, 14)
    expected[:, :3, :3] = data["transition"].log().float()
    expected[:, 3:6, 3:7] = data["emission"].log().float()
    expected[:, :3, 7:10] = expected[:, 3:6, 7:10] = torch.eye(3)
    expected[:, 6:, 10:] = torch.nn.functional.one_hot(data["observations"], 4).float()
    torch.testing.assert_close(inputs, expected)


@both_headers
@pytest.mark.parametrize("sizes", [(5, 5), (3, 6), (6, 3)])
def test_matrices_are_stochastic_on_the_grid(header, sizes, generator):
    batch = HMM(*sizes, 3, header=header).sample(500, generator)
    for name in ("transition", "emission"):
        matrix = batch.metadata[name]
        cents = (matrix * 100).round()
        assert (cents.sum(-1) == 100).all()
        assert torch.equal(cents / 100, matrix)
        assert cents.min() >= 5


def test_states_and_observations_follow_the_matrices(generator):
    """Counts of moves and emissions, in sequences that share one model, against its matrices."""
    tunnel = HMM(3, 4, 400, alpha=0.7)
    batch = tunnel.sample(40, generator)
    states, data = batch.labels, batch.metadata
    pairs = [
        ("transition", states[:, :-1], states[:, 1:], 3),
        ("emission", states, data["observations"], 4),
    ]
    for name, source, target, columns in pairs:
        rows = torch.zeros(40, 3 * columns).double()
        rows.scatter_add_(1, source * columns + target, torch.ones_like(target).double())
        rows = rows.unflatten(1, (3, columns))
        expected = rows.sum(-1, keepdim=True) * data[name]
        assert expected.min() > 0
        surprise = ((rows - expected).square() / expected).sum()
        degrees = 40 * 3 * (columns - 1)
        assert abs(surprise - degrees) < 5 * math.sqrt(2 * degrees)
    first = states[:, 0].bincount(minlength=3)
    assert len(first) == 3


def test_first_states_are_uniform(generator):
    first = HMM(4, 2, 1).sample(8000, generator).labels[:, 0].bincount()
    assert ((first - 2000).double().square() / 2000).sum() < 20  # three degrees, p = 2e-4


def test_entropies_of_the_clipped_model(generator):
    posterior = HMM(grid=None).sample(8000, generator).posterior
    bits = entropy(posterior).mean(0)
    for step, expected in ((1, 2.01), (2, 1.91), (5, 1.893), (10, 1.888), (20, 1.887)):
        assert bits[step - 1].item() == pytest.approx(expected, abs=0.02)
    assert uniform_entropy_mae(posterior) == pytest.approx(0.425, abs=0.01)
    assert constant_entropy_maes(posterior)["constant"] == pytest.approx(0.19, abs=0.01)
    assert constant_entropy_maes(posterior)["instance"] == pytest.approx(0.16, abs=0.01)


def test_entropies_on_the_grid(generator):
    """Lifting small entries to five hundredths flattens rows: about 0.01 bits less to gain."""
    posterior = HMM().sample(8000, generator).posterior
    assert entropy(posterior)[:, 4:].mean().item() == pytest.approx(1.89, abs=0.02)
    assert uniform_entropy_mae(posterior) == pytest.approx(0.415, abs=0.01)
    assert constant_entropy_maes(posterior)["constant"] == pytest.approx(0.187, abs=0.01)


def test_entropies_of_the_unclipped_model(generator):
    posterior = HMM(min_prob=0.0, grid=None).sample(8000, generator).posterior
    assert entropy(posterior)[:, 9:].mean().item() == pytest.approx(1.79, abs=0.02)
    assert uniform_entropy_mae(posterior) == pytest.approx(0.517, abs=0.01)
    assert constant_entropy_maes(posterior)["constant"] == pytest.approx(0.235, abs=0.01)


def test_entropies_stay_flat_beyond_the_horizon(generator):
    bits = entropy(HMM(length=50).sample(4000, generator).posterior).mean(0)
    assert (bits[5:] - bits[5:].mean()).abs().max() < 0.02


@both_headers
def test_encoding_gives_the_sampled_inputs_back(header, generator):
    tunnel = HMM(4, 3, 5, header=header)
    batch = tunnel.sample(10, generator)
    data = batch.metadata
    inputs = tunnel.encode(data["transition"], data["emission"], data["observations"])
    assert torch.equal(inputs, batch.inputs)


def test_the_published_example_through_the_inputs():
    tunnel = HMM(2, 2, 3)
    inputs = tunnel.encode(
        torch.tensor([[[0.9, 0.1], [0.2, 0.8]]]),
        torch.tensor([[[0.7, 0.3], [0.1, 0.9]]]),
        torch.tensor([[0, 1, 0]]),
    )
    expected = [[0.875, 0.125], [0.590909, 0.409091], [0.917476, 0.082524]]
    torch.testing.assert_close(
        tunnel.exact(inputs)[0], torch.tensor(expected).double(), rtol=0, atol=1e-6
    )


@settings(deadline=None)
@given(
    st.integers(2, 5), st.integers(2, 5), st.sampled_from(["rows", "tokens"]), st.integers(0, 10**6)
)
def test_renaming_states_permutes_the_posterior(states, symbols, header, seed):
    generator = torch.Generator().manual_seed(seed)
    tunnel = HMM(states, symbols, 6, header=header)
    batch = tunnel.sample(3, generator)
    sigma = torch.stack([torch.randperm(states, generator=generator) for _ in range(3)])
    renamed = tunnel.relabel(batch, sigma)
    index = sigma[:, None].expand(-1, 6, -1)
    torch.testing.assert_close(
        renamed.posterior.gather(-1, index), batch.posterior, rtol=0, atol=1e-12
    )
    assert torch.equal(renamed.labels, sigma.gather(1, batch.labels))
    for row in range(3):
        s = sigma[row]
        old, new = batch.metadata["transition"][row], renamed.metadata["transition"][row]
        assert torch.equal(new[s][:, s], old)
        assert torch.equal(renamed.metadata["emission"][row][s], batch.metadata["emission"][row])
    tunnel.check_leaks(renamed, generator)


def test_renaming_the_same_way_everywhere(generator):
    tunnel = HMM(3, 3, 4)
    batch = tunnel.sample(5, generator)
    same = tunnel.relabel(batch, torch.arange(3))
    assert torch.equal(same.inputs, batch.inputs)
    turned = tunnel.relabel(batch, torch.tensor([1, 2, 0]))
    back = tunnel.relabel(turned, torch.tensor([2, 0, 1]))
    assert not torch.equal(turned.inputs, batch.inputs)
    assert torch.equal(back.inputs, batch.inputs)


def test_bad_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="states must be an integer of at least 2, not 1"):
        HMM(1)
    with pytest.raises(ValueError, match="length must be an integer of at least 1, not 0"):
        HMM(length=0)
    with pytest.raises(ValueError, match="header must be one of rows, tokens, not 'columns'"):
        HMM(header="columns")
    with pytest.raises(ValueError, match="header='tokens' needs a grid"):
        HMM(header="tokens", grid=None)
    with pytest.raises(ValueError, match="min_prob must lie between 0 and 1/30"):
        HMM(states=30)


def test_matrices_off_the_grid_are_refused_in_one_sentence():
    tunnel = HMM(2, 2, 1)
    good, observations = torch.tensor([[[0.5, 0.5], [0.25, 0.75]]]), torch.tensor([[0]])
    for bad in ([[0.5, 0.5], [0.255, 0.745]], [[0.5, 0.5], [0.01, 0.99]]):
        for pair in ((torch.tensor([bad]), good), (good, torch.tensor([bad]))):
            with pytest.raises(
                ValueError, match="multiple of 0.01 and at least 0.05; use grid=None"
            ):
                tunnel.encode(*pair, observations)
    with pytest.raises(
        ValueError, match="row of emission must be positive probabilities that sum to 1"
    ):
        tunnel.encode(good, good * 1.1, observations)
    free = HMM(2, 2, 1, grid=None)
    with pytest.raises(ValueError, match="row of emission must be positive probabilities"):
        free.encode(good, torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), observations)
    with pytest.raises(ValueError, match=r"transition has the shape \[batch, 2, 2\], not \[2, 2\]"):
        tunnel.encode(good[0], good, observations)
    with pytest.raises(ValueError, match=r"observations must lie in 0..1"):
        tunnel.encode(good, good, observations + 2)
    with pytest.raises(ValueError, match=r"observations have the shape \[batch, 1\]"):
        tunnel.encode(good, good, torch.tensor([[0, 1]]))
