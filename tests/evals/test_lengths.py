"""Other lengths than the training's."""

import pytest
import torch

from bayesattn.evals.fidelity import measure_stretched
from bayesattn.evals.lengths import stretch, token_lengths
from bayesattn.tunnels import HMM, Bijection, Recall
from tests.evals.toys import uniform


@pytest.mark.parametrize(
    "length, steps", [("10x", 50), ("2.5x", 12), ("1x", 5), ("0.4x", 2), ("7", 7), ("5", 5)]
)
def test_multiples_and_numbers_of_steps(length, steps):
    assert stretch(HMM(2, 2, 5, min_prob=0.1), length).horizon == steps


@pytest.mark.parametrize("length", ["", "x", "0x", "0", "-3", "ten", "3y", "1e3", "10 x"])
def test_anything_else_is_refused(length):
    with pytest.raises(ValueError, match="a multiple such as 10x or a number of steps, not"):
        stretch(HMM(), length)


def test_a_tunnel_says_itself_what_is_impossible():
    with pytest.raises(ValueError, match="alphabet of 6"):
        stretch(Bijection(6, 5), "10x")


RECALL = Recall(pairs=4, queries=2, filler=4, keys=8, values=8)


def test_recall_has_no_more_steps_only_more_distance():
    assert stretch(RECALL, "3x").filler == 12
    with pytest.raises(ValueError, match="recall always has 2 steps; give a multiple such as 10x"):
        stretch(RECALL, "20")


def test_further_steps_are_beyond_the_horizon():
    tunnel = HMM(3, 3, 4)
    fidelity = measure_stretched(uniform(tunnel), tunnel, tunnel.stretched(3), sequences=20)
    assert fidelity.parts["inside"].steps == range(1, 5)
    assert fidelity.parts["beyond"].steps == range(5, 13)
    shorter = measure_stretched(uniform(tunnel), tunnel, tunnel.stretched(0.5), sequences=20)
    assert list(shorter.parts) == ["inside"]


def test_the_same_steps_further_apart_are_beyond_as_a_whole():
    def short_sighted(inputs, scored):
        """Right as long as the input is no longer than in training."""
        if inputs.shape[1] > RECALL.positions:
            return torch.zeros(len(inputs), 2, 8)
        return RECALL.exact(inputs).log()

    fidelity = measure_stretched(short_sighted, RECALL, stretch(RECALL, "3x"), sequences=50)
    inside, beyond = (fidelity.parts[name] for name in ("inside", "beyond"))
    assert inside.steps == beyond.steps == range(1, 3)
    assert inside.estimates["model"]["recall"].value == 1
    assert beyond.estimates["model"]["recall"].value < 0.5
    assert fidelity.tunnel["filler"] == 12
    same = measure_stretched(short_sighted, RECALL, RECALL, sequences=50)
    assert list(same.parts) == ["inside"]


def test_multiples_and_tokens_shortest_first():
    assert token_lengths("1x, 500x,2.5x,1000", 128) == {
        "1x": 128,
        "2.5x": 320,
        "1000": 1000,
        "500x": 64_000,
    }
    assert list(token_lengths("500x,1000,1x", 128)) == ["1x", "1000", "500x"]


@pytest.mark.parametrize("text", ["x", "0x", "0", "-3", "ten", "1e3", "1x;2x", "2X", "1x,,y"])
def test_anything_else_is_no_number_of_tokens(text):
    with pytest.raises(ValueError, match="a multiple such as 8x or a number of tokens, not"):
        token_lengths(text, 128)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_at_least_one_length(text):
    with pytest.raises(ValueError, match="name at least one length"):
        token_lengths(text, 128)
