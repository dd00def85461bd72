"""The cache whose memory is taken once."""

import pytest
import torch

from bayesattn.evals.room import make_room
from tests.models.common import tiny_model, tokens


@torch.no_grad()
def test_it_holds_what_a_dynamic_cache_holds():
    model, ids = tiny_model(), tokens(2, 30)
    cache = make_room(2, 30)
    parts = [model(ids[:, a:b], past_key_values=cache).logits for a, b in ((0, 11), (11, 30))]
    expected = model(ids)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected.logits, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(cache.layers, expected.past_key_values.layers, strict=True):
        torch.testing.assert_close(mine.keys, theirs.keys, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine.values, theirs.values, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_nothing_is_copied_and_it_can_be_taken_back():
    model, ids = tiny_model(), tokens(1, 20)
    cache = make_room(2, 20)
    model(ids[:, :12], past_key_values=cache)
    place = cache.layers[0].keys.data_ptr()
    model(tokens(1, 8, seed=9), past_key_values=cache)
    assert cache.get_seq_length() == 20 and cache.layers[0].keys.data_ptr() == place
    cache.crop(-8)
    assert cache.get_seq_length() == 12
    made = model(ids[:, 12:], past_key_values=cache).logits
    torch.testing.assert_close(made, model(ids).logits[:, 12:], rtol=1e-4, atol=1e-4)
    cache.crop(-20)
    assert cache.get_seq_length() == 0
    torch.testing.assert_close(
        model(ids, past_key_values=cache).logits, model(ids).logits, rtol=1e-4, atol=1e-4
    )


@torch.no_grad()
def test_more_tokens_than_fit():
    model = tiny_model()
    with pytest.raises(ValueError, match="has room for 8 tokens, not for 9"):
        model(tokens(1, 9), past_key_values=make_room(2, 8))
