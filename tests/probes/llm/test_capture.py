"""What is captured of prompts, against what transformers puts out and by the book."""

import pytest
import torch
from torch.nn.functional import pad

from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.probes.llm.capture import (
    NAMES,
    batches,
    capture_prompts,
    reading,
    token_keys,
    visible_keys,
)
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError
from tests.probes.llm.architectures import (
    MODELS,
    WORDS,
    clipping,
    model_of,
    prompts_of,
    subject_of,
)

PROMPTS = prompts_of(6, 3, 6, 11)
LISTS = NAMES[:-1]


@pytest.mark.parametrize("name", MODELS)
def test_states_are_those_that_transformers_puts_out(name):
    """One prompt at a time, through `output_attentions`, `output_hidden_states` and the cache."""
    states = capture_prompts(subject_of(name), PROMPTS)
    model = model_of(name)
    for at, prompt in enumerate(PROMPTS):
        with torch.no_grad():
            out = model(
                torch.tensor([prompt]),
                output_attentions=True,
                output_hidden_states=True,
                use_cache=True,
            )
        torch.testing.assert_close(states.logits[at], out.logits[0, -1])
        torch.testing.assert_close(states.residual[0][at], out.hidden_states[1][0, -1])
        for layer, rows in enumerate(out.attentions):
            expected = pad(rows[0, :, -1], (0, 11 - len(prompt)))
            torch.testing.assert_close(states.attention[layer][at], expected)
            cached = out.past_key_values.layers[layer]
            heads = subject_of(name).parts.layers[layer].cached_heads
            torch.testing.assert_close(states.values[layer][at], cached.values[0, heads, -1])
            torch.testing.assert_close(states.turned_keys[layer][at], cached.keys[0, heads, -1])


@pytest.mark.parametrize("name", ["llama grouped", "gpt-neox", "gpt2", "qwen3", "opt"])
def test_keys_and_outputs_by_the_book(name):
    """Keys before rotation are projected (and normed) inputs; outputs are mixed values."""
    subject, prompt = subject_of(name), PROMPTS[3]
    inputs = {}
    hooks = [
        layer.attention.register_forward_pre_hook(
            lambda _, args, kwargs, at=at: inputs.update(
                {at: args[0] if args else kwargs["hidden_states"]}
            ),
            with_kwargs=True,
        )
        for at, layer in enumerate(subject.parts.layers)
    ]
    states = capture_prompts(subject, [prompt])
    for hook in hooks:
        hook.remove()
    keys = token_keys(subject, [prompt])
    for at, layer in enumerate(subject.parts.layers):
        x, attention = inputs[at][0], layer.attention
        if name == "gpt2":
            k, v = attention.c_attn(x).split(24, -1)[1:]
        elif name == "gpt-neox":
            k, v = attention.query_key_value(x).view(-1, 6, 3, 4).unbind(2)[1:]
        else:
            k, v = attention.k_proj(x), attention.v_proj(x)
        groups, width = layer.key.columns.shape
        k, v = k.reshape(-1, groups, width), v.reshape(-1, groups, width)
        k = attention.k_norm(k) if name == "qwen3" else k
        torch.testing.assert_close(keys["keys"][at], k)
        torch.testing.assert_close(states.keys[at][0], k[-1])
        rows = states.attention[at][0]
        repeated = v.repeat_interleave(6 // groups, 1)
        torch.testing.assert_close(
            states.outputs[at][0], torch.einsum("ht,thd->hd", rows, repeated)
        )
    turns = not torch.allclose(keys["keys"][0], keys["turned_keys"][0])
    assert turns == (name not in ("gpt2", "opt"))
    assert torch.equal(keys["keys"][0][0], keys["turned_keys"][0][0])


def test_prompts_keep_their_order():
    """Whatever goes together in a pass, each prompt gets the numbers of its own."""
    subject = subject_of("mistral window")
    prompts = prompts_of(5, 2, 5, 7, 2, 5, 1)
    for batch_tokens in (1, 10, 2048):
        states = capture_prompts(subject, prompts, batch_tokens=batch_tokens)
        assert states.lengths.tolist() == [5, 2, 5, 7, 2, 5, 1]
        assert states.visible[0].tolist() == [4, 2, 4, 4, 2, 4, 1]
        for at, prompt in enumerate(prompts):
            own = capture_prompts(subject, [prompt])
            torch.testing.assert_close(states.logits[at], own.logits[0])
            for name in LISTS:
                for layer in range(2):
                    mine = getattr(states, name)[layer][at]
                    if name == "attention":
                        assert not mine[:, len(prompt) :].any()
                        mine = mine[:, : len(prompt)]
                    torch.testing.assert_close(mine, getattr(own, name)[layer][0])


def test_batches():
    prompts = [[1], [2, 3], [4], [5], [6, 7]]
    found = [(which, tokens.tolist()) for which, tokens in batches(prompts, 2)]
    assert found == [([0, 2], [[1], [4]]), ([3], [[5]]), ([1], [[2, 3]]), ([4], [[6, 7]])]


def test_only_what_is_asked_for():
    states = capture_prompts(subject_of("llama"), PROMPTS, ["values", "residual"])
    assert len(states.values) == len(states.residual) == 2
    assert not states.keys and not states.attention and not states.logits.numel()
    assert capture_prompts(subject_of("llama"), PROMPTS, ["logits"]).logits.shape == (4, WORDS)


def test_token_keys():
    prompts = prompts_of(4, 2, 4)
    found = token_keys(subject_of("llama grouped"), prompts)
    states = capture_prompts(subject_of("llama grouped"), prompts)
    last = [3, 5, 9]
    for layer in range(2):
        torch.testing.assert_close(found["keys"][layer][last], states.keys[layer])
        torch.testing.assert_close(found["turned_keys"][layer][last], states.turned_keys[layer])


@pytest.mark.parametrize("name", ["llama grouped", "gpt-neox", "mistral window", "falcon grouped"])
def test_without_hooks(name):
    subject = subject_of(name)
    states = capture_prompts(subject, PROMPTS, mode="cache")
    expected = capture_prompts(subject, PROMPTS)
    assert not states.keys and not states.outputs and not states.residual
    assert torch.equal(states.logits, expected.logits)
    for layer in range(2):
        for field in ("values", "turned_keys", "attention", "visible"):
            assert torch.equal(getattr(states, field)[layer], getattr(expected, field)[layer])
    with pytest.raises(NotApplicableError, match="keys cannot be captured"):
        capture_prompts(subject, PROMPTS, ["keys"], mode="cache")


def test_a_model_that_cannot_be_hooked():
    subject = clipping(0.5)
    states = capture_prompts(subject, PROMPTS)
    assert states.values[1].abs().max() == 0.5 and states.visible[0].tolist() == [6, 3, 6, 11]
    assert not states.keys and not states.residual
    assert check_prompts(subject, PROMPTS).good
    for names in (["keys"], ["values", "outputs"]):
        with pytest.raises(NotApplicableError, match="cannot be captured: the key projections and"):
            capture_prompts(subject, PROMPTS, names)


def test_our_own_models():
    """They give attention away only if asked, and have priors for masks."""
    torch.manual_seed(0)
    config = BayesConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        prior="laplace",
        sliding_window=5,
    )
    subject = Subject.of(BayesForCausalLM(config))
    assert subject.parts.mode == "hooks" and subject.parts.asks_for_attention
    states = capture_prompts(subject, PROMPTS)
    with torch.no_grad():
        out = subject.model(torch.tensor([PROMPTS[3]]), output_attentions=True)
    torch.testing.assert_close(states.attention[1][3], out.attentions[1][0, :, -1])
    torch.testing.assert_close(states.logits[3], out.logits[0, -1])
    assert states.visible[0].tolist() == [5, 3, 5, 5]


