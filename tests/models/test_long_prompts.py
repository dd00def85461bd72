"""What makes long prompts cheap: keys left out, and a last layer only where it is asked for."""

import pytest
import torch
from transformers import DynamicCache

from tests.attention.scenes import count_pairs
from tests.models.common import ENCODING_NAMES, SSMAX, tiny_config, tiny_model, tokens

SETTINGS = [
    {},
    {"shared_prior": True},
    {"exempt": 5},
    {"attention_layers": 1},
    {"sliding_window": 9},
    {"encoding": "learned"},
    *({"encoding": name} for name in ENCODING_NAMES),
    *SSMAX.values(),
]


@pytest.mark.parametrize("settings", SETTINGS)
@torch.no_grad()
def test_logits_that_are_kept_are_those_of_the_full_forward(settings):
    model = tiny_model(**settings)
    ids = tokens(2, 40)
    full = model(ids).logits
    for keep in (1, 7, 40, 90):
        made = model(ids, logits_to_keep=keep).logits
        torch.testing.assert_close(made, full[:, -keep:], rtol=1e-4, atol=1e-4)
    for chosen in ([], [39], [3, 17], [30, 5, 5], [-1], [2, -3]):
        keep = torch.tensor(chosen, dtype=torch.long)
        made = model(ids, logits_to_keep=keep).logits
        torch.testing.assert_close(made, full[:, keep], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_with_padding_and_documents():
    model = tiny_model(encoding="rope")
    ids = tokens(2, 20)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    full = model(ids, attention_mask=mask).logits
    made = model(ids, attention_mask=mask, logits_to_keep=3).logits
    torch.testing.assert_close(made, full[:, -3:], rtol=1e-4, atol=1e-4)
    documents = torch.arange(20).expand(2, -1) // 12
    full = model(ids, document_ids=documents).logits
    made = model(ids, document_ids=documents, logits_to_keep=4).logits
    torch.testing.assert_close(made, full[:, -4:], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_tokens_without_logits_are_cached_all_the_same():
    model = tiny_model()
    ids = tokens(2, 30)
    cache = DynamicCache(config=model.config)
    for start in (0, 10):
        nothing = torch.tensor([], dtype=torch.long)
        part = ids[:, start : start + 10]
        out = model(part, past_key_values=cache, logits_to_keep=nothing)
        assert out.logits.shape == (2, 0, 37)
    made = model(ids[:, 20:], past_key_values=cache).logits
    torch.testing.assert_close(made, model(ids).logits[:, 20:], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_last_layer_asks_only_for_what_is_kept(monkeypatch):
    model = tiny_model()
    rows = []
    for layer in model.model.layers:
        project = layer.self_attn.q_proj
        monkeypatch.setattr(
            project, "forward", lambda x, f=project.forward: rows.append(x.shape[1]) or f(x)
        )
    model(tokens(1, 12), logits_to_keep=2)
    assert rows == [12, 2]
    # recorded states have all tokens, so all are computed
    for name in ("output_hidden_states", "output_attentions"):
        rows.clear()
        out = model(tokens(1, 12), logits_to_keep=2, **{name: True})
        assert rows == [12, 12] and out.logits.shape[1] == 2


def test_gradients_of_kept_logits():
    model, ids = tiny_model(dtype=torch.float64), tokens(2, 15)
    grads = []
    for logits in (model(ids).logits[:, -4:], model(ids, logits_to_keep=4).logits):
        model.zero_grad()
        logits.square().sum().backward()
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for full, kept in zip(*grads, strict=True):
        torch.testing.assert_close(kept, full)


@pytest.mark.parametrize("settings", [{}, {"shared_prior": True}, {"encoding": "rope"}])
@torch.no_grad()
def test_a_tolerance_leaves_out_keys_and_changes_little(settings, monkeypatch):
    model, ids = tiny_model(**settings), tokens(1, 900)
    for name, parameter in model.named_parameters():
        if name.endswith("theta_beta"):
            parameter.copy_(torch.tensor([-0.5, 0.8, 1.0, 1.2]))
        elif name.endswith("theta_alpha"):
            parameter.fill_(-2.0)
        elif "q_proj" in name:
            parameter.mul_(0.1)  # so that the prior decides
    counted = count_pairs(monkeypatch)
    exact = model(ids).logits
    all_that_counts = counted["forward"]
    read = []
    for tolerance in (1e-9, 0.1):
        model.config.tolerance = tolerance
        counted["forward"] = 0
        difference = (model(ids).logits - exact).abs().max()
        read.append((counted["forward"], difference))
    (many, near), (few, far) = read
    assert few < min(many, all_that_counts) and many < 8 * 900 * 900 * 0.8
    assert near < 1e-4 and far < 0.1


@torch.no_grad()
def test_a_tolerance_with_a_cache_and_recorded_attention():
    model, ids = tiny_model(tolerance=1e-6), tokens(1, 300)
    full = tiny_model()(ids).logits
    cache = DynamicCache(config=model.config)
    made = [model(ids[:, a:b], past_key_values=cache).logits for a, b in ((0, 200), (200, 300))]
    torch.testing.assert_close(torch.cat(made, dim=1), full, rtol=1e-4, atol=1e-4)
    out = model(ids, output_attentions=True)
    assert out.attentions[0].shape == (1, 4, 300, 300)


def test_a_tolerance_is_refused_in_training():
    model = tiny_model(tolerance=1e-3).train()
    with pytest.raises(ValueError, match="for inference only; set config.tolerance to None"):
        model(tokens(1, 100))
    with torch.no_grad(), pytest.raises(ValueError, match="for inference only"):
        model(tokens(1, 100))
    with pytest.raises(ValueError, match="without gradients"):
        model.eval()(tokens(1, 100))


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -0.1, float("nan")])
def test_a_tolerance_is_a_share(tolerance):
    with pytest.raises(ValueError, match="tolerance is a share of the posterior"):
        tiny_config(tolerance=tolerance)


def test_a_tolerance_is_kept_with_the_config(tmp_path):
    tiny_config(tolerance=1e-3).save_pretrained(tmp_path)
    assert type(tiny_config()).from_pretrained(tmp_path).tolerance == 1e-3
