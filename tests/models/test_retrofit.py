import copy
import itertools
import math

import pytest
import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    BloomConfig,
    BloomForCausalLM,
    DynamicCache,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.masking_utils import eager_mask

from bayesattn.attention import SSMax
from bayesattn.models import (
    load_prior_state_dict,
    parameter_groups,
    prior_state_dict,
    retrofit,
    save_prior_state_dict,
)
from bayesattn.models.interface import Sight, bayes_mask
from bayesattn.priors import GeneralizedGaussian, Laplace
from tests.models.common import BETAS, tiny_model, tokens

SIZE = {
    "vocab_size": 37,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
GROUPED = SIZE | {"num_key_value_heads": 2}
QWEN = GROUPED | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
HOSTS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)),
    "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZE)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=None)),
    "mistral-sliding": lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=6)),
    "qwen2-hybrid": lambda: Qwen2ForCausalLM(Qwen2Config(**QWEN)),
}


def host(name):
    torch.manual_seed(0)
    model = HOSTS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)  # std 0.02 gives nearly constant logits
    return model


def with_priors(name, **settings):
    """A host whose heads have the shapes of `BETAS`."""
    model = retrofit(host(name), **settings)
    shift = torch.tensor([-1.0, -0.5, -2.0, -3.0])
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("theta_beta"):
                parameter.copy_(torch.tensor(BETAS))
            elif parameter_name.endswith("theta_alpha"):
                parameter.copy_(shift)
            elif parameter_name.endswith("ssmax.scale"):
                parameter.copy_(torch.tensor([0.4, 0.7, 0.5, 0.6]))
    return model


def oracle_attention(module, query, key, value, attention_mask, scaling, **_):
    """Loops over heads and queries; an additive 4-D mask from transformers' eager masking."""
    batch, heads, length, _ = query.shape
    groups = key.shape[1]
    out = torch.zeros(batch, length, heads, value.shape[-1])
    for b, h, i in itertools.product(range(batch), range(heads), range(length)):
        row = attention_mask[b, 0, i]
        seen = [j for j in range(key.shape[2]) if row[j] > -1]
        if not seen:
            continue
        g = h * groups // heads
        score = torch.stack([query[b, h, i] @ key[b, g, j] for j in seen]) * scaling
        alpha, beta = (float(getattr(module.prior, f"theta_{n}")[h]) for n in ("alpha", "beta"))
        bias = torch.tensor([-math.exp(alpha) * (abs(i - j) + 1e-5) ** beta for j in seen])
        score = score + bias
        if getattr(module, "ssmax", None) is not None:
            log_n = math.log(len(seen))
            horizon = module.ssmax.horizon
            if horizon is not None and len(seen) > horizon:
                parts = [part.double().softmax(-1) for part in (bias, bias[-horizon:])]
                grown, before = (float(torch.special.entr(part).sum()) for part in parts)
                log_n = math.log(horizon) + grown - before
            score = score * float(module.ssmax.scale[h]) * log_n
        out[b, i, h] = score.softmax(-1) @ torch.stack([value[b, g, j] for j in seen])
    return out, None


AttentionInterface.register("oracle", oracle_attention)
AttentionMaskInterface.register("oracle", eager_mask)


def oracle(model, ids, **inputs):
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("oracle")
    return twin(ids, use_cache=False, **inputs).logits


def padded(ids):
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    return mask


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("prior", ["uniform", "ggd", "bucketed"])
@torch.no_grad()
def test_a_uniform_prior_changes_nothing(name, prior):
    original = host(name)
    model = retrofit(host(name), prior=prior)
    ids = tokens(2, 20)
    mask = padded(ids)
    torch.testing.assert_close(model(ids).logits, original(ids).logits, rtol=0, atol=1e-5)
    made, expected = (m(ids, attention_mask=mask).logits for m in (model, original))
    torch.testing.assert_close(made[mask == 1], expected[mask == 1], rtol=0, atol=1e-5)
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
    assert model.generate(ids, **settings).tolist() == original.generate(ids, **settings).tolist()


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("ssmax", [False, True, SSMax(4, horizon=4)])
@torch.no_grad()
def test_the_prior_is_added(name, ssmax):
    model = with_priors(name, ssmax=ssmax)
    ids = tokens(2, 14)
    mask = padded(ids)
    made = model(ids, attention_mask=mask).logits
    expected = oracle(model, ids, attention_mask=mask)
    torch.testing.assert_close(made[mask == 1], expected[mask == 1], rtol=1e-4, atol=1e-4)
    assert (made - host(name)(ids, attention_mask=mask).logits).abs().max() > 1e-2


