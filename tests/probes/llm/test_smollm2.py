"""A real model, out of the package that carries it."""

import socket

import pytest
import torch

from bayesattn.bits import entropy
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import load

PROMPTS = {"The capital of France is": 2.14, "2 + 2 =": 1.53, "My favorite color is": 6.30}
"""Bits of the next token, measured with other code."""


@pytest.fixture(scope="module")
def smollm2():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", None)
        return load()


def test_it_is_what_it_is_said_to_be(smollm2):
    plan = smollm2.plan
    assert (plan.layers, plan.heads, plan.kv_heads, plan.head_width) == (30, 9, 3, 64)
    assert (plan.vocabulary, plan.context, plan.width) == (49_152, 8192, 576)
    assert plan.parameters == 134_515_008 and plan.quantised == "Q4_1"
    assert smollm2.parts.mode == "hooks" and smollm2.parts.key_weight(-1).shape == (3, 64, 576)


def test_what_it_predicts(smollm2):
    states = capture_prompts(smollm2, [smollm2.encode(text) for text in PROMPTS], ["logits"])
    bits = entropy(states.logits.double().softmax(-1))
    torch.testing.assert_close(bits, torch.tensor([*PROMPTS.values()]).double(), atol=0.05, rtol=0)
    assert smollm2.tokenizer.decode([int(states.logits[0].argmax())]) == " Paris"


def test_it_checks_itself(smollm2):
    found = check_prompts(smollm2, [smollm2.encode(text) for text in PROMPTS])
    assert found.good and "recomputed rows" in found.differences and not found.doubts
    assert {*found.allowed} == {
        *("lengths of keys", "key weights"),
        *("sums of rows", "recomputed rows", "rows times values"),
    }
