"""Whole models beside a Llama: the same shape, the same work, the bookkeeping; never the times."""

import json

import pytest
import torch

from bayesattn.errors import UserError
from benchmarks import model as bench
from benchmarks.model import LINEAR, MODELS, REFERENCE, ModelBench, build, filled
from tests.models.common import tokens

SMALL = {"layers": 2, "width": 48, "heads": 4}
SHORT = SMALL | {"train": "8", "batch": 2, "generate": "5", "new": 2, "seconds": 0.0}


def make(name):
    return build(ModelBench(**SMALL), name)


def test_rows(tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert ModelBench(**SHORT, prefill="20,40", until=30, json=str(file)).run() == 0
    rows = json.loads(file.read_text())
    found = {(row["part"], row["length"], row["model"]) for row in rows}
    everyone = [REFERENCE, *MODELS]
    for part, length in (("train", 8), ("generate", 5), ("prefill", 20)):
        assert {(part, length, name) for name in everyone} <= found
    # beyond `until` only what takes linear time is asked
    assert {name for part, length, name in found if length == 40} == {LINEAR}
    for row in rows:
        assert row["seconds"] > 0 and row["resident_bytes"] > 1 << 20
        assert (row["ratio"] is None) == (row["length"] == 40)
        assert row["model"] != REFERENCE or row["ratio"] == 1.0
    assert "far last" in capsys.readouterr().out


@pytest.mark.parametrize("name", MODELS)
def test_the_llama_has_the_same_shape(name):
    def shapes(model):
        kept = (p for n, p in model.named_parameters() if "prior" not in n and "ssmax" not in n)
        return sorted(tuple(p.shape) for p in kept)

    ours, llama = make(name), make(REFERENCE)
    assert shapes(ours) == shapes(llama)
    assert ours.config.num_attention_heads == llama.config.num_attention_heads
    assert not ours.config.tie_word_embeddings and not llama.config.tie_word_embeddings


@pytest.mark.parametrize("name", [REFERENCE, *MODELS])
@torch.no_grad()
def test_generation_begins_with_a_cache_of_that_length(name):
    model = make(name)
    cache = filled(model, 300)
    before = [layer.keys.clone() for layer in cache.layers]
    for _ in range(2):  # what one call adds to the cache the next one does not see
        made = bench._continue(model, tokens(1, 301), 3)()
        assert made.shape == (1, 304)
    assert cache.get_seq_length() == 300
    for layer, keys in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)


@pytest.mark.parametrize("name", [REFERENCE, *MODELS])
def test_a_step_leaves_the_weights_as_they_are(name):
    model = make(name)
    before = [p.detach().clone() for p in model.parameters()]
    call = bench._step(model, tokens(2, 9))
    call()
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
        assert p.grad is None


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"width": 50, "heads": 4}, "hidden_size 50 is not a multiple of num_attention_heads 4"),
        ({"parts": "train,eat"}, "There is no 'eat'; choose from train, generate, prefill"),
        ({"models": "llama"}, "There is no 'llama'; choose from mixed"),
        ({"new": 0}, "--new must be positive, not 0"),
    ],
)
def test_bad_options_are_one_sentence(option, sentence):
    with pytest.raises((UserError, ValueError), match=sentence):
        ModelBench(**option).run()
