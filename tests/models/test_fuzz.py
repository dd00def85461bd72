"""Cached decoding is the full forward: random models, caches, windows, padding and cuts."""

import itertools
import random
from collections import Counter

import pytest
import torch
from transformers import DynamicCache, StaticCache

from bayesattn.evals.memory import windows
from bayesattn.evals.room import Room
from tests.models.common import PRIOR_NAMES, SSMAX, tiny_model, tokens

CASES, PARTS = 1000, 10
CACHES = ("dynamic", "keeps all", "static", "room")
EXEMPT_AND_PADDED = "forgets which keys of a left-padded batch are exempt"


def settings(draw, length):
    """A config; small numbers, odd ones and those beside a window or the length are likely."""
    layers = draw.randint(1, 3)
    attending = draw.choice([None, None, draw.randint(1, layers)])
    far = draw.choice(["all", "all", "last", [], draw.sample(range(attending or layers), 1)])
    kernel = draw.choice(["auto", "auto", "dense", "strided"])
    return {
        "num_hidden_layers": layers,
        "attention_layers": attending,
        "global_layers": far,
        "shared_prior": far == "all" and draw.random() < 0.2,
        "prior": draw.choice(PRIOR_NAMES),
        "encoding": draw.choice(["none", "none", "rope", "sinusoidal", "learned"]),
        "sliding_window": draw.choice([None, 1, 2, 3, 5, 8, 13, 64, length - 1 or 1, length]),
        "exempt": draw.choice([0, 0, 0, 1, 3, 9]),
        "num_key_value_heads": draw.choice([1, 2, 4]),
        "num_experts": draw.choice([None, None, 3]),
        "max_position_embeddings": length,
        "kernel": kernel,
        **SSMAX[draw.choice(list(SSMAX))],
    }


def make_cache(kind, model, length, draw):
    if kind == "dynamic":
        return DynamicCache(config=model.config)
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=length + draw.choice([0, 1, 7]))
    return DynamicCache() if kind == "keeps all" else Room(windows(model.config), length)


def cut(draw, length):
    """0 = cuts[0] < … < cuts[-1] = length."""
    cuts = [0]
    while cuts[-1] < length:
        cuts.append(min(length, cuts[-1] + draw.choice([1, 1, 1, 2, 5, 17, 40])))
    return list(itertools.pairwise(cuts))


@torch.no_grad()
def run(seed):
    """What was compared; AssertionError with the whole case if it differs."""
    draw = random.Random(seed)
    length, batch, kind = draw.randint(1, 80), draw.randint(1, 3), draw.choice(CACHES)
    case = settings(draw, length)
    model, ids = tiny_model(seed=seed, **case), tokens(batch, length, seed=seed)
    mask = torch.ones_like(ids)
    if draw.random() < 0.4:
        for row in range(batch):
            mask[row, : draw.randint(0, length - 1)] = 0
    padded = not bool(mask.all())
    full = model(ids, attention_mask=mask).logits
    cache, found = make_cache(kind, model, length, draw), []
    try:
        for start, stop in cut(draw, length):
            step = {"attention_mask": mask[:, :stop]} if padded or draw.random() < 0.3 else {}
            keep = draw.choice([0, stop - start, 1 if stop - start == 1 else 0])
            step["logits_to_keep"] = keep
            found.append(model(ids[:, start:stop], past_key_values=cache, **step).logits)
    except ValueError as error:
        assert EXEMPT_AND_PADDED in str(error) and padded and case["exempt"], (seed, kind, case)
        return "refused"
    difference = ((torch.cat(found, dim=1) - full).abs() * mask[..., None]).max()
    assert difference < 1e-3, (seed, float(difference), kind, case)
    return kind if not padded else f"{kind}, padded"


@pytest.mark.parametrize("part", range(PARTS))
def test_cached_decoding_is_the_full_forward(part):
    found = Counter(run(seed) for seed in range(part, CASES, PARTS))
    assert found["refused"] < CASES / PARTS / 4
    assert len(found) > len(CACHES)  # both with padding and without


@torch.no_grad()
def pack(seed):
    """Documents in one sequence are the same documents one by one."""
    draw = random.Random(seed)
    length, batch = draw.randint(2, 80), draw.randint(1, 3)
    case = settings(draw, length)
    model, ids = tiny_model(seed=seed, **case), tokens(batch, length, seed=seed)
    cuts = cut(draw, length)
    documents = torch.cat([torch.full((stop - start,), n) for n, (start, stop) in enumerate(cuts)])
    packed = model(ids, document_ids=documents.expand(batch, -1)).logits
    alone = [model(ids[:, start:stop], use_cache=False).logits for start, stop in cuts]
    difference = (packed - torch.cat(alone, dim=1)).abs().max()
    assert difference < 1e-3, (seed, float(difference), case)


def test_packed_documents_are_documents():
    for seed in range(60):
        pack(seed)
