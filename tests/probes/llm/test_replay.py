"""Late layers over recorded states give what whole passes give."""

import pytest
import torch

from bayesattn.probes.llm.interventions import cut, edited
from bayesattn.probes.llm.replay import last_logits, record
from tests.probes.llm.sula_toys import LAYERS, subject


def prompts(count=5, length=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(20, (count, length), generator=generator).tolist()


def axes(model, layer, count=1, seed=1):
    part = model.parts.layers[layer].value
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(count, part.count * part.width, generator=generator).double()
    return found / found.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("kind", ["llama", "neox", "gpt2"])
@pytest.mark.parametrize("first", [0, 1, LAYERS - 1])
@torch.no_grad()
def test_edits_have_the_same_effect_as_in_whole_passes(kind, first):
    model = subject(kind)
    replay = record(model, prompts(), first)
    assert (replay.states is None) == (first == 0)
    assert torch.equal(replay.run({}), last_logits(model.model, replay.tokens))
    u = axes(model, first)[0]
    with edited(model, {first: cut(u), LAYERS - 1: cut(u)} if first < 3 else {first: cut(u)}):
        whole = last_logits(model.model, replay.tokens)
    again = replay.run({first: cut(u), LAYERS - 1: cut(u)})
    assert torch.equal(again, whole) and not torch.equal(again, replay.logits)


@torch.no_grad()
def test_several_axes_at_once_are_one_after_another():
    model = subject()
    replay, several = record(model, prompts(), 2), axes(model, 2, count=3)
    together = replay.run({2: cut(several)}, repeats=3).unflatten(0, (3, -1))
    for at in range(3):
        torch.testing.assert_close(together[at], replay.run({2: cut(several[at])}))


@torch.no_grad()
def test_layers_below_are_not_run_again(monkeypatch):
    model = subject()
    replay, ran = record(model, prompts(), 2), []
    hooks = [
        layer.attention.register_forward_hook(lambda *_, at=at: ran.append(at))
        for at, layer in enumerate(model.parts.layers)
    ]
    replay.run({})
    for hook in hooks:
        hook.remove()
    assert ran == [2, 3]


@torch.no_grad()
def test_the_model_is_whole_afterwards_even_if_an_edit_fails():
    model = subject()
    replay = record(model, prompts(), 2)

    def fail(values):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        replay.run({3: fail})
    assert not any("forward" in vars(layer.block) for layer in model.parts.layers)
    assert torch.equal(last_logits(model.model, replay.tokens), replay.logits)


@torch.no_grad()
def test_a_model_whose_layers_share_more_than_states_is_run_whole():
    """A hook that the third block's output depends on the first having run."""
    model = subject("llama", seed=5)
    first, third = model.parts.layers[0].attention, model.parts.layers[2].block
    seen = []
    hooks = [
        first.register_forward_hook(lambda *_: seen.append(1)),
        third.register_forward_hook(lambda _, __, out: out + (1.0 if seen else 0.0)),
    ]
    try:
        model.model.register_forward_pre_hook(lambda *_: seen.clear())
        replay = record(model, prompts(), 1)
        assert replay.states is None
        assert torch.equal(replay.run({}), replay.logits)
    finally:
        for hook in hooks:
            hook.remove()


def test_what_was_read_cannot_be_edited():
    replay = record(subject(), prompts(), 2)
    with pytest.raises(ValueError, match="layer 1 was read already: replay begins at 2"):
        replay.run({1: lambda values: values})
    with pytest.raises(ValueError, match="there is no layer 9"):
        replay.run({9: lambda values: values})


def test_prompts_have_one_length():
    with pytest.raises(ValueError, match="prompts of one length"):
        record(subject(), [[1, 2], [1, 2, 3]], 1)