@torch.no_grad()
def test_content_scope():
    model = with_priors("llama", ssmax=SSMax(4, scope="content"))
    other = with_priors("llama", ssmax=True)
    ids = tokens(1, 14)
    assert (model(ids).logits - other(ids).logits).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("name", HOSTS)
@torch.no_grad()
def test_decoding_is_the_full_forward(name, kind):
    model = with_priors(name, ssmax=True)
    ids = tokens(2, 23)
    full = model(ids).logits
    mask = padded(ids)
    full_padded = model(ids, attention_mask=mask).logits
    for chunk in (1, 7):
        for given, expected in ((None, full), (mask, full_padded)):
            cache = DynamicCache(config=model.config)
            if kind == "static":
                cache = StaticCache(config=model.config, max_cache_len=30)
            parts = []
            for start in range(0, 23, chunk):
                stop = min(start + chunk, 23)
                step = None if given is None else given[:, :stop]
                positions = None
                if given is not None:
                    positions = (given.cumsum(-1) - 1).clamp(min=0)[:, start:stop]
                parts.append(
                    model(
                        ids[:, start:stop],
                        past_key_values=cache,
                        attention_mask=step,
                        position_ids=positions,
                    ).logits
                )
            made = torch.cat(parts, dim=1)
            keep = mask == 1 if given is not None else torch.ones_like(mask) == 1
            torch.testing.assert_close(made[keep], expected[keep], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", HOSTS)
def test_generate_from_a_padded_batch(name, cache):
    model = with_priors(name, ssmax=True)
    ids = tokens(2, 12)
    settings = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache}
    settings["pad_token_id"] = 0
    mask = padded(ids)
    made = model.generate(ids, attention_mask=mask, **settings)
    alone = model.generate(ids[1:, 5:], attention_mask=mask[1:, 5:], **settings)
    assert made[1, 5:].tolist() == alone[0].tolist()
    for step in range(12, 20):
        assert made[0, step] == model(made[:1, :step], use_cache=False).logits[0, -1].argmax()


