"""Predicted costs are what torch counts and what the allocator hands out."""

import pytest
import torch

from bayesattn.commands.cost import MEASURED, measured
from bayesattn.models import SIZES, BayesForCausalLM
from bayesattn.models.cost import METHODS, attention_cost, cost, layer_weights, weights


@pytest.mark.parametrize(
    ("name", "more"),
    [("nano", {}), ("l12", {}), ("tiny", {"num_experts": 3}), ("tiny", {"attention_layers": 2})],
)
def test_weights_are_those_of_the_model(name, more):
    config = SIZES[name](prior="uniform", ssmax=False, **more)
    with torch.device("meta"):
        model = BayesForCausalLM(config)
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert weights(config) == matrices


@pytest.mark.parametrize("case", MEASURED[:3], ids=str)
def test_predictions_are_near_what_is_measured(case):
    found = measured(*case)
    assert found["operations"] == pytest.approx(found["operations, counted"], rel=0.02)
    assert found["memory"] == pytest.approx(found["memory, measured"], rel=0.35)
    assert found["seconds, measured"] > 0


def test_grouped_heads_are_counted_once():
    whole, grouped = (SIZES["tiny"](num_key_value_heads=heads) for heads in (8, 2))
    width = whole.hidden_size * whole.head_dim
    assert layer_weights(whole) - layer_weights(grouped) == 3 * 2 * 6 * width


def test_a_window_costs_what_it_shows():
    config = SIZES["tiny"](global_layers="last", sliding_window=32)
    whole, local = cost(SIZES["tiny"](), 1000).forward, cost(config, 1000).forward
    seen = sum(min(row, 32) - 0.5 for row in range(1, 1001))
    assert whole - local == pytest.approx(4 * 128 * 2 * (1000**2 / 2 - seen), rel=2e-3)
    assert cost(SIZES["tiny"](sliding_window=1000), 1000).forward == whole


@pytest.mark.parametrize(("length", "prior"), [(128, "ggd"), (129, "ggd"), (128, "uniform")])
def test_auto_writes_every_score_out_where_keys_are_few(length, prior):
    auto, dense, strided = (
        cost(SIZES["tiny"](prior=prior, kernel=kernel), length)
        for kernel in ("auto", "dense", "strided")
    )
    assert auto == (dense if (length, prior) == (128, "ggd") else strided)
    assert dense.forward - strided.forward == 2 * 128 * 3 * length**2
    assert dense.activations - strided.activations == 4 * 8 * 3 * length**2


def test_costs_grow_as_they_should():
    config = SIZES["tiny"]()
    one, two = cost(config, 128, 4), cost(config, 128, 8)
    assert two.forward == 2 * one.forward and two.state == one.state
    assert cost(config, 128, 4, "bf16").memory < one.memory
    assert cost(config, 512, 1).forward > one.forward  # as many tokens, more pairs
    for method in METHODS:
        short, long = (attention_cost(method, config, n) for n in (1024, 4096))
        assert long.operations == 16 * short.operations
    quadratic = [attention_cost(m, config, 65_536).extra > 2**30 for m in METHODS]
    assert quadratic == [True, False, False, False]
    with pytest.raises(ValueError, match="unknown method 'magic'; choose one of dense bias"):
        attention_cost("magic", config, 8)
