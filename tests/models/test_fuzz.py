"""Cached decoding is the full forward: random models, caches, windows, padding and cuts.

`make torture` tries 1,000 of them, FUZZ_CASES=5000 as many as it says.
"""

import itertools
import os
import random
from collections import Counter

import pytest
import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM, StaticCache

from bayesattn.evals.memory import windows
from bayesattn.evals.room import Room
from bayesattn.models import retrofit
from tests.models.common import PRIOR_NAMES, SSMAX, tiny_model, tokens
from tests.robust.common import count

CASES, PARTS = int(os.environ.get("FUZZ_CASES", count(400, 1000))), 4
CACHES = ("dynamic", "keeps all", "static", "room")
EXEMPT_AND_PADDED = "forgets which keys of a left-padded batch are exempt"


def settings(draw, length):
    """A config; small numbers, odd ones and those beside a window or the length are likely."""
    layers = draw.randint(1, 3)
    attending = draw.choice([None, None, draw.randint(1, layers)])
    far = draw.choice(["all", "all", "last", [], draw.sample(range(attending or layers), 1)])
    kernel = draw.choice(["auto", "auto", "dense", "strided"])
    encoding = draw.choice(["none", "none", "rope", "sinusoidal", "learned"])
    temperature = SSMAX[draw.choice(list(SSMAX))]
    if draw.random() < 0.15:
        temperature = {"ssmax": False, "log_temperature": 0.3, "log_temperature_start": 7}
    return {
        "num_hidden_layers": layers,
        "attention_layers": attending,
        "global_layers": far,
        "shared_prior": far == "all" and draw.random() < 0.2,
        "prior": draw.choice(PRIOR_NAMES),
        "encoding": encoding,
        "head_dim": draw.choice([8, 6] if encoding == "rope" else [8, 8, 1, 5]),
        "forget": draw.random() < 0.2,
        "forget_time": None,
        "sink": draw.random() < 0.2,
        "sliding_window": draw.choice([None, 1, 2, 3, 5, 8, 13, 64, length - 1 or 1, length]),
        "exempt": draw.choice([0, 0, 0, 1, 3, 9]),
        "num_key_value_heads": draw.choice([1, 2, 4]),
        "num_experts": draw.choice([None, None, 3]),
        "max_position_embeddings": length,
        "kernel": kernel,
        **temperature,
    }


def make_model(draw, seed, case):
    model = tiny_model(seed=seed, **case)
    for name, parameter in model.named_parameters():
        if name.endswith("sink.logit"):
            parameter.data.copy_(torch.tensor([draw.uniform(-3, 3) for _ in parameter]))
    return model


def make_retrofitted(draw, seed, length):
    """A Mistral whose attention got a prior, with a window or without."""
    torch.manual_seed(seed)
    window = draw.choice([None, 1, 2, 3, 5, 8, 13, length])
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": draw.randint(1, 3)}
    heads = {"num_attention_heads": 4, "num_key_value_heads": draw.choice([1, 2, 4])}
    config = MistralConfig(**sizes, **heads, vocab_size=37, sliding_window=window)
    case = {
        "prior": draw.choice(PRIOR_NAMES),
        "ssmax": draw.random() < 0.5,
        "exempt": draw.choice([0, 0, 3]),
        "kernel": draw.choice(["auto", "dense", "strided"]),
    }
    model = retrofit(MistralForCausalLM(config), **case).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "prior" in name:
            parameter.data.add_(torch.randn(parameter.shape, generator=generator))
        elif "embed" not in name and "norm" not in name:
            parameter.data.mul_(10)  # its initialisation is timid
    return model, case | {"sliding_window": window, "retrofitted": True}


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
    if draw.random() < 0.2:
        model, case = make_retrofitted(draw, seed, length)
        kind = "keeps all" if kind == "room" else kind
    else:
        case = settings(draw, length)
        model = make_model(draw, seed, case)
    ids = tokens(batch, length, seed=seed)
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
            if draw.random() < 0.1:  # as beam search does
                order = torch.tensor(draw.choices(range(batch), k=batch))
                cache.reorder_cache(order)
                ids, mask, full, *found = (x[order] for x in (ids, mask, full, *found))
    except ValueError as error:
        assert EXEMPT_AND_PADDED in str(error) and padded and case["exempt"], (seed, kind, case)
        return "refused"
    difference = ((torch.cat(found, dim=1) - full).abs() * mask[..., None]).max()
    scale = max(1.0, float((full * mask[..., None]).abs().max()))
    assert difference < 1e-3 * scale, (seed, float(difference), kind, case)
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
    model, ids = make_model(draw, seed, case), tokens(batch, length, seed=seed)
    cuts = cut(draw, length)
    documents = torch.cat([torch.full((stop - start,), n) for n, (start, stop) in enumerate(cuts)])
    packed = model(ids, document_ids=documents.expand(batch, -1)).logits
    alone = [model(ids[:, start:stop], use_cache=False).logits for start, stop in cuts]
    difference = (packed - torch.cat(alone, dim=1)).abs().max()
    assert difference < 1e-3, (seed, float(difference), case)


def test_packed_documents_are_documents():
    for seed in range(max(60, CASES // 10)):
        pack(seed)
