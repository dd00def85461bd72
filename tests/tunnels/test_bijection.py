import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesattn.bits import entropy
from bayesattn.tunnels import Bijection
from tests.tunnels.oracles import (
    enumerate_permutations,
    expected_entropies,
    uniform_entropy_mae,
)

# Bits at steps 1..19 for 20 symbols.
WITHOUT = (
    "4.3219 4.2479 4.1699 4.0875 4.0 3.9069 3.8074 3.7004 3.585 3.4594 3.3219 3.1699 3.0 2.8074 "
    "2.585 2.3219 2.0 1.585 1.0"
)
WITH = (
    "4.322 4.036 3.767 3.515 3.280 3.059 2.852 2.658 2.477 2.307 2.148 1.999 1.860 1.730 1.608 "
    "1.495 1.388 1.289 1.196"
)


def numbers(text):
    return torch.tensor([float(word) for word in text.split()], dtype=torch.float64)


def test_entropies_without_replacement(generator):
    tunnel = Bijection(20, 19)
    torch.testing.assert_close(expected_entropies(tunnel), numbers(WITHOUT), rtol=0, atol=1e-4)
    bits = entropy(tunnel.sample(50, generator).posterior)
    torch.testing.assert_close(bits, expected_entropies(tunnel).expand(50, -1))


def test_entropies_with_replacement(generator):
    tunnel = Bijection(20, 19, replacement=True)
    expected = expected_entropies(tunnel)
    torch.testing.assert_close(expected, numbers(WITH), rtol=0, atol=1e-3)
    bits = entropy(tunnel.sample(20_000, generator).posterior)
    error = (bits.mean(0) - expected) / (bits.std(0) / math.sqrt(20_000)).clamp(min=1e-12)
    assert error.abs().max() < 4.5


@pytest.mark.parametrize(
    ("tunnel", "bits"),
    [
        (Bijection(20, 19), 1.1073),
        (Bijection(20, 19, replacement=True), 1.8490),
        (Bijection(10, 9), 0.9007),
        (Bijection(8, 7), 0.8144),
    ],
    ids=repr,
)
def test_entropy_error_of_the_uniform_predictor(tunnel, bits, generator):
    expected = math.log2(tunnel.alphabet) - expected_entropies(tunnel).mean().item()
    assert expected == pytest.approx(bits, abs=1e-4)
    sampled = uniform_entropy_mae(tunnel.sample(20_000, generator).posterior)
    assert sampled == pytest.approx(bits, abs=0.02 if tunnel.replacement else 1e-4)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("alphabet", [2, 3, 4, 5, 6])
def test_posterior_is_that_of_enumerating_all_permutations(alphabet, replacement, generator):
    tunnel = Bijection(alphabet, alphabet, replacement=replacement)
    batch = tunnel.sample(4, generator)
    for inputs, posterior in zip(batch.inputs.tolist(), batch.posterior, strict=True):
        keys, values = inputs[::2], [token - alphabet for token in inputs[1::2]]
        for step in range(alphabet):
            brute = enumerate_permutations(alphabet, keys[: step + 1], values[:step])
            torch.testing.assert_close(posterior[step], torch.from_numpy(brute), rtol=0, atol=1e-12)


def test_layout_separates_keys_and_values_and_hides_the_last_answer(generator):
    tunnel = Bijection(7, 5)
    batch = tunnel.sample(30, generator)
    assert batch.inputs.shape == (30, 9)
    assert tunnel.vocabulary == 14
    assert batch.scored.tolist() == [0, 2, 4, 6, 8]
    keys, values = batch.inputs[:, ::2], batch.inputs[:, 1::2]
    assert keys.max() < 7 <= values.min()
    assert torch.equal(batch.metadata["permutation"].gather(1, keys), batch.labels)
    assert torch.equal(values - 7, batch.labels[:, :-1])
    assert (batch.metadata["permutation"].sort(1).values == torch.arange(7)).all()


def test_without_replacement_no_label_was_shown_at_or_before_its_position(generator):
    batch = Bijection(8).sample(50, generator)
    for step, position in enumerate(batch.scored.tolist()):
        shown = batch.inputs[:, : position + 1]
        assert (shown != batch.labels[:, step, None] + 8).all()
    assert not batch.metadata["seen"].any()


def test_support_is_the_unseen_values(generator):
    batch = Bijection(9).sample(50, generator)
    for step in range(8):
        shown = torch.zeros(50, 9).scatter_(1, batch.labels[:, :step], 1.0)
        assert torch.equal(batch.posterior[:, step] > 0, shown == 0)


def test_a_key_that_comes_back_gives_its_known_value(generator):
    batch = Bijection(4, 12, replacement=True).sample(100, generator)
    seen, entropies = batch.metadata["seen"], entropy(batch.posterior)
    assert 0.5 < seen.double().mean() < 1
    assert (entropies[seen] == 0).all()
    assert (batch.posterior.argmax(-1) == batch.labels)[seen].all()


def test_permutations_and_keys_are_uniform_and_independent(generator):
    batch = Bijection(3, 3).sample(36_000, generator)
    code = torch.tensor([9, 3, 1])
    joint = (batch.metadata["permutation"] * code).sum(1) * 27 + (batch.inputs[:, ::2] * code).sum(
        1
    )
    counts = joint.unique(return_counts=True)[1].double()
    assert len(counts) == 36
    assert ((counts - 1000).square() / 1000).sum() < 73  # chi-squared, 35 degrees, p = 2e-4


@given(st.integers(2, 9), st.integers(1, 20), st.booleans(), st.integers(0, 10**6))
def test_information_is_never_lost(alphabet, length, replacement, seed):
    """On average each further pair leaves fewer bits, and no posterior is outside 0..log2 V."""
    if length > alphabet:
        replacement = True
    tunnel = Bijection(alphabet, length, replacement)
    batch = tunnel.sample(3, torch.Generator().manual_seed(seed))
    assert (expected_entropies(tunnel).diff() <= 1e-12).all()
    bits = entropy(batch.posterior)
    assert (bits >= 0).all() and (bits <= math.log2(alphabet) + 1e-9).all()
    torch.testing.assert_close(
        batch.posterior.sum(-1), torch.ones(3, length).double(), rtol=0, atol=1e-12
    )


def test_bad_sizes_are_refused_in_one_sentence():
    for alphabet in (1, 0, -3, 2.5, True):
        with pytest.raises(ValueError, match="alphabet must be an integer"):
            Bijection(alphabet)
    with pytest.raises(ValueError, match="length must be an integer of at least 1, not 0"):
        Bijection(4, 0)
    with pytest.raises(ValueError, match="length 21 needs more keys than the alphabet of 20 has"):
        Bijection(20, 21)
    assert Bijection(20, 21, replacement=True).positions == 41
    assert Bijection(20).length == 19
