"""Edits as formulas; edited values get into cache and attention, and nothing else changes."""

import pytest
import torch

from bayesattn.probes.llm import interventions as edits
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.heads import projection_weight
from bayesattn.probes.llm.interventions import edited
from bayesattn.probes.llm.replay import last_logits
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError
from tests.probes.llm.architectures import MODELS, model_of, prompts_of, subject_of
from tests.probes.llm.sula_toys import LAYERS, subject

G, D = 2, 3
PROMPTS = prompts_of(5, 8)


@pytest.fixture
def values(generator):
    return torch.randn(4, 5, G, D, generator=generator)


@pytest.fixture
def axis(generator):
    u = torch.randn(G * D, generator=generator).double()
    return u / u.norm()


def along(values, u):
    return values.flatten(2).double() @ u


def test_a_cut_leaves_nothing_along_the_axis(values, axis):
    after = edits.cut(axis)(values)
    assert (along(after, axis).abs() < 1e-5 * values.flatten(2).norm(dim=-1)).all()
    across = torch.eye(G * D).double() - torch.outer(axis, axis)
    torch.testing.assert_close(
        after.flatten(2).double(), values.flatten(2).double() @ across, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("keep", [1.0, 0.5, 0.0, -1.0])
def test_doses(values, axis, keep):
    after = edits.cut(axis, keep)(values)
    torch.testing.assert_close(along(after, axis), keep * along(values, axis), atol=1e-6, rtol=0)
    assert keep != 1.0 or torch.equal(after, values)


def test_only_and_shift(values, axis):
    left = edits.only(axis)(values)
    torch.testing.assert_close(left + edits.cut(axis)(values), values)
    torch.testing.assert_close(along(left, axis), along(values, axis), atol=1e-6, rtol=0)
    moved = edits.shift(axis, 2.5)(values) - values
    expected = (2.5 * axis).float().view(G, D).expand_as(values)
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=0)


def test_several_axes_are_several_edits(values, generator):
    axes = torch.randn(3, G * D, generator=generator).double()
    axes /= axes.norm(dim=1, keepdim=True)
    keep = torch.tensor([0.0, 0.5, -1.0])
    together = values.repeat(3, 1, 1, 1)
    for many, one in (
        (edits.cut(axes, keep), lambda at: edits.cut(axes[at], float(keep[at]))),
        (edits.only(axes), lambda at: edits.only(axes[at])),
        (edits.shift(axes, keep), lambda at: edits.shift(axes[at], float(keep[at]))),
    ):
        alone = torch.cat([one(at)(values) for at in range(3)])
        torch.testing.assert_close(many(together), alone)


def test_the_axis_is_where_values_vary_and_rises_with_entropy(generator):
    u = torch.zeros(6).double()
    u[2] = 1.0
    bits = torch.rand(50, generator=generator).double()
    noise = torch.randn(50, 6, generator=generator).double() * 0.1
    for sign in (1, -1):
        rows = 7 + sign * 3 * bits[:, None] * u + noise
        direction, found = edits.estimate_axis(rows, bits, layer=5)
        assert float(direction @ u) * sign > 0.99
        assert found.correlation > 0.95 and found.share > 0.8 and found.layer == 5
        scores = rows @ direction
        assert found.spread == pytest.approx(float(scores.std(correction=0)))


def test_values_that_do_not_vary_have_no_axis(generator):
    rows = torch.ones(20, 6) + 1e-8 * torch.randn(20, 6, generator=generator)
    with pytest.raises(ValueError, match="values of layer 0 are the same .* choose a later layer"):
        edits.estimate_axis(rows, torch.rand(20, generator=generator), 0)


def test_random_axes_are_orthogonal_and_lie_where_values_vary(generator):
    scale = torch.tensor([5.0, 3.0, 2.0, *[1.0] * 7, *[0.01] * 10])
    rows = (torch.randn(200, 20, generator=generator) * scale).double() + 1
    first, axis = edits.estimate_axis(rows, torch.rand(200, generator=generator), 0)
    found = edits.random_axes(rows, first, 50, generator)
    assert found.shape == (50, 20)
    assert (found @ first).abs().max() < 1e-9
    assert (found.norm(dim=1) - 1).abs().max() < 1e-9
    # not in the ten dimensions where nothing varies, mostly in those that vary most
    assert found[:, 10:].square().sum(1).max() < 0.01
    assert found[:, 1].square().mean() > 2 * found[:, 5].square().mean()
    spreads = (rows @ found.T).std(0, correction=0)
    assert spreads.max() < axis.spread
    following = edits.next_components(rows, first)
    assert len(following) == edits.SPAN - 1
    assert ((rows @ following.T).std(0).diff() <= 1e-9).all()


def test_a_size_is_how_far_a_cut_moves_values(values, axis):
    rows = values.flatten(0, 1).flatten(1)
    moved = (edits.cut(axis)(values) - values).flatten(0, 1).flatten(1)
    expected = float(moved.norm(dim=1).square().mean())
    assert float(edits.mean_squares(rows, axis[None])) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["llama", "neox", "gpt2"])
def test_the_last_layer_has_two_names_and_a_cut_there_is_felt(kind, generator):
    model = subject(kind)
    tokens = torch.randint(20, (3, 9), generator=generator)
    part = model.parts.layers[-1].value
    u = torch.randn(part.count * part.width, generator=generator).double()
    u /= u.norm()
    logits = {}
    with torch.no_grad():
        base = last_logits(model.model, tokens)
        for layer in (-1, LAYERS - 1):
            with edited(model, {layer: edits.cut(u)}):
                logits[layer] = last_logits(model.model, tokens)
        with edited(model, {-1: edits.cut(u, keep=1.0)}):
            same = last_logits(model.model, tokens)
    assert torch.equal(same, base)
    assert torch.equal(logits[-1], logits[LAYERS - 1])
    before, after = base.log_softmax(-1), logits[-1].log_softmax(-1)
    assert float((before.exp() * (before - after)).sum(-1).min()) > 1e-6


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
