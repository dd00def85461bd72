import pytest
import torch
from torch import nn

from bayesattn.models.architectures import MLP, build
from bayesattn.models.architectures.mlp import Convolution, Flatten, Mean
from tests.models.architectures.common import TOKENS, Shape

B, T, D = 2, 7, 4


@pytest.fixture
def x(generator):
    return torch.randn(B, T, D, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("length", [T, 3])
@torch.no_grad()
def test_flattened_is_a_linear_layer_on_the_padded_row(x, length):
    flatten = Flatten(D, T).double()
    made = flatten(x[:, :length])
    for position in range(length):
        row = torch.zeros(B, T, D, dtype=torch.float64)
        row[:, : position + 1] = x[:, : position + 1]
        torch.testing.assert_close(made[:, position], flatten.linear(row.flatten(1)))


@torch.no_grad()
def test_mean_is_of_all_up_to_the_position(x):
    mean = Mean(D).double()
    made = mean(x)
    for position in range(T):
        pooled = x[:, : position + 1].mean(dim=1)
        expected = mean.linear(torch.cat((x[:, position], pooled), dim=-1))
        torch.testing.assert_close(made[:, position], expected)


@torch.no_grad()
def test_convolution_is_over_the_last_few(x):
    convolution = Convolution(D, 3).double()
    weight, bias = convolution.convolution.weight, convolution.convolution.bias
    made = convolution(x)
    for position in range(T):
        expected = bias.expand(B, D)
        for distance in range(min(3, position + 1)):
            expected = expected + x[:, position - distance] @ weight[:, :, 2 - distance].T
        torch.testing.assert_close(made[:, position], expected)


@torch.no_grad()
def test_a_layer_is_context_then_feed_forward():
    predictor = build(MLP(context="mean", layers=1, width=16, intermediate_size=24), TOKENS, seed=0)
    x, made = predictor.hidden(TOKENS.inputs(2))
    layer = predictor.body.layers[0]
    norm, mix = layer.mix
    x = x + mix(norm(x))
    norm, up, gelu, down = layer.feed
    assert isinstance(gelu, nn.GELU) and up.out_features == 24
    torch.testing.assert_close(x + down(gelu(up(norm(x)))), made)


@pytest.mark.parametrize(("layers", "kernel"), [(1, 13), (2, 7), (3, 5), (4, 4), (12, 2)])
def test_convolutions_see_everything_by_default(layers, kernel):
    predictor = build(MLP(context="convolution", layers=layers, width=8), TOKENS, seed=0)
    sizes = {m.kernel_size for m in predictor.modules() if isinstance(m, nn.Conv1d)}
    assert sizes == {(kernel,)}
    assert 1 + layers * (kernel - 1) >= 13 > 1 + layers * (kernel - 2)
    given = build(MLP(context="convolution", kernel=2, width=8), TOKENS, seed=0)
    assert {m.kernel_size for m in given.modules() if isinstance(m, nn.Conv1d)} == {(2,)}


def test_flattened_has_no_slot_beyond_its_length():
    predictor = build(MLP(context="flattened"), TOKENS, seed=0)
    assert sum(isinstance(m, Flatten) for m in predictor.modules()) == 1
    with pytest.raises(ValueError, match="has 13 slots, not 14; it predicts nothing beyond"):
        predictor(Shape(positions=14).inputs(1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"context": "bag"}, "unknown context 'bag'; choose one of position, flattened, mean, con"),
        ({"kernel": 3}, "kernel needs context 'convolution', not 'position'"),
        ({"intermediate_size": 0}, "intermediate_size must be a positive integer, not 0"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        MLP(**fields)
