"""Logits against the published formulas, written out here with plain tensors in float64."""

import math

import pytest
import torch

from tests.models.common import BETAS, SSMAX, tiny_model, tokens


def norm(x, weight):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def ggd(weights, head, i, j):
    mu = math.exp(weights["prior.theta_mu"][head]) - math.exp(-weights["prior.theta_mu"][head])
    distance = abs((j - i) - mu) + 1e-5
    return -math.exp(weights["prior.theta_alpha"][head]) * distance ** float(
        weights["prior.theta_beta"][head]
    )


def rope(x, theta):
    """Turn pairs (m, m + D/2) as complex numbers."""
    length, width = x.shape[-2:]
    pairs = torch.complex(x[..., : width // 2], x[..., width // 2 :])
    frequency = theta ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=-1)


def entropy(log_density):
    share = log_density.softmax(0)
    return float(torch.special.entr(share).sum())


def expected_logits(model, ids, prior):
    config, state = model.config, model.state_dict()
    heads, groups, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    out = []
    for row in ids:
        length = len(row)
        x = state["model.embed_tokens.weight"][row]
        if config.encoding == "sinusoidal":
            for i in range(length):
                for m in range(config.hidden_size):
                    angle = i / 10_000 ** ((m - m % 2) / config.hidden_size)
                    x[i, m] += math.cos(angle) if m % 2 else math.sin(angle)
        for layer in range(config.num_hidden_layers):
            prefix = f"model.layers.{layer}."
            w = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            w |= {k.removeprefix("self_attn."): v for k, v in w.items()}
            h = norm(x, w["input_layernorm.weight"])
            q, k, v = (
                (h @ w[f"{name}_proj.weight"].T).reshape(length, n, width).transpose(0, 1)
                for name, n in (("q", heads), ("k", groups), ("v", groups))
            )
            if config.encoding == "rope":
                q, k = rope(q, 500_000.0), rope(k, 500_000.0)
            mixed = torch.zeros(length, heads, width, dtype=torch.float64)
            for head in range(heads):
                group = head * groups // heads
                for i in range(length):
                    score = torch.stack([q[head, i] @ k[group, j] for j in range(i + 1)])
                    score = score / math.sqrt(width)
                    bias = torch.tensor(
                        [prior(w, head, i, j) for j in range(i + 1)], dtype=torch.float64
                    )
                    factor = 1.0
                    if config.ssmax:
                        log_n = math.log(i + 1)
                        if config.ssmax_horizon is not None and i >= config.ssmax_horizon:
                            within = bias[-config.ssmax_horizon :]
                            log_n = math.log(len(within)) + entropy(bias) - entropy(within)
                        factor = float(w["ssmax.scale"][head]) * log_n
                    if config.ssmax_scope == "content+prior":
                        score = (score + bias) * factor
                    else:
                        score = score * factor + bias
                    weight = (score - score.max()).exp()
                    mixed[i, head] = (weight / weight.sum()) @ v[group, : i + 1]
            x = x + mixed.reshape(length, -1) @ w["o_proj.weight"].T
            h = norm(x, w["post_attention_layernorm.weight"])
            gate = h @ w["mlp.gate_proj.weight"].T
            inner = gate / (1 + (-gate).exp()) * (h @ w["mlp.up_proj.weight"].T)
            x = x + inner @ w["mlp.down_proj.weight"].T
        out.append(norm(x, state["model.norm.weight"]) @ state["lm_head.weight"].T)
    return torch.stack(out)


@pytest.mark.parametrize("ssmax", SSMAX)
@pytest.mark.parametrize("encoding", ["none", "rope", "sinusoidal"])
def test_generalized_gaussian(ssmax, encoding):
    model = tiny_model(dtype=torch.float64, encoding=encoding, **SSMAX[ssmax])
    ids = tokens(2, 11)
    made = model(ids).logits
    assert model.model.layers[0].self_attn.prior.theta_beta.tolist() == pytest.approx(BETAS)
    # RoPE's frequencies come from transformers in float32.
    tolerance = 1e-5 if encoding == "rope" else 1e-9
    torch.testing.assert_close(made, expected_logits(model, ids, ggd), rtol=0, atol=tolerance)


def test_alibi_with_four_heads():
    model = tiny_model(dtype=torch.float64, prior="laplace", ssmax_scope="content")
    slopes = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    ids = tokens(2, 11)
    # tiny_model moves every number called prior; the fixed slopes are a buffer and stay.
    expected = expected_logits(model, ids, lambda w, head, i, j: -slopes[head] * (i - j))
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-9)


def test_nope():
    model = tiny_model(dtype=torch.float64, prior="uniform", ssmax=False)
    ids = tokens(1, 11)
    expected = expected_logits(model, ids, lambda w, head, i, j: 0.0)
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-9)
