"""The self-check passes what is right, and catches each thing that can be wrong."""

import dataclasses
import math
from inspect import signature

import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig

from bayesattn.probes import selfcheck
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.selfcheck import ROUNDED, SelfCheck, check_prompts
from tests.probes.llm.architectures import MODELS, SMALL, model_of, prompts_of, subject_of

PROMPTS = prompts_of(7, 1, 12)
OWN_ATTENTION = ("falcon", "mpt", "bloom", "codegen", "gptj")
"""Architectures that do not go through transformers' attention interface."""


def exact(found):
    return [error for name, error in found.differences.items() if name not in ROUNDED]


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture(name):
    found = check_prompts(subject_of(name), PROMPTS)
    assert found.good, found.wrong
    assert not any(exact(found))
    assert ("recomputed rows" not in found.differences) == name.startswith(OWN_ATTENTION)
    assert subject_of(name).model.config._attn_implementation == "eager"
    found.require()


def sixteen_heads():
    torch.manual_seed(0)
    options = SMALL | {"hidden_size": 128, "num_attention_heads": 16}
    return Subject.of(AutoModelForCausalLM.from_config(GPTNeoXConfig(**options)))


def test_a_fused_projection_that_is_split_wrongly():
    """Read as [3, H, D] instead of [H, 3, D], "values" hold 6 heads' values, 5 queries, 5 keys."""
    subject = sixteen_heads()
    heads, width = 16, 8
    wrong = torch.arange(3 * heads * width).view(3, heads, width)
    layer = subject.parts.layers[0]
    truth = {
        name: {tuple(columns.tolist()) for columns in part.columns}
        for name, part in (("q", layer.query), ("k", layer.key), ("v", layer.value))
    }

    def holds(slab):
        slabs = [tuple(columns.tolist()) for columns in slab]
        return {name: sum(slab in own for slab in slabs) for name, own in truth.items()}

    assert holds(wrong[2]) == {"v": 6, "q": 5, "k": 5}
    assert holds(wrong[1]) == {"k": 6, "v": 5, "q": 5}
    assert check_prompts(subject, PROMPTS).good
    for layer in subject.parts.layers:
        layer.key = dataclasses.replace(layer.key, columns=wrong[1])
        layer.value = dataclasses.replace(layer.value, columns=wrong[2])
    found = check_prompts(subject, PROMPTS)
    wrongs = {"values", "keys at position 0", "lengths of keys", "rows times values"}
    assert {*found.wrong} >= wrongs
    with pytest.raises(ValueError, match="not what it computes .off: values by"):
        found.require()


def test_heads_in_another_order():
    subject = Subject.of(model_of("llama grouped"))
    layer = subject.parts.layers[1]
    layer.value = dataclasses.replace(layer.value, columns=layer.value.columns.flip(0))
    assert {*check_prompts(subject, PROMPTS).wrong} == {"values", "rows times values"}


def test_a_hook_that_changes_something():
    subject = Subject.of(model_of("llama"))
    plain = subject.model.forward

    def forward(*args, past_key_values=None, **options):
        out = plain(*args, past_key_values=past_key_values, **options)
        if past_key_values is not None:
            out.logits = out.logits + 1e-6
        return out

    forward.__signature__ = signature(plain)
    subject.model.forward = forward
    assert "logits" in check_prompts(subject, PROMPTS).wrong


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (lambda rows: rows * 1.01, {"sums of rows", "recomputed rows", "rows times values"}),
        (lambda rows: rows.flip(1), {"recomputed rows", "rows times values"}),
        (lambda rows: rows.mT, {"weights of later tokens"}),
        (lambda rows: rows * math.nan, {"sums of rows", "weights of later tokens"}),
    ],
)
def test_rows_that_are_wrong(spoil, names):
    subject = Subject.of(model_of("llama"))
    for layer in subject.parts.layers:
        layer.attention.register_forward_hook(lambda _, __, out: (out[0], spoil(out[1])))
    assert names <= {*check_prompts(subject, PROMPTS).wrong}


def test_queries_in_the_place_of_keys():
    subject = Subject.of(model_of("llama"))
    layer = subject.parts.layers[0]
    layer.key = dataclasses.replace(layer.key, module=layer.attention.q_proj)
    assert {*check_prompts(subject, PROMPTS).wrong} == {"keys at position 0", "lengths of keys"}


def test_tolerance_grows_with_the_dtype():
    subject = Subject.of(model_of("llama grouped").bfloat16())
    found = check_prompts(subject, PROMPTS)
    assert found.good and not any(exact(found))
    assert found.allowed == pytest.approx(dict.fromkeys(ROUNDED, 1e-5 * 2**16))


def test_the_worst_prompt_counts(monkeypatch):
    errors = iter([{"logits": 0.0, "values": 0.2}, {"logits": 0.1, "values": 0.0}])
    monkeypatch.setattr(selfcheck, "_differences", lambda *_: next(errors))
    found = check_prompts(subject_of("llama"), PROMPTS[:2])
    assert found.differences == {"logits": 0.1, "values": 0.2}


def test_what_is_told():
    allowed = {"sums of rows": 1e-5}
    found = SelfCheck({"values": 0.0, "sums of rows": math.nan}, allowed)
    assert {*found.wrong} == {"sums of rows"} and not found.good
    assert found.to_dict()["good"] is False
    assert SelfCheck({"sums of rows": 1e-6}, allowed).good
    assert not SelfCheck({"values": 1e-9}, allowed).good
