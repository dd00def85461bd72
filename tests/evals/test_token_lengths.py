"""Lengths as people write them."""

import pytest

from bayesattn.evals.token_lengths import token_lengths


def test_multiples_and_tokens_shortest_first():
    assert token_lengths("1x, 500x,2.5x,1000", 128) == {
        "1x": 128,
        "2.5x": 320,
        "1000": 1000,
        "500x": 64_000,
    }
    assert list(token_lengths("500x,1000,1x", 128)) == ["1x", "1000", "500x"]


@pytest.mark.parametrize("text", ["x", "0x", "0", "-3", "ten", "1e3", "1x;2x", "2X", "1x,,y"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="a multiple such as 8x or a number of tokens, not"):
        token_lengths(text, 128)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_at_least_one_length(text):
    with pytest.raises(ValueError, match="name at least one length"):
        token_lengths(text, 128)
