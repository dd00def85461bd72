import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bayesattn.tunnels import RRXOR, Mess3, Process
from tests.tunnels.oracles import enumerate_words

CASES = [Mess3(5), Mess3(5, 0.15, 0.6), Mess3(5, 0.5, 0.0), RRXOR(6), RRXOR(6, 0.3, 0.8)]
every_process = pytest.mark.parametrize("process", CASES, ids=repr)


@dataclass(frozen=True)
class Told(Process, name="told"):
    """A process whose matrices are told, as nested tuples."""

    said: tuple = ()

    @property
    def matrices(self):
        return torch.tensor(self.said, dtype=torch.float64)


@every_process
def test_beliefs_and_posteriors_are_those_of_enumerating_all_paths(process, generator):
    batch = process.sample(2, generator)
    beliefs = process.beliefs(batch.inputs)
    initial, matrices = process.stationary.numpy(), process.matrices.numpy()
    for row, said in enumerate(batch.inputs.tolist()):
        for step in range(process.length):
            belief, following = enumerate_words(initial, matrices, said[: step + 1])
            np.testing.assert_allclose(beliefs[row, step], belief, rtol=0, atol=1e-12)
            np.testing.assert_allclose(batch.posterior[row, step], following, rtol=0, atol=1e-12)


@every_process
def test_the_first_belief_is_the_one_that_moving_leaves_as_it_is(process):
    after = process.stationary @ process.matrices.sum(0)
    torch.testing.assert_close(after, process.stationary, rtol=0, atol=1e-14)
    assert process.stationary.sum().item() == pytest.approx(1, abs=1e-14)


@every_process
def test_labels_are_the_next_inputs_and_states_fit_the_tokens(process, generator):
    batch = process.sample(500, generator)
    assert torch.equal(batch.labels[:, :-1], batch.inputs[:, 1:])
    states = batch.metadata["states"]
    chances = process.matrices[batch.inputs[:, 1:], states[:, :-1], states[:, 1:]]
    assert (chances > 0).all()


@every_process
def test_states_are_distributed_as_the_beliefs_say(process, generator):
    batch = process.sample(20_000, generator)
    hits = torch.nn.functional.one_hot(batch.metadata["states"], process.states).double()
    beliefs = process.beliefs(batch.inputs)
    excess = ((hits - beliefs) * beliefs).sum(-1)
    spread = (excess.std(0) / math.sqrt(20_000)).clamp(min=1e-5)
    assert (excess.mean(0) / spread).abs().max() < 5


def test_tokens_of_rrxor_are_two_bits_and_their_exclusive_or(generator):
    batch = RRXOR(31).sample(50, generator)
    for said, states in zip(batch.inputs.tolist(), batch.metadata["states"].tolist(), strict=True):
        start = states.index(0) + 1
        for at in range(start, 28, 3):
            first, second, third = said[at : at + 3]
            assert third == first ^ second


def test_mess3_moves_and_then_shows_where_it_is():
    matrices = Mess3(x=0.1, alpha=0.7).matrices
    for token, before, after in itertools.product(range(3), repeat=3):
        moves = 0.8 if before == after else 0.1
        shows = 0.7 if token == after else 0.15
        assert matrices[token, before, after].item() == pytest.approx(moves * shows, abs=1e-15)


def test_the_next_token_of_mess3_tells_the_belief_and_that_of_rrxor_does_not(generator):
    """Rank of the linear map from beliefs to next-token posteriors."""
    assert torch.linalg.matrix_rank(Mess3().matrices.sum(2)) == 3
    assert torch.linalg.matrix_rank(RRXOR().matrices.sum(2)) == 2
    process = RRXOR()
    batch = process.sample(2000, generator)
    beliefs, posterior = process.beliefs(batch.inputs).flatten(0, 1), batch.posterior.flatten(0, 1)
    even = beliefs[(posterior[:, 0] - 0.5).abs() < 1e-12]
    assert len((even * 1e9).round().unique(dim=0)) > 3


def test_after_a_word_that_cannot_be_said_nothing_is_believed():
    process = RRXOR(5)
    said = [
        word
        for word in itertools.product((0, 1), repeat=5)
        if not process.beliefs(torch.tensor([word])).isfinite().all()
    ]
    assert said
    beliefs = process.beliefs(torch.tensor(said))
    finite = beliefs.isfinite().all(-1)
    assert finite[:, 0].all() and not finite[:, -1].any()
    assert (finite[:, 1:] <= finite[:, :-1]).all()


GOLDEN_MEAN = ((((0.5, 0.0), (1.0, 0.0))), ((0.0, 0.5), (0.0, 0.0)))
"""No two ones in a row: the last token shows the state."""
EVEN = (((0.5, 0.0), (0.0, 0.0)), ((0.0, 0.5), (1.0, 0.0)))
"""Ones come in pairs: ones alone never show how many there were."""
LAST_TWO = (
    ((0.9, 0, 0, 0), (0, 0, 0.2, 0), (0.6, 0, 0, 0), (0, 0, 0.3, 0)),
    ((0, 0.1, 0, 0), (0, 0, 0, 0.8), (0, 0.4, 0, 0), (0, 0, 0, 0.7)),
)
"""The state is the last two tokens: the last one alone does not show it."""


def test_a_process_whose_state_can_be_seen_is_refused():
    for said in (GOLDEN_MEAN, LAST_TWO):
        with pytest.raises(ValueError, match=r"last tokens of this told process show its state"):
            Told(5, said)
    with pytest.raises(ValueError, match="last tokens of this mess3 process show its state"):
        Mess3(alpha=1.0)
    assert Told(5, EVEN).states == 2


def test_a_process_whose_tokens_tell_nothing_is_refused():
    for fields in ({"alpha": 1 / 3}, {"x": 1 / 3}):
        with pytest.raises(ValueError, match="tell nothing about the next one"):
            Mess3(**fields)


def test_states_that_are_never_visited_again_do_not_hide_the_others():
    """A state that leads into the golden mean, and may stay where it is for long."""
    zeros, ones = (tuple((*row, 0.0) for row in matrix) for matrix in GOLDEN_MEAN)
    said = ((*zeros, (0.1, 0.0, 0.4)), (*ones, (0.0, 0.1, 0.4)))
    with pytest.raises(ValueError, match="show its state"):
        Told(5, said)


def test_bad_settings_are_refused_in_one_sentence():
    for fields, sentence in (
        ({"length": 0}, "length must be an integer of at least 1, not 0"),
        ({"x": 0.0}, "x must be above 0 and at most 1/2, not 0.0"),
        ({"x": 0.6}, "x must be above 0 and at most 1/2, not 0.6"),
        ({"alpha": 1.1}, "alpha is a probability between 0 and 1, not 1.1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Mess3(**fields)
    for name in ("first", "second"):
        with pytest.raises(ValueError, match=f"{name} is a probability above 0 and below 1, not 1"):
            RRXOR(**{name: 1.0})
    with pytest.raises(ValueError, match="probabilities of told must add up to 1"):
        Told(5, (((0.5, 0.4), (0.5, 0.5)),))
    with pytest.raises(ValueError, match="probabilities of told must add up to 1"):
        Told(5, (((1.5, -0.5), (0.5, 0.5)),))
    apart = (((0.5, 0.0), (0.0, 0.3)), ((0.5, 0.0), (0.0, 0.7)))
    with pytest.raises(ValueError, match="states of told fall into unconnected parts"):
        Told(5, apart)
