"""Values that are changed at their site get into cache and attention, and nothing else changes."""

import pytest
import torch

from bayesattn.probes.bayes.readers import value_site
from bayesattn.probes.capture import hanging
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.heads import projection_weight
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError
from tests.probes.llm.architectures import MODELS, clipping, model_of, prompts_of, subject_of

PROMPTS = prompts_of(5, 8)


def edited(subject, layer, edit):
    site = value_site(subject, layer)

    def change(_, __, output):
        return site.put(output, edit(site.get(output)))

    return hanging([site.module.register_forward_hook(change)])


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
def test_a_change_is_a_change_of_the_projection(name):
    """Doubling rounds nothing: values in the cache and logits must agree bit by bit."""
    subject = subject_of(name)
    plain = capture_prompts(subject, PROMPTS)
    with edited(subject, 1, lambda v: 2 * v):
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
    with edited(subject, 1, torch.clone):
        assert torch.equal(capture_prompts(subject, PROMPTS, ["logits"]).logits, plain.logits)


def test_one_head_at_one_position():
    """Only what can see the position changes, and in this layer only the heads that read it."""
    subject = subject_of("llama grouped")

    def change(v):
        v = v.clone()
        v.unflatten(-1, (2, -1))[:, 3, 1] += 1
        return v

    plain = capture_prompts(subject, PROMPTS[:1])
    with edited(subject, 0, change):
        found = capture_prompts(subject, PROMPTS[:1])
    assert torch.equal(found.outputs[0][:, :3], plain.outputs[0][:, :3])
    shifted = plain.outputs[0][0, 3:] + plain.attention[0][0, 3:, 3:4]
    torch.testing.assert_close(found.outputs[0][0, 3:], shifted)


def test_values_that_cannot_be_changed():
    with pytest.raises(NotApplicableError, match="cannot be edited: the key projections"):
        value_site(clipping(0.5), 0)
    subject = Subject.of(model_of("gpt-neox"))
    layer = subject.parts.layers[0]
    layer.value = layer.key
    with pytest.raises(NotApplicableError, match="keys are made of them"):
        value_site(subject, 0)
