"""The laws in real models against autograd, float64."""

import numpy as np
import pytest
import torch

from bayesattn.attention.kernels import dense
from bayesattn.dynamics import autograd
from bayesattn.dynamics.model import head_dynamics, loss_of
from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.models.architectures import LSTM, Transformer, build
from bayesattn.models.open import open_tunnel
from bayesattn.tunnels import HMM, Bijection, StickyChain
from bayesattn.zoo import locate

TRANSFORMERS = {
    "plain": {},
    "prior": {"prior": "ggd", "prior_options": {"init": "mixed"}},
    "grouped": {"num_key_value_heads": 2, "prior": "laplace"},
    "ssmax": {
        "num_key_value_heads": 1,
        "prior": "ggd",
        "prior_options": {"init": "alibi"},
        "ssmax": True,
    },
    "content": {"prior": "laplace", "ssmax": True, "ssmax_scope": "content"},
    "rope": {"encoding": "rope", "sliding_window": 5},
    "exempt": {"prior": "laplace", "exempt": "header"},
}


def scene(name, generator):
    tunnel = HMM(3, 3, 6)
    model = build(Transformer(width=32, **TRANSFORMERS[name]), tunnel, seed=1).double().eval()
    # attention that does something: the initial weights attend almost uniformly
    for parameter in model.body.layers.parameters():
        parameter.data.mul_(1.5)
    return model, tunnel.sample(3, generator)


def true_score_gradient(model, batch, layer, monkeypatch):
    """Add zeros to the scores inside the dense kernel of one layer, and differentiate."""
    shifts, original = [], dense.weigh

    def shifted(q, k, log_prior, *args, **kwargs):
        shape = (*q.shape[:3], args[0].shape[-1])
        shifts.append(torch.zeros(shape, dtype=q.dtype, requires_grad=True))
        moved = shifts[-1] if log_prior is None else log_prior + shifts[-1]
        return original(q, k, moved, *args, **kwargs)

    monkeypatch.setattr(dense, "weigh", shifted)
    for module in model.modules():
        if hasattr(module, "_kernel"):
            monkeypatch.setattr(module, "_kernel", lambda: "dense")
    loss = loss_of(model, batch)
    monkeypatch.undo()
    return torch.autograd.grad(loss, shifts[layer])[0]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10 * expected.abs().max().item())
    assert expected.abs().max() > 1e-8


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_both_laws_hold_in_every_head(name, layer, generator, monkeypatch):
    model, batch = scene(name, generator)
    found = head_dynamics(model, batch, layer)
    expected = true_score_gradient(model, batch, layer, monkeypatch)
    assert found.alpha.shape == expected.shape
    for head in range(4):
        close(found.score_gradient[:, head], expected[:, head])
    close(autograd.score_gradient(model, batch, layer), expected)

    leaves = []
    attention = model.body.layers[layer].self_attn
    with attention.v_proj.register_forward_hook(lambda *args: leaves.append(args[2])):
        loss = loss_of(model, batch)
    (gradient,) = torch.autograd.grad(loss, leaves[0])
    gradient = gradient.unflatten(-1, (-1, 8)).transpose(1, 2)
    close(found.value_gradient, gradient)
    close(autograd.value_gradient(model, batch, layer), gradient)


