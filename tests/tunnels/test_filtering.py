import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesattn.bits import entropy
from bayesattn.tunnels.filtering import filter_likelihoods, filter_states
from tests.tunnels.oracles import enumerate_paths, filter_in_logs


def random_model(states, symbols, length, seed, count=1):
    rng = np.random.default_rng(seed)
    initial = rng.dirichlet(np.ones(states), count)
    transition = rng.dirichlet(np.ones(states), (count, states))
    emission = rng.dirichlet(np.ones(symbols), (count, states))
    return initial, transition, emission, rng.integers(symbols, size=(count, length))


def tensors(*arrays):
    return [torch.from_numpy(array) for array in arrays]


def test_the_published_example():
    result = filter_states(
        torch.tensor([0.5, 0.5]).double(),
        torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double(),
        torch.tensor([[0.7, 0.3], [0.1, 0.9]]).double(),
        torch.tensor([[0, 1, 0]]),
    )
    expected = [[0.875, 0.125], [0.590909, 0.409091], [0.917476, 0.082524]]
    torch.testing.assert_close(
        result.filtered[0], torch.tensor(expected).double(), rtol=0, atol=1e-6
    )
    bits = torch.tensor([0.543564, 0.976021, 0.411012]).double()
    torch.testing.assert_close(entropy(result.filtered[0]), bits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("states", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_beliefs_are_those_of_enumerating_all_paths(states, seed):
    model = random_model(states, 3, 7, seed, count=2)
    result = filter_states(*tensors(*model))
    for row in range(2):
        initial, transition, emission, observations = (part[row] for part in model)
        for step in range(7):
            filtered, predicted = enumerate_paths(
                initial, transition, emission, observations[: step + 1]
            )
            np.testing.assert_allclose(result.filtered[row, step], filtered, rtol=0, atol=1e-12)
            np.testing.assert_allclose(result.predicted[row, step], predicted, rtol=0, atol=1e-12)


def test_dynamax_agrees():
    with warnings.catch_warnings():
        # tensorflow_probability, which dynamax imports, still reads a table that jax renamed.
        warnings.filterwarnings("ignore", r"jax\.core\.\w+ is deprecated", DeprecationWarning)
        import jax
        import jax.numpy as jnp
        from dynamax.hidden_markov_model import hmm_filter

    initial, transition, emission, observations = random_model(5, 4, 60, seed=3, count=3)
    ours = filter_states(*tensors(initial, transition, emission, observations))
    with jax.enable_x64(True):
        for row in range(3):
            theirs = hmm_filter(
                jnp.asarray(initial[row]),
                jnp.asarray(transition[row]),
                jnp.log(jnp.asarray(emission[row][:, observations[row]].T)),
            )
            assert theirs.filtered_probs.dtype == np.float64
            np.testing.assert_allclose(ours.filtered[row], theirs.filtered_probs, atol=1e-12)
            np.testing.assert_allclose(ours.predicted[row, :-1], theirs.predicted_probs, atol=1e-12)


def test_log_space_gives_the_same_however_long():
    model = random_model(4, 5, 2000, seed=1)
    expected = filter_in_logs(*(part[0] for part in model))
    filtered = filter_states(*tensors(*model)).filtered[0]
    np.testing.assert_allclose(filtered, expected, rtol=0, atol=1e-12)


def test_one_model_can_be_shared_by_all_sequences():
    initial, transition, emission, _ = tensors(*random_model(3, 4, 6, seed=2))
    observations = torch.randint(4, (5, 6), generator=torch.Generator().manual_seed(0))
    shared = filter_states(initial[0], transition[0], emission[0], observations)
    own = filter_states(
        initial.expand(5, -1),
        transition.expand(5, -1, -1),
        emission.expand(5, -1, -1),
        observations,
    )
    for first, second in zip(shared, own, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-14)


def test_a_common_factor_of_the_likelihoods_cancels():
    initial, transition, _, _ = tensors(*random_model(3, 3, 1, seed=4))
    likelihoods = torch.rand(1, 8, 3, generator=torch.Generator().manual_seed(0)).double() + 0.1
    scale = torch.logspace(-100, 100, 8, dtype=torch.float64)[:, None]
    plain = filter_likelihoods(initial, transition, likelihoods)
    scaled = filter_likelihoods(initial, transition, likelihoods * scale)
    torch.testing.assert_close(plain.filtered, scaled.filtered, rtol=0, atol=1e-13)


def test_predicting_the_next_state_is_filtering_and_one_transition():
    initial, transition, _, _ = tensors(*random_model(4, 3, 1, seed=5))
    likelihoods = torch.rand(6, 9, 4, generator=torch.Generator().manual_seed(0)).double()
    found = filter_likelihoods(initial[0], transition[0], likelihoods)
    following = found.filtered @ transition[0]
    torch.testing.assert_close(found.predicted[:, 1:], following, rtol=0, atol=1e-14)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(2, 5), st.integers(1, 12), st.integers(0, 10**6))
def test_renaming_states_permutes_beliefs(states, symbols, length, seed):
    initial, transition, emission, observations = tensors(
        *random_model(states, symbols, length, seed)
    )
    order = torch.randperm(states, generator=torch.Generator().manual_seed(seed))
    plain = filter_states(initial, transition, emission, observations)
    renamed = filter_states(
        initial[:, order], transition[:, order][:, :, order], emission[:, order], observations
    )
    torch.testing.assert_close(renamed.filtered, plain.filtered[..., order], rtol=0, atol=1e-12)
    ones = torch.ones(1, length).double()
    torch.testing.assert_close(plain.filtered.sum(-1), ones, rtol=0, atol=1e-12)
    torch.testing.assert_close(plain.predicted[:, 1:].sum(-1), ones, rtol=0, atol=1e-12)


def test_the_first_observation_belongs_to_the_first_state():
    """A transition before the first emission would give another answer."""
    initial, transition, emission, observations = tensors(*random_model(3, 3, 2, seed=9))
    uniform = torch.full_like(initial, 1 / 3)
    first = filter_states(uniform, transition, emission, observations).filtered[:, 0]
    expected = emission[:, :, observations[0, 0]]
    torch.testing.assert_close(first, expected / expected.sum())


def test_an_impossible_observation_is_named():
    emission = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    half = torch.full((2, 2), 0.5)
    observations = torch.tensor([[0, 0, 0], [0, 1, 0]])
    with pytest.raises(ValueError, match="observation 1 of sequence 1 has probability 0"):
        filter_states(half[0], half, emission, observations)
