"""One small tunnel of each input kind, and every architecture."""

from dataclasses import dataclass

import torch

from bayesattn.models.architectures import LSTM, MLP, Mamba, Transformer

CONTEXTS = ("position", "flattened", "mean", "convolution")


@dataclass(frozen=True)
class Shape:
    """The properties of a tunnel that a predictor reads, and inputs without any meaning."""

    outcomes: int = 5
    vocabulary: int | None = 11
    features: int | None = None
    prefix: int = 3
    positions: int = 13

    def inputs(self, batch_size, seed=0):
        generator = torch.Generator().manual_seed(seed)
        if self.vocabulary is not None:
            shape = (batch_size, self.positions)
            return torch.randint(0, self.vocabulary, shape, generator=generator)
        return torch.randn(batch_size, self.positions, self.features, generator=generator)


TOKENS = Shape()
FEATURES = Shape(vocabulary=None, features=7, outcomes=4)
SHAPES = {"tokens": TOKENS, "features": FEATURES}

ARCHITECTURES = {
    "uniform": Transformer(width=16),
    "ggd": Transformer(width=16, prior="ggd", prior_options={"init": "mixed"}, exempt="header"),
    "rope": Transformer(width=16, encoding="rope", ssmax=True, num_key_value_heads=2),
    "learned": Transformer(width=16, encoding="learned", sliding_window=5),
    "late": Transformer(
        width=16, layers=3, prior="laplace", attention_layers=1, intermediate_size=24
    ),
    "experts": Transformer(width=16, num_experts=4),
    "lstm": LSTM(width=16),
    "mamba": Mamba(width=16),
    **{context: MLP(width=16, context=context) for context in CONTEXTS},
}
