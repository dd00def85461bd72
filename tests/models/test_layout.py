import pytest
import torch
from transformers import DynamicCache, StaticCache
from transformers.data.data_collator import DataCollatorWithFlattening

from bayesattn.models.layout import lay_out
from tests.models.common import tiny_config

CPU = torch.device("cpu")


def filled(cache, length, batch=1):
    """`cache` after `length` tokens."""
    states = torch.zeros(batch, 2, length, 8)
    for layer in range(2):
        cache.update(states, states, layer)
    return cache


def layout(shape, cache=None, config=None, **inputs):
    inputs = {k: torch.tensor(v) for k, v in inputs.items()}
    first, *others = lay_out(config or tiny_config(), shape, CPU, cache, **inputs)
    assert all(other is first for other in others)
    return first


def test_plain():
    made = layout((2, 3))
    assert (made.offset, made.length, made.exempt) == (0, 3, 0)
    assert made.padding is None
    assert made.documents is None
    assert made.positions.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_offset_is_the_number_of_cached_tokens(kind):
    config = tiny_config()
    empty = DynamicCache() if kind == "dynamic" else StaticCache(config, max_cache_len=16)
    assert layout((1, 5), empty).offset == 0
    cache = filled(empty, 5)
    made = layout((1, 3), cache)
    assert (made.offset, made.length) == (5, 8)
    assert made.positions.tolist() == [[5, 6, 7]]
    # A static cache hands out the tensor it counts with: the layout must not change under it.
    filled(cache, 3)
    assert made.offset == 5
    assert type(made.offset) is int


def test_left_padding():
    made = layout((3, 4), attention_mask=[[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]])
    assert made.padding.tolist() == [0, 2, 1]
    assert made.positions.tolist() == [[0, 1, 2, 3], [0, 0, 0, 1], [0, 0, 1, 2]]


def test_left_padding_with_a_cache():
    made = layout((2, 1), filled(DynamicCache(), 3, 2), attention_mask=[[1] * 4, [0, 0, 1, 1]])
    assert made.padding.tolist() == [0, 2]
    assert made.positions.tolist() == [[3], [1]]


@pytest.mark.parametrize("mask", [[[1, 1, 1]], [[True, True, True]], [[1.0, 1.0, 0.0]]])
def test_masks_that_hide_nothing_from_real_tokens(mask):
    assert layout((1, 3), attention_mask=mask).padding is None


def test_a_sequence_of_padding_only():
    made = layout((2, 2), attention_mask=[[0, 0], [1, 1]])
    assert made.padding.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([[[[1, 1, 1]]]], "attention_mask must be 2-D .batch, keys., 0 for padding, not 4-D"),
        ([[1, 0, 1]], "attention_mask has zeros between ones"),
        ([[0, 1, 0, 1, 0]], "must cover past and new tokens with shape .1, 3., not .1, 5."),
        ([[1, 1, 1], [1, 1, 1]], "must cover past and new tokens with shape .1, 3., not .2, 3."),
    ],
)
def test_masks_it_cannot_honour(mask, message):
    with pytest.raises(ValueError, match=message):
        layout((1, 3), attention_mask=mask)


def test_a_mask_of_the_new_tokens_only_is_too_short():
    with pytest.raises(ValueError, match=r"shape .1, 7., not .1, 2."):
        layout((1, 2), filled(DynamicCache(), 5), attention_mask=[[1, 1]])


def test_documents_restart_positions():
    made = layout((1, 6), document_ids=[[7, 7, 3, 3, 3, 7]])
    assert made.positions.tolist() == [[0, 1, 0, 1, 2, 0]]
    assert made.documents.tolist() == [[7, 7, 3, 3, 3, 7]]


def test_documents_after_padding():
    mask = [[0, 0, 1, 1, 1]]
    made = layout((1, 5), document_ids=[[1, 1, 1, 1, 2]], attention_mask=mask)
    assert made.padding.tolist() == [2]
    assert made.positions.tolist() == [[0, 0, 0, 1, 0]]


def test_positions_of_the_flattening_collator_are_documents():
    sequences = [{"input_ids": [1, 2, 3]}, {"input_ids": [4]}, {"input_ids": [5, 6]}]
    batch = DataCollatorWithFlattening()(sequences)
    made = lay_out(tiny_config(), (1, 6), CPU, position_ids=batch["position_ids"])[0]
    assert made.documents.tolist() == [[0, 0, 0, 1, 2, 2]]
    assert made.positions.tolist() == [[0, 1, 2, 0, 0, 1]]


