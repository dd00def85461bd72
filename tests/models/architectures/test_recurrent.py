"""LSTM and Mamba are what their papers say."""

import logging

import pytest
import torch
from torch import nn
from torch.nn.functional import conv1d, silu, softplus
from transformers.utils.logging import warning_once

from bayesattn.models.architectures import LSTM, Mamba, build
from tests.models.architectures.common import TOKENS, Shape


def one_layer(layer, x, heads, state):
    """The recurrence of the docstring, one step after the other."""
    mixer = layer.mixer
    channels = mixer.out_proj.in_features
    mixed = mixer.in_proj(layer.norm(x))
    gate, inner, step = mixed.split((channels, channels + 2 * state, heads), dim=-1)
    weight, bias = mixer.conv1d.weight, mixer.conv1d.bias
    kernel = weight.shape[-1]
    padded = torch.nn.functional.pad(inner.transpose(1, 2), (kernel - 1, 0))
    inner = silu(conv1d(padded, weight, bias, groups=weight.shape[0])).transpose(1, 2)
    value, write, read = inner.split((channels, state, state), dim=-1)
    value = value.unflatten(-1, (heads, -1))
    step = softplus(step + mixer.dt_bias)
    decay = torch.exp(-step * mixer.A_log.exp())
    h = x.new_zeros(x.shape[0], heads, channels // heads, state)
    outputs = []
    for t in range(x.shape[1]):
        new = (step[:, t, :, None] * value[:, t])[..., None] * write[:, t, None, None]
        h = decay[:, t, :, None, None] * h + new
        outputs.append(h @ read[:, t, None, :, None])
    y = torch.stack(outputs, dim=1)[..., 0] + mixer.D[:, None] * value
    return x + mixer.out_proj(mixer.norm(y.flatten(2), gate))


@pytest.mark.parametrize("positions", [5, 48, 60, 100])  # one chunk, two and three
@torch.no_grad()
def test_it_is_the_recurrence(positions):
    architecture = Mamba(layers=1, width=16, state=6, heads=4, expand=2, conv=3)
    shape = Shape(positions=positions)
    predictor = build(architecture, shape, seed=0)
    first, last = predictor.hidden(shape.inputs(2))
    expected = one_layer(predictor.body.layers[0], first, heads=4, state=6)
    torch.testing.assert_close(last, expected, rtol=1e-4, atol=1e-5)


def test_no_advice_about_missing_kernels_on_a_cpu(caplog):
    logger = logging.getLogger("transformers.integrations.hub_kernels")
    before = list(logger.filters)
    warning_once.cache_clear()  # otherwise silent because an earlier test has heard it
    with caplog.at_level(logging.DEBUG, logger=logger.name):
        logger.addHandler(caplog.handler)
        try:
            build(Mamba(width=16), TOKENS, seed=0)(TOKENS.inputs(1))
            logger.warning("another message")
        finally:
            logger.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records} == {"another message"}
    assert logger.filters == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"state": 0}, "state must be a positive integer, not 0"),
        ({"width": 15, "heads": 4}, "expand 2 times width 15 is not a multiple of heads 4"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        Mamba(**fields)


@torch.no_grad()
def test_it_is_torchs_stacked_lstm():
    predictor = build(LSTM(layers=3, width=16), TOKENS, seed=0)
    stacked = nn.LSTM(16, 16, num_layers=3, batch_first=True)
    for index, layer in enumerate(predictor.body.layers):
        for name, value in layer.named_parameters():
            getattr(stacked, name.replace("l0", f"l{index}")).copy_(value)
    inputs = TOKENS.inputs(2)
    expected, _ = stacked(predictor.embedding(inputs))
    torch.testing.assert_close(predictor.hidden(inputs)[-1], expected)
