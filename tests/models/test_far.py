"""Models in which only some layers may look far."""

import math

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    StaticCache,
)

from bayesattn.models import BayesForCausalLM, retrofit
from bayesattn.models.far import LOCAL_WINDOW
from bayesattn.priors import GeneralizedGaussian
from bayesattn.priors.laplace import MILDEST
from tests.models.common import tiny_config, tiny_model, tokens


def kinds(model):
    """Shapes beta of each layer's heads."""
    return [layer.self_attn.prior.beta.tolist() for layer in model.model.layers]


@pytest.mark.parametrize(
    ("chosen", "far"), [("all", [0, 1, 2]), ("last", [2]), ([], []), ([0], [0]), ([2, 1], [1, 2])]
)
@torch.no_grad()
def test_only_global_layers_see_beyond_the_window(chosen, far):
    model = tiny_model(num_hidden_layers=3, global_layers=chosen, prior="uniform")
    model.config.sliding_window = 5 if chosen != "all" else None
    rows = model(tokens(1, 20), output_attentions=True).attentions
    for number, posterior in enumerate(rows):
        beyond = posterior.tril(-5)
        assert (beyond.amax() > 1e-3) == (number in far)
        assert torch.allclose(posterior.sum(-1), torch.ones(()))


def test_a_window_in_every_layer_is_as_it_was():
    config = tiny_config(sliding_window=4)
    assert config.windows() == [4, 4] and config.layer_types is None
    assert tiny_config().windows() == [None, None]


def test_heads_begin_as_their_layer_may_look():
    torch.manual_seed(0)
    model = BayesForCausalLM(tiny_config(num_hidden_layers=3, global_layers="last"))
    assert kinds(model) == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]]
    local = model.model.layers[0].self_attn.prior
    slopes = local.table(2)[:, 0] - local.table(2)[:, 1]
    assert torch.allclose(slopes, torch.tensor([-1.0, -2.0, -3.0, -4.0]).exp2())
    given = tiny_config(num_hidden_layers=2, global_layers=[0], prior_options={"init": "uniform"})
    assert kinds(BayesForCausalLM(given)) == [[0, 0, 0, 0], [1, 1, 1, 1]]
    laplace = BayesForCausalLM(tiny_config(global_layers="last", prior="laplace"))
    near, far = (layer.self_attn.prior.slopes for layer in laplace.model.layers)
    assert torch.allclose(near, torch.tensor([-1.0, -2.0, -3.0, -4.0]).exp2())
    assert torch.allclose(far, torch.tensor([-2.0, -4.0, -6.0, -8.0]).exp2())


def test_the_window_is_where_a_local_head_ends():
    assert tiny_config(global_layers="last").windows() == [LOCAL_WINDOW, None]
    assert tiny_config(global_layers="last", sliding_window=7).windows() == [7, None]
    assert math.exp(-(2.0**MILDEST) * LOCAL_WINDOW) < torch.finfo(torch.float32).eps
    prior = GeneralizedGaussian(8, init="local")
    assert float(prior.reach(torch.finfo(torch.float32).eps).max()) <= LOCAL_WINDOW


def test_the_window_of_local_layers_cannot_be_taken_away():
    model = tiny_model(global_layers="last")
    model.config.sliding_window = None
    with pytest.raises(ValueError, match="not global need a sliding_window; make it as long as"):
        model(tokens(1, 3))


@torch.no_grad()
def test_caches_of_local_layers_keep_a_window():
    model = tiny_model(num_hidden_layers=3, global_layers="last", sliding_window=6)
    made = model(tokens(2, 50)).past_key_values
    assert [layer.keys.shape[2] for layer in made.layers] == [5, 5, 50]
    static = StaticCache(config=model.config, max_cache_len=60)
    model(tokens(2, 50), past_key_values=static)
    assert [layer.keys.shape[2] for layer in static.layers] == [6, 6, 60]


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("beams", [1, 2])
def test_generate(cache, padded, beams):
    model = tiny_model(num_hidden_layers=3, global_layers=[1], sliding_window=6, ssmax_horizon=5)
    ids = tokens(2, 23)
    mask = torch.ones_like(ids)
    mask[1, :9] = not padded
    settings = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "num_beams": beams}
    made, wanted = (
        model.generate(ids, attention_mask=mask, **settings, **how)
        for how in ({"cache_implementation": cache}, {"use_cache": False})
    )
    assert made.tolist() == wanted.tolist()