def test_looking_changes_nothing(generator):
    model, batch = scene("grouped", generator)
    before = loss_of(model, batch)
    head_dynamics(model, batch, 0)
    autograd.score_gradient(model, batch, 0)
    autograd.value_gradient(model, batch, 1)
    assert torch.equal(loss_of(model, batch), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_frozen_models_and_no_grad_are_no_obstacle(generator):
    model, batch = scene("prior", generator)
    expected = head_dynamics(model, batch, 1).score_gradient
    model.requires_grad_(False)
    with torch.no_grad():
        assert torch.equal(head_dynamics(model, batch, 1).score_gradient, expected)


def test_visibility(generator):
    model, batch = scene("rope", generator)  # a window of 5
    found = head_dynamics(model, batch, 0)
    length = found.alpha.shape[-1]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    expected = (distance >= 0) & (distance < 5)
    assert torch.equal(found.visible.expand(1, 1, length, length)[0, 0], expected)
    assert torch.equal(found.alpha > 0, expected.expand_as(found.alpha))


def test_features_as_inputs(generator, monkeypatch):
    tunnel = StickyChain(length=6)
    model = build(Transformer(width=16, heads=2), tunnel, seed=0).double()
    batch = tunnel.sample(2, generator)
    expected = true_score_gradient(model, batch, 0, monkeypatch)
    close(head_dynamics(model, batch, 0).score_gradient, expected)


@pytest.mark.parametrize("shared", [False, True])
def test_language_models_with_padding_and_documents(shared, generator, monkeypatch):
    config = BayesConfig(
        vocab_size=11,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        prior="ggd",
        prior_options={"init": "mixed"},
        shared_prior=shared,
        ssmax=True,
        sliding_window=7,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BayesForCausalLM(config).double().eval()
    tokens = torch.randint(11, (2, 9), generator=generator)
    padded = torch.ones(2, 9, dtype=torch.int64)
    padded[1, :3] = 0
    for extra in (
        {"attention_mask": padded},
        {"document_ids": torch.tensor([[0] * 4 + [1] * 5] * 2)},
    ):
        batch = {"input_ids": tokens, "labels": tokens, **extra}
        for layer in (0, 1):
            found = head_dynamics(model, batch, layer)
            assert torch.equal(found.visible.expand_as(found.alpha), found.alpha > 0)
            expected = true_score_gradient(model, batch, layer, monkeypatch)
            close(found.score_gradient, expected)
            close(autograd.score_gradient(model, batch, layer), expected)
            close(found.value_gradient, autograd.value_gradient(model, batch, layer))


def test_score_gradients_are_finite_differences(generator, monkeypatch):
    """Raise single scores inside the dense kernel and watch the loss."""
    model, batch = scene("ssmax", generator)
    gradient = head_dynamics(model, batch, 1).score_gradient
    calls, original = [], dense.weigh

    def loss(place, by):
        calls.clear()

        def raised(q, k, log_prior, *args, **kwargs):
            calls.append(1)
            if len(calls) == 2:  # the second layer
                log_prior = log_prior.expand(len(q), *log_prior.shape[1:]).clone()
                log_prior[place] += by
            return original(q, k, log_prior, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(dense, "weigh", raised)
            for module in model.modules():
                if hasattr(module, "_kernel"):
                    patch.setattr(module, "_kernel", lambda: "dense")
            with torch.no_grad():
                return loss_of(model, batch).item()

    for head in range(4):
        flat = int(gradient[:, head].abs().argmax())
        batch_index, query, key = np.unravel_index(flat, gradient[:, head].shape)
        place = (int(batch_index), head, int(query), int(key))
        numeric = (loss(place, 1e-4) - loss(place, -1e-4)) / 2e-4
        assert gradient[place].item() == pytest.approx(numeric, rel=1e-6)
        assert abs(numeric) > 1e-5


def test_every_head_of_a_shipped_model(generator, monkeypatch):
    model, tunnel = open_tunnel(locate("zoo:bijection-10"))
    model, batch = model.double(), tunnel.sample(4, generator)
    for layer in (0, 1):
        found = head_dynamics(model, batch, layer)
        close(found.score_gradient, true_score_gradient(model, batch, layer, monkeypatch))


def test_bad_input_gets_one_sentence(generator):
    model, batch = scene("plain", generator)
    with pytest.raises(ValueError, match="no attention in layer 2; choose one of 0, 1"):
        head_dynamics(model, batch, 2)
    half = build(Transformer(width=16, attention_layers=1), Bijection(4), seed=0)
    with pytest.raises(ValueError, match="no attention in layer 1; choose one of 0$"):
        head_dynamics(half, Bijection(4).sample(2, generator), 1)
    with pytest.raises(ValueError, match="Predictor has no attention of ours"):
        head_dynamics(build(LSTM(width=16), Bijection(4), seed=0), batch, 0)
    config = BayesConfig(vocab_size=5, hidden_size=16, num_attention_heads=2, num_hidden_layers=1)
    with pytest.raises(ValueError, match="a language model's batch needs labels"):
        head_dynamics(BayesForCausalLM(config), {"input_ids": torch.zeros(1, 3).long()}, 0)
