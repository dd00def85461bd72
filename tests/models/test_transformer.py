import copy

import pytest
import torch
from transformers import DynamicCache

from bayesattn.models import BayesForCausalLM, BayesModel
from bayesattn.priors import Uniform
from tests.models.common import ENCODING_NAMES, SSMAX, tiny_config, tiny_model, tokens


def loss_and_gradients(model, ids, **inputs):
    model = copy.deepcopy(model).train()
    loss = model(ids, labels=ids, **inputs).loss
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("encoding", ENCODING_NAMES)
@pytest.mark.parametrize("ssmax", SSMAX)
@pytest.mark.parametrize("given", ["document_ids", "position_ids"])
@torch.no_grad()
def test_packed_documents_are_separate_forwards(encoding, ssmax, given):
    model = tiny_model(encoding=encoding, exempt=2, **SSMAX[ssmax])
    lengths = [6, 1, 9]
    ids = tokens(2, sum(lengths))
    if given == "document_ids":
        packing = torch.tensor([[5] * 6 + [9] + [5] * 9]).expand(2, -1)
    else:
        packing = torch.cat([torch.arange(n) for n in lengths])[None]
    out = model(ids, **{given: packing})
    separate = torch.cat([model(part).logits for part in ids.split(lengths, dim=1)], dim=1)
    torch.testing.assert_close(out.logits, separate, rtol=1e-4, atol=1e-4)
    assert out.past_key_values is None
    assert (model(ids).logits - separate).abs().max() > 1e-2


