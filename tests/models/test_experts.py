"""Experts: each token uses the two its router scores highest, one token at a time here."""

import pytest
import torch

from bayesattn.models.layers import BayesExperts, BayesMLP
from tests.models.common import tiny_config, tiny_model


def expert(layer, at, token):
    """SwiGLU with the rows of one expert."""
    inner = layer.gate_proj.out_features // 4
    rows = slice(at * inner, (at + 1) * inner)
    gate, up = (part.weight[rows] @ token for part in (layer.gate_proj, layer.up_proj))
    return layer.down_proj.weight[:, rows] @ (torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize("used", [1, 2, 4])
@torch.no_grad()
def test_the_sum_of_the_best_experts(used, generator):
    layer = BayesExperts(tiny_config(num_experts=4, num_experts_per_tok=used))
    x = torch.randn(2, 5, layer.router.in_features, generator=generator)
    found = layer(x)
    for token, output in zip(x.flatten(0, 1), found.flatten(0, 1), strict=True):
        scores = layer.router.weight @ token
        best = scores.argsort(descending=True)[:used]
        weights = scores[best].softmax(0)
        outputs = torch.stack([expert(layer, at, token) for at in best.tolist()])
        torch.testing.assert_close(output, weights @ outputs)


def test_experts_that_no_token_uses_learn_nothing():
    torch.manual_seed(0)
    layer = BayesExperts(tiny_config(num_experts=3, num_experts_per_tok=1))
    token = torch.randn(1, layer.router.in_features)
    layer(token).square().sum().backward()
    best = int((layer.router.weight @ token[0]).argmax())
    learnt = (layer.down_proj.weight.grad != 0).any(0).view(3, -1).any(1)
    assert learnt.tolist() == [at == best for at in range(3)]


def test_a_model_has_them_in_every_layer_and_none_by_default():
    layers = tiny_model(num_experts=2).model.layers
    assert all(isinstance(layer.mlp, BayesExperts) for layer in layers)
    assert all(isinstance(layer.mlp, BayesMLP) for layer in tiny_model().model.layers)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_experts": 0}, "num_experts must be a positive integer, not 0"),
        ({"num_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok 3 is more than num_ex"),
    ],
)
def test_bad_numbers_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**settings)
