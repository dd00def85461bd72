"""How large chunks may be, what cannot be read at all, and a cache that is taken once."""

import pytest
import torch
from transformers import DynamicCache

from bayesattn.evals.memory import (
    GIBIBYTE,
    LARGEST_CHUNK,
    MEMORY,
    cache_bytes,
    check_length,
    chunk_size,
    longest_context,
)
from bayesattn.evals.prefill import Reader
from bayesattn.evals.room import Room
from bayesattn.system import peak_bytes
from tests.evals.language import gpt2, llama
from tests.models.common import tiny_model, tokens

MIB = 2**20


@pytest.mark.parametrize(
    "model", [gpt2(), llama(), tiny_model(), tiny_model(attention_layers=1), tiny_model().double()]
)
@torch.no_grad()
def test_size_of_the_cache(model):
    cache = DynamicCache()
    model(tokens(1, 20), past_key_values=cache)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cache_bytes(model, 20) == held


def test_chunks_shrink_with_memory_and_never_grow_past_what_is_useful():
    model = tiny_model(hidden_size=512)
    sizes = [
        chunk_size(model, 1, 20_000, every=False, memory=memory * MIB)
        for memory in (190, 200, 220, 2048)
    ]
    assert sizes == sorted(sizes) and sizes[0] < sizes[1] < sizes[-1] == LARGEST_CHUNK
    assert all(size % 256 == 0 for size in sizes)
    assert chunk_size(model, 1, 100, every=False) == 100
    assert chunk_size(model, 4, 20_000, every=False, memory=450 * MIB) < LARGEST_CHUNK
    wordy = tiny_model(vocab_size=30_000)
    assert chunk_size(wordy, 1, 9000, every=True, memory=300 * MIB) < chunk_size(
        wordy, 1, 9000, every=False, memory=300 * MIB
    )


def test_models_that_write_out_scores_get_smaller_chunks():
    sizes = {}
    for name in ("sdpa", "eager"):
        model = llama(attn_implementation=name)
        sizes[name] = chunk_size(model, 1, 60_000, every=False, memory=MEMORY // 2)
    assert 16 <= sizes["eager"] < sizes["sdpa"] < LARGEST_CHUNK
    ours = tiny_model()
    assert chunk_size(ours, 1, 60_000, every=False, memory=MEMORY // 2) == LARGEST_CHUNK


@pytest.mark.parametrize("settings", [{}, {"tolerance": 1e-4}])
def test_reading_stays_below_the_ceiling(settings):
    model = tiny_model(hidden_size=64, intermediate_size=8192)
    ceiling, ids = 120 * MIB, tokens(1, 3000)
    reader = Reader(model, batch=1, tokens=3000, memory=ceiling, **settings)
    assert 16 <= reader.chunk < 1024
    assert peak_bytes(lambda: reader.logits(ids, [2999])) < ceiling
    # the ceiling decides: read at once, the same prompt takes more
    reader = Reader(model, batch=1, tokens=3000)
    assert reader.chunk == 3000
    assert peak_bytes(lambda: reader.logits(ids, [2999])) > ceiling


def test_a_cache_beyond_the_ceiling_is_refused_at_once():
    with pytest.raises(ValueError, match="1,000,000,000 tokens need about .* GiB"):
        Reader(tiny_model(), batch=1, tokens=10**9)
    with pytest.raises(ValueError, match="allow more memory"):
        chunk_size(tiny_model(), 1, 100, every=False, memory=GIBIBYTE // 100)


def test_learned_positions_end_somewhere():
    assert longest_context(gpt2()) == 64
    assert longest_context(tiny_model(encoding="learned")) == 64
    for model in (llama(), tiny_model(), tiny_model(encoding="sinusoidal")):
        assert longest_context(model) is None
        check_length(model, 10**6)
    for model in (gpt2(), tiny_model(encoding="learned")):
        check_length(model, 64)
        with pytest.raises(ValueError, match="learned positions for 64 tokens and cannot read 65"):
            Reader(model, batch=1, tokens=65)


def test_encodings_that_depend_on_the_length_are_read_at_once():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = tiny_model(encoding="rope", rope_parameters=rope)
    assert Reader(model, batch=1, tokens=9000).chunk == 9000
    with pytest.raises(ValueError, match="must be read at once, and 0.1 GiB are not enough"):
        Reader(model, batch=1, tokens=90_000, memory=int(0.15 * GIBIBYTE))


@torch.no_grad()
def test_it_holds_what_a_dynamic_cache_holds():
    model, ids = tiny_model(), tokens(2, 30)
    cache = Room([None, None], 30)
    parts = [model(ids[:, a:b], past_key_values=cache).logits for a, b in ((0, 11), (11, 30))]
    expected = model(ids)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected.logits, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(cache.layers, expected.past_key_values.layers, strict=True):
        torch.testing.assert_close(mine.keys, theirs.keys, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine.values, theirs.values, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_nothing_is_copied_and_it_can_be_taken_back():
    model, ids = tiny_model(), tokens(1, 20)
    cache = Room([None, None], 20)
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
        model(tokens(1, 9), past_key_values=Room([None, None], 8))