@torch.no_grad()
def test_saved_and_loaded(tmp_path):
    model = tiny_model(num_hidden_layers=3, global_layers=[1], sliding_window=6)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (again.config.global_layers, again.config.windows()) == ([1], [6, None, 6])
    ids = tokens(1, 30)
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_a_fixed_prior_stays_where_it_begins_also_after_loading(tmp_path):
    config = tiny_config(global_layers="last", prior_options={"learned": False})
    model = BayesForCausalLM(config)
    before = kinds(model)
    model.save_pretrained(tmp_path)
    for one in (model, AutoModelForCausalLM.from_pretrained(tmp_path)):
        names = [name for name, x in one.named_parameters() if x.requires_grad and "theta" in name]
        assert names == [] and kinds(one) == before


@torch.no_grad()
def test_the_last_layer_that_attends_asks_only_for_what_is_kept(monkeypatch):
    model = tiny_model(num_hidden_layers=3, attention_layers=2, global_layers="last")
    counted = []
    for layer in model.model.layers:
        forward = layer.mlp.forward
        monkeypatch.setattr(
            layer.mlp, "forward", lambda x, f=forward: counted.append(x.shape[1]) or f(x)
        )
    model(tokens(1, 12), logits_to_keep=2)
    assert counted == [12, 2, 2]


@torch.no_grad()
def test_retrofitted():
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=48, vocab_size=37)).eval()
    ids = tokens(1, 12)
    before = model(ids, output_hidden_states=True).hidden_states
    retrofit(model, global_layers=[0, 1])
    assert kinds(model) == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    after = model(ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(after[2], before[2], rtol=1e-4, atol=1e-5)
    assert (after[3] - before[3]).abs().max() > 1e-3
    cache, parts = DynamicCache(config=model.config), []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        parts.append(model(ids[:, start:stop], past_key_values=cache).logits)
    torch.testing.assert_close(torch.cat(parts, 1), model(ids).logits, rtol=1e-4, atol=1e-4)
    other = LlamaForCausalLM(model.config)
    with pytest.raises(ValueError, match="names layer 3, but the layers that attend are 0 to 2"):
        retrofit(other, global_layers=[3])
    with pytest.raises(ValueError, match="global_layers belong to a prior given by name"):
        retrofit(other, GeneralizedGaussian(4), global_layers="last")


@torch.no_grad()
def test_rope_may_turn_local_layers_only():
    """The oracle of one layer is a model without an encoding; of two, one whose last has none."""
    settings = {"prior": "uniform", "global_layers": "last", "sliding_window": 6}
    rope = settings | {"encoding": "rope", "rope_layers": "local"}
    one = tiny_model(num_hidden_layers=1, **rope)
    plain = tiny_model(num_hidden_layers=1, **settings)
    assert torch.equal(one(tokens(1, 20)).logits, plain(tokens(1, 20)).logits)
    two, all_turned = (
        tiny_model(num_hidden_layers=2, **own) for own in (rope, rope | {"rope_layers": "all"})
    )
    given = []
    for layer in two.model.layers:
        layer.self_attn.register_forward_pre_hook(lambda _, args: given.append(args[3] is None))
    assert not torch.allclose(two(tokens(1, 20)).logits, all_turned(tokens(1, 20)).logits)
    assert given == [False, True]
    whole = two(tokens(1, 20)).logits
    cache = two(tokens(1, 20)[:, :13]).past_key_values
    rest = two(tokens(1, 20)[:, 13:], past_key_values=cache).logits
    torch.testing.assert_close(rest, whole[:, 13:])
