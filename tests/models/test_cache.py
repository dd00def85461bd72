"""Decoding with a cache is the same as one full forward."""

import itertools

import pytest
import torch
from transformers import DynamicCache, StaticCache

from tests.models.common import ENCODING_NAMES, PRIOR_NAMES, SSMAX, tiny_model, tokens

LENGTH = 67
KINDS = ("dynamic", "static")
PAIRS = [
    (prior, ssmax, ENCODING_NAMES[(i + j) % 3], KINDS[(i + j // 2) % 2])
    for i, prior in enumerate(PRIOR_NAMES)
    for j, ssmax in enumerate(SSMAX)
]
"""Any two of prior, temperature, encoding and cache meet; the fuzz mixes all four at random."""


def make_cache(kind, model, length=LENGTH + 5):
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=length)
    return DynamicCache(config=model.config)


@torch.no_grad()
def decode(model, ids, cache, chunk, **inputs):
    length = ids.shape[1]
    cuts = [*range(0, length, chunk), length]
    if chunk == 1:  # single tokens at both ends; the middle at once, to be quick
        cuts = [cut for cut in cuts if cut <= 4 or cut > length - 12]
    logits = []
    for start, stop in itertools.pairwise(cuts):
        step = {"attention_mask": inputs["attention_mask"][:, :stop]} if inputs else {}
        logits.append(model(ids[:, start:stop], past_key_values=cache, **step).logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize(("prior", "ssmax", "encoding", "kind"), PAIRS)
@torch.no_grad()
def test_decoding_is_the_full_forward(prior, ssmax, encoding, kind):
    model = tiny_model(prior=prior, encoding=encoding, **SSMAX[ssmax])
    ids = tokens(2, LENGTH)
    full = model(ids).logits
    for chunk in (1, 7, 64):
        made = decode(model, ids, make_cache(kind, model), chunk)
        torch.testing.assert_close(made, full, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize(
    "settings",
    [
        {"shared_prior": True},
        {"exempt": 5},
        {"num_key_value_heads": 1},
        {"attention_layers": 1},
        {"encoding": "learned", "max_position_embeddings": LENGTH},
    ],
)
@torch.no_grad()
def test_decoding_with_other_settings(settings, kind):
    model = tiny_model(**settings)
    ids = tokens(2, LENGTH)
    full = model(ids).logits
    for chunk in (1, 7):
        made = decode(model, ids, make_cache(kind, model), chunk)
        torch.testing.assert_close(made, full, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["dynamic", "static", "keeps all"])
@pytest.mark.parametrize("exempt", [0, 3])
@pytest.mark.parametrize("encoding", ENCODING_NAMES)
@torch.no_grad()
def test_decoding_with_a_sliding_window(encoding, exempt, kind):
    model = tiny_model(sliding_window=9, exempt=exempt, encoding=encoding)
    ids = tokens(2, 40)
    full = model(ids).logits
    for chunk in (1, 4, 7, 30):
        cache = DynamicCache() if kind == "keeps all" else make_cache(kind, model)
        made = decode(model, ids, cache, chunk)
        torch.testing.assert_close(made, full, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_local_rope_is_a_window_set_after_training():
    model = tiny_model(encoding="rope", prior="uniform", ssmax=False, num_hidden_layers=1)
    ids = tokens(1, 30)
    before = model(ids).logits
    model.config.sliding_window = 8
    after = model(ids).logits
    torch.testing.assert_close(after[:, :8], before[:, :8])
    assert (after[:, 8:] - before[:, 8:]).abs().amax(dim=-1).min() > 1e-4
    # One layer: the last token now depends on the last eight only.
    torch.testing.assert_close(after[:, -1], model(ids[:, -8:]).logits[:, -1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("encoding", ENCODING_NAMES)
@pytest.mark.parametrize("window", [None, 6])
@torch.no_grad()
def test_left_padding_changes_nothing(encoding, kind, window):
    model = tiny_model(encoding=encoding, sliding_window=window)
    ids = tokens(3, 17)
    mask = torch.ones(3, 17, dtype=torch.long)
    mask[1, :4] = 0
    mask[2, :11] = 0
    for made in (
        model(ids, attention_mask=mask).logits,
        decode(model, ids, make_cache(kind, model), 5, attention_mask=mask),
    ):
        for row, start in enumerate((0, 4, 11)):
            alone = model(ids[row : row + 1, start:]).logits
            torch.testing.assert_close(made[row : row + 1, start:], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("encoding", ENCODING_NAMES)
@pytest.mark.parametrize("prior", ["ggd", "bucketed"])
def test_generate_from_a_padded_batch(prior, encoding, cache):
    model = tiny_model(prior=prior, encoding=encoding)
    ids = tokens(2, 12)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    settings = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache}
    made = model.generate(ids, attention_mask=mask, pad_token_id=0, **settings)
    first = model.generate(ids[:1], attention_mask=mask[:1], pad_token_id=0, **settings)
    second = model.generate(ids[1:, 5:], attention_mask=mask[1:, 5:], pad_token_id=0, **settings)
    assert made[0].tolist() == first[0].tolist()
    assert made[1, 5:].tolist() == second[0].tolist()
    # Greedy generation against full forwards without any cache.
    for step in range(12, 20):
        assert made[0, step] == model(made[:1, :step]).logits[0, -1].argmax()


@pytest.mark.parametrize("settings", [{}, {"attention_layers": 1}, {"encoding": "learned"}])
def test_beam_search(settings):
    model = tiny_model(**settings)
    ids = tokens(2, 9)
    settings = {"max_new_tokens": 6, "do_sample": False, "num_beams": 3, "pad_token_id": 0}
    settings["attention_mask"] = torch.ones_like(ids)
    with_cache, without = (model.generate(ids, use_cache=use, **settings) for use in (True, False))
    assert with_cache.shape == (2, 15)
    assert with_cache.tolist() == without.tolist()


@torch.no_grad()
def test_learned_positions_count_from_the_first_real_token():
    model = tiny_model(encoding="learned", max_position_embeddings=12)
    ids = tokens(2, 17)
    mask = torch.ones_like(ids)
    mask[:, :5] = 0
    made = model(ids[:, :12], attention_mask=mask[:, :12]).logits[:, 5:]
    torch.testing.assert_close(made, model(ids[:, 5:12]).logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="positions 0 to 11 only.*max_position_embeddings"):
        cache = model(ids[:, :12]).past_key_values
        model(ids[:, 12:13], past_key_values=cache)


def test_generate_beyond_a_static_cache():
    model = tiny_model()
    cache = StaticCache(config=model.config, max_cache_len=10)
    model(tokens(1, 8), past_key_values=cache)
    with pytest.raises(ValueError, match="has room for 10 tokens but 11 must be kept"):
        model(tokens(1, 3), past_key_values=cache)