@pytest.mark.parametrize("pad_position", [0, 1])
def test_positions_of_padding_are_not_documents(pad_position):
    # generate() numbers padding 0, others 1; the first real token is 0 again.
    positions = [[pad_position, pad_position, 0, 1], [0, 1, 2, 3]]
    mask = [[0, 0, 1, 1], [1, 1, 1, 1]]
    made = layout((2, 4), position_ids=positions, attention_mask=mask)
    assert made.documents is None
    assert made.positions.tolist() == positions


def test_positions_of_right_padding_are_not_documents():
    made = layout((1, 4), position_ids=[[0, 1, 1, 1]], attention_mask=[[1, 1, 0, 0]])
    assert made.documents is None


@pytest.mark.parametrize(
    "inputs",
    [
        {"position_ids": [[0, 2, 4]]},
        {"position_ids": [[3, 4, 3]]},
        {"position_ids": [[0, 0, 0]], "attention_mask": [[0, 1, 1]]},
    ],
)
def test_positions_that_jump(inputs):
    with pytest.raises(ValueError, match="neither count up by one nor restart at 0"):
        layout((1, 3), **inputs)


def test_positions_may_start_anywhere():
    assert layout((2, 3), position_ids=[[5, 6, 7]]).positions.tolist() == [[5, 6, 7]]


@pytest.mark.parametrize("inputs", [{"document_ids": [[0, 1]]}, {"position_ids": [[0, 0]]}])
def test_documents_are_not_cached(inputs):
    with pytest.raises(ValueError, match="packed documents cannot be kept in a cache"):
        layout((1, 2), DynamicCache(), **inputs)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"document_ids": [[0, 1, 1]]}, r"document_ids must have the shape .* \(1, 2\), not"),
        ({"position_ids": [[0, 1, 2]]}, r"position_ids must have the shape \(1, 2\)"),
        ({"position_ids": [0, 1]}, r"position_ids must have the shape \(1, 2\)"),
    ],
)
def test_wrong_shapes(inputs, message):
    with pytest.raises(ValueError, match=message):
        layout((1, 2), **inputs)


def test_beyond_a_static_cache():
    cache = filled(StaticCache(tiny_config(), max_cache_len=8), 6)
    assert layout((1, 2), cache).length == 8
    with pytest.raises(ValueError, match="has room for 8 tokens but 9 must be kept"):
        layout((1, 3), cache)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_sliding_cache_forgets(kind):
    config = tiny_config(sliding_window=4, exempt=3)
    cache = DynamicCache(config=config) if kind == "dynamic" else StaticCache(config, 32)
    for past in range(10):
        made = layout((1, 1), cache, config)
        assert made.positions.tolist() == [[past]]
        dropped = max(past - 3, 0)
        assert (made.offset, made.exempt) == (past - dropped, max(3 - dropped, 0))
        filled(cache, 1)


def test_padding_in_a_sliding_cache():
    config = tiny_config(sliding_window=4)
    cache = filled(DynamicCache(config=config), 6)
    assert layout((1, 1), cache, config, attention_mask=[[0] * 5 + [1, 1]]).padding.tolist() == [2]
    assert layout((1, 1), cache, config, attention_mask=[[0] + [1] * 6]).padding.tolist() == [0]


def test_a_sliding_cache_loses_the_exempt_keys_of_padded_sequences():
    config = tiny_config(sliding_window=4, exempt=2)
    cache = filled(DynamicCache(config=config), 6)
    with pytest.raises(ValueError, match="forgets which keys of a left-padded batch are exempt"):
        layout((1, 1), cache, config, attention_mask=[[0] + [1] * 6])


@pytest.mark.parametrize("window", [None, 8])
def test_a_window_wider_than_the_cache_keeps(window):
    cache = filled(DynamicCache(config=tiny_config(sliding_window=4)), 3)
    config = tiny_config(sliding_window=window)
    assert layout((1, 1), cache, config).offset == 3
    with pytest.raises(ValueError, match="has room for 4 tokens but 5 must be kept"):
        layout((1, 2), cache, config)


def test_a_static_cache_shorter_than_the_window_is_full_at_its_size():
    config = tiny_config(sliding_window=20)
    cache = filled(StaticCache(config, max_cache_len=8), 6)
    with pytest.raises(ValueError, match="has room for 8 tokens but 9 must be kept"):
        layout((1, 3), cache, config)