@torch.no_grad()
def test_exempt_keys_have_no_prior():
    ids = tokens(2, 9)
    none, some, all_keys = (tiny_model(exempt=n)(ids).logits for n in (0, 3, 9))
    uniform = tiny_model(prior="uniform")
    uniform.load_state_dict(tiny_model().state_dict(), strict=False)
    torch.testing.assert_close(all_keys, uniform(ids).logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(some[:, :3], all_keys[:, :3], rtol=1e-4, atol=1e-4)
    assert (some - all_keys).abs().max() > 1e-2
    assert (some - none).abs().max() > 1e-2


@torch.no_grad()
def test_right_padding_is_harmless():
    model = tiny_model()
    ids = tokens(2, 10)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    made = model(ids, attention_mask=mask).logits
    torch.testing.assert_close(made[1:, :6], model(ids[1:, :6]).logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_causal():
    model = tiny_model(encoding="sinusoidal")
    ids = tokens(1, 12)
    other = ids.clone()
    other[0, 7] = (other[0, 7] + 1) % 37
    before, after = model(ids).logits, model(other).logits
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert (before[:, 7] - after[:, 7]).abs().max() > 1e-3


@torch.no_grad()
def test_late_layers_without_attention():
    model = tiny_model(attention_layers=1, num_hidden_layers=3)
    assert {n.split(".")[2] for n, _ in model.named_parameters() if "self_attn" in n} == {"0"}
    out = model(tokens(2, 9), output_attentions=True, output_hidden_states=True)
    assert len(out.attentions) == 1
    x = out.hidden_states[1]
    for layer in model.model.layers[1:]:
        gate, up, down = layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj
        inner = layer.post_attention_layernorm(x)
        x = x + down(torch.nn.functional.silu(gate(inner)) * up(inner))
    torch.testing.assert_close(model.lm_head(model.model.norm(x)), out.logits)
    # As many as there are layers is the same as not saying it.
    every, plain = tiny_model(attention_layers=2), tiny_model()
    torch.testing.assert_close(every(tokens(2, 9)).logits, plain(tokens(2, 9)).logits)


@torch.no_grad()
def test_grouped_heads_are_repeated_heads():
    grouped = tiny_model(num_key_value_heads=2)
    full = tiny_model(num_key_value_heads=4)
    state = grouped.state_dict()
    for name, weight in state.items():
        if "k_proj" in name or "v_proj" in name:
            state[name] = weight.unflatten(0, (2, 8)).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    ids = tokens(2, 9)
    torch.testing.assert_close(full(ids).logits, grouped(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"shared_prior": True}, {"encoding": "rope"}])
def test_one_token(settings):
    model = tiny_model(**settings)
    loss_and_gradients(model, tokens(3, 2))
    logits = model(tokens(3, 1)).logits
    assert logits.shape == (3, 1, 37)
    assert logits.isfinite().all()


@pytest.mark.parametrize("settings", [{}, {"shared_prior": True}, {"sliding_window": 4}])
@torch.no_grad()
def test_attentions_and_hidden_states(settings):
    model = tiny_model(**settings)
    ids = tokens(2, 9)
    plain = model(ids).logits
    out = model(ids, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits, plain, rtol=1e-4, atol=1e-4)
    assert len(out.attentions) == 2
    assert len(out.hidden_states) == 3
    for weights in out.attentions:
        assert weights.shape == (2, 4, 9, 9)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 9))
        assert weights.triu(1).eq(0).all()
    assert plain.shape == (2, 9, 37)
    assert model(ids).attentions is None
    # The weights are the posterior itself: they rebuild the first layer's output.
    layer = model.model.layers[0]
    x = layer.input_layernorm(out.hidden_states[0])
    v = layer.self_attn.v_proj(x).unflatten(-1, (2, 8)).transpose(1, 2).repeat_interleave(2, dim=1)
    x = out.hidden_states[0] + layer.self_attn.o_proj(
        (out.attentions[0] @ v).transpose(1, 2).flatten(2)
    )
    x = x + layer.mlp(layer.post_attention_layernorm(x))
    torch.testing.assert_close(x, out.hidden_states[1], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_attentions_with_a_cache():
    model = tiny_model()
    ids = tokens(1, 9)
    full = model(ids, output_attentions=True).attentions[1]
    cache = DynamicCache()
    model(ids[:, :6], past_key_values=cache)
    part = model(ids[:, 6:], past_key_values=cache, output_attentions=True).attentions[1]
    torch.testing.assert_close(part, full[:, :, 6:], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_logits_to_keep():
    model = tiny_model()
    ids = tokens(2, 9)
    full = model(ids).logits
    torch.testing.assert_close(model(ids, logits_to_keep=3).logits, full[:, -3:])
    chosen = torch.tensor([1, 4])
    torch.testing.assert_close(model(ids, logits_to_keep=chosen).logits, full[:, chosen])


def test_loss():
    model = tiny_model()
    ids = tokens(2, 9)
    labels = ids.clone()
    labels[0, :4] = -100
    out = model(ids, labels=labels)
    expected = torch.nn.functional.cross_entropy(
        out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
    )
    torch.testing.assert_close(out.loss, expected)
    # The Trainer divides by the tokens of all accumulation steps.
    torch.testing.assert_close(
        model(ids, labels=labels, num_items_in_batch=26).loss, expected * 13 / 26
    )


@torch.no_grad()
def test_embeddings_instead_of_tokens():
    model = tiny_model(encoding="sinusoidal")
    ids = tokens(2, 9)
    made = model(inputs_embeds=model.get_input_embeddings()(ids)).logits
    torch.testing.assert_close(made, model(ids).logits)


def test_tuples_on_request():
    model = tiny_model()
    ids = tokens(1, 3)
    loss, logits = model(ids, labels=ids, return_dict=False, use_cache=False)
    assert (loss.shape, logits.shape) == ((), (1, 3, 37))


def test_no_cache_while_training():
    model = tiny_model()
    assert model(tokens(1, 3)).past_key_values is not None
    assert model.train()(tokens(1, 3)).past_key_values is None
    assert model(tokens(1, 3), use_cache=True).past_key_values is not None


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("settings", [{}, {"shared_prior": True}, {"attention_layers": 1}])
def test_gradient_checkpointing(settings, reentrant):
    model = tiny_model(**settings)
    ids = tokens(2, 9)
    expected_loss, expected = loss_and_gradients(model, ids)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    loss, made = loss_and_gradients(model, ids)
    torch.testing.assert_close(loss, expected_loss)
    assert made.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient is not None, name
        torch.testing.assert_close(made[name], gradient, msg=name)
    with pytest.raises(ValueError, match="gradient checkpointing would drop past_key_values"):
        cache = copy.deepcopy(model).eval()(ids).past_key_values
        model.train()(ids, past_key_values=cache)


def test_shared_prior_is_one_prior():
    model = tiny_model(shared_prior=True)
    names = [n for n, _ in model.named_parameters() if "prior" in n]
    assert names == [f"model.prior.theta_{n}" for n in ("alpha", "beta", "mu")]
    # With the same numbers in every layer, sharing changes nothing.
    separate = tiny_model(shared_prior=False)
    state = model.state_dict()
    for layer in range(2):
        for name in ("alpha", "beta", "mu"):
            key = f"model.layers.{layer}.self_attn.prior.theta_{name}"
            state[key] = state[f"model.prior.theta_{name}"]
    separate.load_state_dict({k: v for k, v in state.items() if not k.startswith("model.prior.")})
    ids = tokens(2, 9)
    torch.testing.assert_close(model(ids).logits, separate(ids).logits, rtol=1e-4, atol=1e-4)


def test_frozen_temperature():
    model = BayesForCausalLM(tiny_config(ssmax_learned=False))
    assert not any(p.requires_grad for n, p in model.named_parameters() if "ssmax" in n)


@pytest.mark.parametrize("encoding", ENCODING_NAMES)
def test_autocast(encoding):
    model = tiny_model(encoding=encoding)
    ids = tokens(2, 9)
    expected, expected_gradients = loss_and_gradients(model, ids)
    with torch.autocast("cpu", torch.bfloat16):
        loss, gradients = loss_and_gradients(model, ids)
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0.05)
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32
        near = torch.nn.functional.cosine_similarity(
            gradient.flatten(), expected_gradients[name].flatten(), dim=0
        )
        assert near > 0.9, name


@pytest.mark.parametrize("name", ["eager", "sdpa"])
@torch.no_grad()
def test_attention_implementations_agree(name):
    model = tiny_model(dtype=torch.float32)
    ids = tokens(2, 70)
    expected = model(ids).logits
    model.set_attn_implementation(name)
    assert model.config._attn_implementation == name
    torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
def test_attention_implementation_names_a_kernel(implementation):
    model = BayesForCausalLM._from_config(tiny_config(), attn_implementation=implementation)
    attention = model.model.layers[0].self_attn
    expected = {"eager": "dense", "sdpa": "auto", "flex_attention": "flex"}[implementation]
    assert attention._kernel() == expected


@pytest.mark.parametrize("name", ["flash_attention_2", "paged|eager", "bogus"])
def test_other_implementations_are_refused(name):
    message = "cannot add a prior; choose one of eager, sdpa, flex_attention"
    with pytest.raises(ValueError, match=message):
        BayesForCausalLM._from_config(tiny_config(), attn_implementation=name)
    with pytest.raises(ValueError, match=message):
        tiny_model().set_attn_implementation(name)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({}, ValueError, "pass exactly one of input_ids and inputs_embeds"),
        ({"input_ids": tokens(1, 3), "document_id": 1}, TypeError, "cannot honour document_id=1"),
        ({"input_ids": tokens(1, 3), "is_causal": False}, TypeError, "cannot honour is_causal=Fa"),
        ({"input_ids": tokens(1, 3), "seq_idx": 0}, TypeError, "cannot honour seq_idx=0"),
    ],
)
def test_inputs_it_cannot_honour(inputs, error, message):
    with pytest.raises(error, match=message):
        tiny_model()(**inputs)


