"""Predicted costs are what torch counts and what the allocator hands out."""

import pytest
import torch

from bayesattn.commands.cost import MEASURED, measured
from bayesattn.models import SIZES, BayesForCausalLM
from bayesattn.models.cost import METHODS, Shape, attention_cost, cost


@pytest.mark.parametrize("name", ["nano", "tiny", "l12"])
def test_weights_are_those_of_the_model(name):
    config = SIZES[name](prior="uniform", ssmax=False)
    with torch.device("meta"):
        model = BayesForCausalLM(config)
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert Shape.of(config).weights == matrices


@pytest.mark.parametrize("case", MEASURED[:3], ids=str)
def test_predictions_are_near_what_is_measured(case):
    found = measured(*case)
    assert found["operations"] == pytest.approx(found["operations, counted"], rel=0.02)
    assert found["memory"] == pytest.approx(found["memory, measured"], rel=0.35)
    assert found["seconds, measured"] > 0


def test_grouped_heads_are_counted_once():
    whole, grouped = (Shape.of(SIZES["tiny"](num_key_value_heads=heads)) for heads in (8, 2))
    width = whole.width * whole.head_width
    assert whole.layer_weights - grouped.layer_weights == 2 * 6 * width


def test_costs_grow_as_they_should():
    shape = Shape.of(SIZES["tiny"]())
    one, two = cost(shape, 128, 4), cost(shape, 128, 8)
    assert two.forward == 2 * one.forward and two.state == one.state
    assert cost(shape, 128, 4, "bf16").memory < one.memory
    assert cost(shape, 256, 2).forward > one.forward  # as many tokens, more pairs
    for method in METHODS:
        short, long = (attention_cost(method, shape, n) for n in (1024, 4096))
        assert long.operations == 16 * short.operations
    quadratic = [attention_cost(m, shape, 65_536).extra > 2**30 for m in METHODS]
    assert quadratic == [True, False, False, False]
    with pytest.raises(ValueError, match="unknown method 'magic'; choose one of dense bias"):
        attention_cost("magic", shape, 8)
