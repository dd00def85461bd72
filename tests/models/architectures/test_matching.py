import pytest

from bayesattn.models.architectures import (
    LSTM,
    MLP,
    Mamba,
    Transformer,
    build,
    count_parameters,
    match_parameters,
)
from bayesattn.tunnels import HMM, Bijection
from tests.models.architectures.common import ARCHITECTURES, SHAPES

TUNNELS = (Bijection(20, 19), HMM())
BUDGETS = (60_000, 700_000)
SIZED = [
    Transformer(),
    Transformer(heads=8, layers=4, prior="ggd", encoding="rope"),
    Transformer(layers=3, attention_layers=1, encoding="learned", intermediate_size=64),
    LSTM(),
    Mamba(),
    *(MLP(context=context) for context in ("position", "flattened", "mean", "convolution")),
]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_count_is_that_of_the_built_predictor(name, shape):
    predictor = build(ARCHITECTURES[name], shape, seed=0)
    trained = sum(p.numel() for p in predictor.parameters() if p.requires_grad)
    assert count_parameters(ARCHITECTURES[name], shape) == trained


@pytest.mark.parametrize("tunnel", TUNNELS, ids=lambda t: t.name)
@pytest.mark.parametrize("architecture", SIZED, ids=lambda a: getattr(a, "context", a.name))
def test_within_two_percent(architecture, tunnel):
    for budget in BUDGETS:
        matched = match_parameters(architecture, tunnel, budget)
        assert abs(count_parameters(matched, tunnel) - budget) <= 0.02 * budget
        kept = {
            k: v for k, v in matched.to_dict().items() if k not in ("width", "intermediate_size")
        }
        assert kept == {k: architecture.to_dict()[k] for k in kept}


def test_a_budget_that_is_met_changes_nothing():
    architecture = Transformer(layers=3, width=96, prior="ggd")
    budget = count_parameters(architecture, TUNNELS[0])
    assert match_parameters(architecture, TUNNELS[0], budget, tolerance=0) == architecture


def test_the_ratio_of_inner_to_width_is_kept():
    matched = match_parameters(MLP(width=64, intermediate_size=64), TUNNELS[0], 200_000)
    assert matched.intermediate_size == matched.width


def test_a_frozen_prior_does_not_count():
    frozen, learned = (
        Transformer(prior="laplace", prior_options={"learned": learned})
        for learned in (False, True)
    )
    assert count_parameters(learned, TUNNELS[0]) - count_parameters(frozen, TUNNELS[0]) == 2 * 4


@pytest.mark.parametrize(
    ("architecture", "budget", "message"),
    [
        (LSTM(), 0, "budget must be a positive number of parameters, not 0"),
        (LSTM(), 10, r"no lstm of 2 layers comes within 2% of 10 parameters \(width 1: 113"),
        (LSTM(), 2_200, r"2,200 parameters \(width 9: 2,009, width 10: 2,390\); change layers or"),
        (Transformer(heads=16), 1_000, "no transformer of 2 layers comes within 2% of 1,000"),
    ],
)
def test_budgets_that_cannot_be_met(architecture, budget, message):
    with pytest.raises(ValueError, match=message) as caught:
        match_parameters(architecture, TUNNELS[0], budget)
    assert "\n" not in str(caught.value)
