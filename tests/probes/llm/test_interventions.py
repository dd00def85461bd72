"""Edited values get into cache and attention, and nothing else changes."""

import pytest
import torch

from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.heads import projection_weight
from bayesattn.probes.llm.interventions import edited
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError
from tests.probes.llm.architectures import MODELS, model_of, prompts_of, subject_of

PROMPTS = prompts_of(5, 8)


def doubled(name, layer):
    """The same model with value weights twice as large, written into the projection itself."""
    subject = Subject.of(model_of(name))
    part = subject.parts.layers[layer].value
    with torch.no_grad():
        rows = part.columns.flatten()
        projection_weight(part.module)[rows] *= 2
        if getattr(part.module, "bias", None) is not None:
            part.module.bias[rows] *= 2
    return subject


@pytest.mark.parametrize("name", MODELS)
def test_an_edit_is_a_change_of_the_projection(name):
    """Doubling rounds nothing: values in the cache and logits must agree bit by bit."""
    subject = subject_of(name)
    plain = capture_prompts(subject, PROMPTS)
    with edited(subject, {-1: lambda v: 2 * v}):
        found = capture_prompts(subject, PROMPTS)
        cached = capture_prompts(subject, PROMPTS, mode="cache")
    expected = capture_prompts(doubled(name, 1), PROMPTS)
    assert torch.equal(found.logits, expected.logits)
    assert not torch.equal(found.logits, plain.logits)
    assert torch.equal(found.values[1], 2 * plain.values[1])
    assert torch.equal(cached.values[1], found.values[1])
    for layer in range(2):
        assert torch.equal(found.turned_keys[layer], plain.turned_keys[layer])
        assert torch.equal(found.attention[layer], plain.attention[layer])


@pytest.mark.parametrize("name", MODELS)
def test_an_edit_that_changes_nothing(name):
    subject = subject_of(name)
    with edited(subject, {0: lambda v: v, 1: lambda v: v.clone()}):
        found = capture_prompts(subject, PROMPTS)
    plain = capture_prompts(subject, PROMPTS)
    assert torch.equal(found.logits, plain.logits)
    assert torch.equal(found.keys[1], plain.keys[1])


def test_edits_see_every_position_and_come_off():
    subject, seen = subject_of("gpt-neox"), []
    with edited(subject, {0: lambda v: seen.append(v.shape) or v}):
        capture_prompts(subject, PROMPTS)
    assert [tuple(shape) for shape in seen] == [(1, 5, 6, 4), (1, 8, 6, 4)]
    capture_prompts(subject, PROMPTS)
    assert len(seen) == 2


def test_one_head_at_one_position():
    """Only what can see the position changes, and in this layer only the heads that read it."""
    subject = subject_of("llama grouped")

    def change(v):
        v = v.clone()
        v[:, 3, 1] += 1
        return v

    plain = capture_prompts(subject, PROMPTS[:1])
    with edited(subject, {0: change}):
        found = capture_prompts(subject, PROMPTS[:1])
    assert torch.equal(found.outputs[0][:, :3], plain.outputs[0][:, :3])
    shifted = plain.outputs[0][0, 3:] + plain.attention[0][0, 3:, 3:4]
    torch.testing.assert_close(found.outputs[0][0, 3:], shifted)
    before = capture_prompts(subject, [PROMPTS[0][:3]])
    with edited(subject, {0: lambda v: change(v) if v.shape[1] > 3 else v}):
        assert torch.equal(capture_prompts(subject, [PROMPTS[0][:3]]).logits, before.logits)


def test_negative_layers_are_the_same_layers():
    subject = subject_of("llama")
    logits = []
    for layer in (1, -1):
        with edited(subject, {layer: torch.zeros_like}):
            logits.append(capture_prompts(subject, PROMPTS, ["logits"]).logits)
    plain = capture_prompts(subject, PROMPTS, ["logits"]).logits
    assert torch.equal(*logits)
    p, q = plain.log_softmax(-1), logits[0].log_softmax(-1)
    assert ((p.exp() * (p - q)).sum(-1) > 1e-4).all()


def test_mistakes():
    subject = Subject.of(model_of("llama"))
    for layers, message in (({2}, "there is no layer 2"), ({1, -1}, "layer 1 is edited twice")):
        with (
            pytest.raises(ValueError, match=message),
            edited(subject, dict.fromkeys(layers, torch.zeros_like)),
        ):
            pass
    for edit in (lambda v: v[:, :, :1], lambda v: v.double()):
        with pytest.raises(ValueError, match="keep shape and dtype"), edited(subject, {0: edit}):
            capture_prompts(subject, PROMPTS)
    assert not any(module._forward_hooks for module in subject.model.modules())


def test_values_that_are_keys():
    subject = Subject.of(model_of("gpt-neox"))
    layer = subject.parts.layers[0]
    layer.value = layer.key
    with (
        pytest.raises(NotApplicableError, match="keys are made of them"),
        edited(subject, {0: torch.zeros_like}),
    ):
        pass
