import torch
from torch import nn

from bayesattn.models.architectures import LSTM, build
from tests.models.architectures.common import TOKENS


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