def test_a_config_edited_after_it_was_made():
    config = tiny_config(encoding="rope")
    config.rope_parameters = {"rope_type": "yarn", "factor": 2.0}
    with pytest.raises(ValueError, match="rope_theta must be a positive number, not None"):
        BayesModel(config)


def test_stated_initialisation():
    torch.manual_seed(0)
    mixed = BayesForCausalLM(tiny_config(prior_options={"init": "mixed"}))
    for layer in mixed.model.layers:
        prior = layer.self_attn.prior
        assert prior.theta_beta.tolist() == [1, 1, 0, 0]
        torch.testing.assert_close(prior.theta_alpha.exp(), torch.tensor([0.5, 2**-4, 1, 1]))
        assert layer.self_attn.ssmax.scale.tolist() == [1, 1, 1, 1]
        assert layer.input_layernorm.weight.eq(1).all()
    # PyTorch's own: uniform in ±1/sqrt(fan_in) for matrices, normal for embeddings.
    weight = mixed.model.layers[0].mlp.down_proj.weight
    assert weight.abs().max() <= 64**-0.5
    assert weight.std().item() == pytest.approx((3 * 64) ** -0.5, rel=0.1)
    assert mixed.model.embed_tokens.weight.std().item() == pytest.approx(1, rel=0.1)
    uniform = BayesForCausalLM(tiny_config(prior="uniform"))
    assert isinstance(uniform.model.layers[0].self_attn.prior, Uniform)


def test_compiled():
    torch.compiler.reset()
    model = tiny_model(encoding="rope", num_hidden_layers=1)
    ids = tokens(2, 9)
    expected_loss, expected = loss_and_gradients(model, ids)
    compiled = torch.compile(model.train(), backend="aot_eager", fullgraph=True)
    loss = compiled(ids, labels=ids).loss
    loss.backward()
    torch.testing.assert_close(loss.detach(), expected_loss)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@torch.no_grad()
def test_compiled_to_machine_code():
    """Forward alone: each kernel of the backward would take the compiler seconds more.

    That there is one graph, gradients included, is tested above.
    """
    torch.compiler.reset()
    model = tiny_model(encoding="rope", num_hidden_layers=1)
    ids = tokens(2, 9)
    found = torch.compile(model)(ids, use_cache=False).logits
    torch.testing.assert_close(found, model(ids).logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_compiled_with_a_mask_and_a_cache():
    torch.compiler.reset()
    model = tiny_model(encoding="rope", num_hidden_layers=1)
    compiled = torch.compile(model, backend="eager")
    ids = tokens(2, 9)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    expected = model(ids, attention_mask=mask).logits
    first = compiled(ids[:, :6], attention_mask=mask[:, :6])
    rest = compiled(ids[:, 6:], attention_mask=mask, past_key_values=first.past_key_values)
    made = torch.cat((first.logits, rest.logits), dim=1)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    mask[1, 5] = 0
    with pytest.raises(ValueError, match="zeros between ones"):
        compiled(ids, attention_mask=mask)