@pytest.mark.parametrize("name", HOSTS)
@torch.no_grad()
def test_packed_sequences(name):
    model = with_priors(name, ssmax=True)
    lengths = [9, 1, 8]
    ids = tokens(1, 18)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    made = model(ids, position_ids=positions, use_cache=False).logits
    parts = [model(part).logits for part in ids.split(lengths, dim=1)]
    torch.testing.assert_close(made, torch.cat(parts, dim=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("horizon", [None, 4])
@torch.no_grad()
def test_masks_with_holes_are_honoured(name, horizon):
    model = with_priors(name, ssmax=SSMax(4, horizon=horizon))
    ids = tokens(2, 14)
    mask = torch.ones_like(ids)
    mask[0, 3:6] = 0
    mask[1, [0, 1, 8]] = 0
    made = model(ids, attention_mask=mask).logits
    expected = oracle(model, ids, attention_mask=mask)
    torch.testing.assert_close(made[mask == 1], expected[mask == 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("additive", [False, True])
@torch.no_grad()
def test_ready_made_masks_are_honoured(additive, generator):
    model, original = retrofit(host("llama")), host("llama")
    ids = tokens(1, 10)
    mask = (torch.rand(1, 1, 10, 10, generator=generator) > 0.4).tril() | torch.eye(10).bool()
    if additive:
        noise = torch.randn(1, 1, 10, 10, generator=generator)
        mask = noise.masked_fill(~mask, torch.finfo(torch.float32).min)
    made, expected = (
        m(ids, attention_mask=mask, use_cache=False).logits for m in (model, original)
    )
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="does not say where in the cache the queries are"):
        cache = model(ids).past_key_values
        model(ids[:, :1], past_key_values=cache, attention_mask=mask[:, :, :1])
    with pytest.raises(ValueError, match="needs a causal mask, and this one shows the future"):
        model(ids, attention_mask=torch.ones(1, 1, 10, 10).bool(), use_cache=False)


def test_usual_masks_stay_small():
    """No T×S mask for padding, packing, windows and caches: long contexts depend on it."""
    seen = []
    model = host("qwen2-hybrid")
    retrofit(model)
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
        )
    ids = tokens(2, 12)
    model(ids, attention_mask=padded(ids))
    model(ids, position_ids=torch.arange(12)[None] % 4, use_cache=False)
    settings = {"max_new_tokens": 3, "cache_implementation": "static", "pad_token_id": 0}
    model.generate(ids, attention_mask=padded(ids), **settings)
    assert all(isinstance(mask, Sight) and mask.dense is None for mask in seen)
    assert [mask.window for mask in seen[:2]] == [None, 6]
    assert seen[0].padding.tolist() == [0, 5]
    assert seen[2].documents[0].tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_the_mask_does_not_follow_the_caches_counter():
    counter = torch.tensor(4)
    sight = bayes_mask(1, 2, 10, q_offset=counter)
    counter.add_(2)
    assert sight.offset == 4


@torch.no_grad()
def test_exempt_keys():
    ids = tokens(2, 12)
    mask = padded(ids)
    model = with_priors("llama", exempt=3)
    padded_logits = model(ids, attention_mask=mask).logits[1:, 5:]
    torch.testing.assert_close(padded_logits, model(ids[1:, 5:]).logits, rtol=1e-4, atol=1e-4)
    # Everything exempt is the original model.
    free = with_priors("llama", exempt=12)
    torch.testing.assert_close(free(ids).logits, host("llama")(ids).logits, rtol=0, atol=1e-5)
    assert (model(ids).logits - free(ids).logits).abs().max() > 1e-3
    mask[0, 4] = 0
    with pytest.raises(ValueError, match="exempt keys need a causal mask"):
        model(ids, attention_mask=mask)


@torch.no_grad()
def test_exempt_keys_in_a_sliding_window():
    model = with_priors("mistral-sliding", exempt=3)
    ids = tokens(2, 14)
    full = model(ids).logits
    cache = DynamicCache(config=model.config)
    made = torch.cat(
        [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(14)], dim=1
    )
    torch.testing.assert_close(made, full, rtol=1e-4, atol=1e-4)
    mask = padded(ids)
    model(ids[:, :10], past_key_values=(cache := DynamicCache(config=model.config)))
    with pytest.raises(ValueError, match="forgets which keys of a left-padded batch are exempt"):
        model(ids[:, 10:11], past_key_values=cache, attention_mask=mask[:, :11])


@torch.no_grad()
def test_attentions():
    model = with_priors("llama", ssmax=True)
    ids = tokens(2, 9)
    out = model(ids, output_attentions=True)
    assert [a.shape for a in out.attentions] == [(2, 4, 9, 9)] * 2
    torch.testing.assert_close(out.attentions[0].sum(-1), torch.ones(2, 4, 9))
    assert model(ids).attentions is None or model(ids).attentions == ()


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_training(name, checkpointing):
    model = retrofit(host(name), ssmax=True).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    groups = {g["name"]: g for g in parameter_groups(model, 0.1, lr=1e-2)}
    trained = {n for n, _ in model.named_parameters() if ".prior." in n or ".ssmax." in n}
    assert len(groups["prior"]["params"]) == len(trained) - 2  # theta_mu is frozen
    ids = tokens(2, 9)
    optimizer = torch.optim.AdamW(groups.values())
    before = {k: v.clone() for k, v in prior_state_dict(model).items()}
    for _ in range(2):  # theta_alpha has no gradient while the prior is uniform
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    for key, value in prior_state_dict(model).items():
        assert torch.equal(value, before[key]) == ("theta_mu" in key), key


@pytest.mark.parametrize("prior", ["ggd", "laplace"])
@torch.no_grad()
def test_saving_only_the_priors(prior, tmp_path):
    model = with_priors("llama", prior=prior, ssmax=True)
    host("llama").save_pretrained(tmp_path / "host")
    save_prior_state_dict(model, tmp_path / "priors.safetensors")
    assert (tmp_path / "priors.safetensors").stat().st_size < 5000
    other = retrofit(AutoModelForCausalLM.from_pretrained(tmp_path / "host"), prior, ssmax=True)
    ids = tokens(2, 9)
    if prior == "ggd":
        assert (other(ids).logits - model(ids).logits).abs().max() > 1e-3
    load_prior_state_dict(other, tmp_path / "priors.safetensors")
    torch.testing.assert_close(other(ids).logits, model(ids).logits, rtol=0, atol=0)
    assert all(".prior." in k or ".ssmax." in k for k in prior_state_dict(model))


@torch.no_grad()
def test_saving_the_whole_model(tmp_path):
    model = with_priors("llama", ssmax=True)
    assert prior_state_dict(model).keys() <= model.state_dict().keys()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)  # with its priors
    assert type(loaded) is LlamaForCausalLM
    load_prior_state_dict(loaded, tmp_path)
    ids = tokens(2, 9)
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=0)