def test_visible_keys():
    rows = torch.zeros(2, 3, 4, 4)
    rows[1, 2, -1, 1:] = torch.tensor([0.1, 0.0, 0.9])
    assert visible_keys((), rows).tolist() == [3]
    least = torch.finfo(torch.float32).min
    additive = torch.zeros(1, 1, 4, 4)
    additive[..., -1, :2] = least
    assert visible_keys((None, torch.zeros(2, 4, 4), additive), rows).tolist() == [2]
    for meaning in (True, False):
        mask = torch.full((1, 1, 4, 4), not meaning)
        mask[..., -1, 3:] = meaning
        assert visible_keys((mask,), rows).tolist() == [1]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "there are no prompts: give one at least"),
        ([[1, 2], []], "the prompt number 1 has no tokens: leave it out"),
        ([[1] * 41], "has 41 tokens, and llama reads no more than 40: shorten it"),
        ([[1, 61]], "tokens that llama does not know: they are numbered 0 to 60"),
        ([[-1]], "does not know"),
    ],
)
def test_prompts_that_cannot_be_read(prompts, message):
    with pytest.raises(ValueError, match=message):
        capture_prompts(subject_of("llama"), prompts)
    with pytest.raises(ValueError, match=message):
        token_keys(subject_of("llama"), prompts)


def test_unknown_names():
    with pytest.raises(ValueError, match="'queries' cannot be captured; there are values, keys"):
        capture_prompts(subject_of("llama"), PROMPTS, ["queries"])


def test_hooks_are_taken_off_after_an_error():
    subject = Subject.of(model_of("phi"))
    with (
        pytest.raises(IndexError),
        reading(subject, ["values", "keys", "outputs", "residual"]) as read,
    ):
        read(torch.tensor([[WORDS + 5]]))
    for module in subject.model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