def test_loading_what_does_not_fit(tmp_path):
    model = retrofit(host("llama"))
    save_prior_state_dict(retrofit(host("llama"), ssmax=True), tmp_path / "more.safetensors")
    with pytest.raises(ValueError, match=r"do not fit the model: missing none, unexpected \['mod"):
        load_prior_state_dict(model, tmp_path / "more.safetensors")
    state = {k: v[:2] for k, v in prior_state_dict(model).items()}
    with pytest.raises(ValueError, match=r"has shape \(2,\) in the save but \(4,\) in the model"):
        load_prior_state_dict(model, state)


@torch.no_grad()
def test_autocast():
    model, ids = with_priors("llama", ssmax=True), tokens(2, 9)
    with torch.autocast("cpu", torch.bfloat16):
        made = model(ids).logits.float()
    expected = model(ids).logits
    assert (made - expected).abs().mean() < 0.05 * expected.abs().mean()


def test_half_precision_host_keeps_a_float32_prior():
    model = retrofit(host("llama").to(torch.bfloat16), GeneralizedGaussian(4, init="mixed"))
    assert {v.dtype for v in prior_state_dict(model).values()} == {torch.float32}
    assert model(tokens(1, 9)).logits.dtype == torch.bfloat16


def test_a_ready_prior_is_copied_into_every_layer():
    prior = Laplace(4, learned=True)
    model = retrofit(host("llama"), prior)
    first, second = (layer.self_attn.prior for layer in model.model.layers)
    assert first is not second
    assert first is not prior
    assert torch.equal(first.slopes, prior.slopes)


TEXT = {"vocab_size": 37, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
BLOOM = {"vocab_size": 37, "hidden_size": 32, "n_head": 4, "n_layer": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: T5ForConditionalGeneration(
                T5Config(vocab_size=37, d_model=16, d_kv=4, num_heads=4, num_layers=1, d_ff=16)
            ),
            "is not a plain decoder; retrofit a causal language model",
        ),
        (
            lambda: BertModel(BertConfig(**TEXT, intermediate_size=32)),
            "no causal self-attention layers",
        ),
        (
            lambda: BloomForCausalLM(
                BloomConfig(vocab_size=37, hidden_size=32, n_layer=1, n_head=4)
            ),
            "does not use transformers' attention interface",
        ),
        (tiny_model, "has priors already"),
        (lambda: retrofit(host("llama")), "has priors already"),
    ],
)
def test_models_it_cannot_help(make, message):
    with pytest.raises(ValueError, match=message):
        retrofit(make())


def test_not_a_model():
    with pytest.raises(TypeError, match="takes a Hugging Face PreTrainedModel, not Linear"):
        retrofit(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": "gauss"}, "unknown prior 'gauss'"),
        ({"prior": Laplace(3)}, "the model has 4 query heads but the prior or SSMax has 3"),
        ({"ssmax": SSMax(8)}, "the model has 4 query heads but the prior or SSMax has 8"),
        ({"prior": Laplace(4), "prior_options": {"learned": True}}, "belong to a prior given by n"),
        ({"exempt": -1}, "exempt must be 0 or more keys, not -1"),
        ({"kernel": "fast"}, "unknown kernel 'fast'"),
    ],
)
def test_bad_settings_leave_the_model_alone(settings, message):
    model = host("llama")
    with pytest.raises(ValueError, match=message):
        retrofit(model, **settings)
    assert model.config._attn_implementation == "sdpa"
    assert not prior_state_dict(model)


def test_what_the_kernel_cannot_do_is_refused():
    config = LlamaConfig(**GROUPED, attention_dropout=0.1)
    model = retrofit(LlamaForCausalLM(config)).train()
    with pytest.raises(ValueError, match="has no dropout"):
        model(tokens(1, 4))
    model.eval()(tokens(1, 4))
    capped = retrofit(Gemma2ForCausalLM(Gemma2Config(**GROUPED, head_dim=8)))
    with pytest.raises(ValueError, match="cannot honour this model's softcap"):
        capped.eval()(tokens(1, 4))
