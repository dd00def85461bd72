"""Architectures: transformer, recurrent and feed-forward models of a tunnel, by name.

>>> make_architecture("transformer", layers=3, prior="ggd").width
64
"""

from typing import Any

from bayesattn.checks import registered
from bayesattn.models.architectures.base import Architecture, Body, TunnelShape, field_names
from bayesattn.models.architectures.lstm import LSTM
from bayesattn.models.architectures.mamba import Mamba
from bayesattn.models.architectures.matching import count_parameters, match_parameters
from bayesattn.models.architectures.mlp import MLP
from bayesattn.models.architectures.predictor import Predictor, build
from bayesattn.models.architectures.transformer import Transformer

__all__ = [
    "ARCHITECTURES",
    "LSTM",
    "MLP",
    "Architecture",
    "Body",
    "Mamba",
    "Predictor",
    "Transformer",
    "TunnelShape",
    "build",
    "count_parameters",
    "make_architecture",
    "match_parameters",
]

ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.name: kind for kind in (Transformer, LSTM, Mamba, MLP)
}

# Fields of the transformer that are not about attention: other architectures may lack them too.
_GENERAL = ("layers", "width", "inner", "max_positions", "experts")


def make_architecture(name: str, **fields: Any) -> Architecture:
    """The architecture called `name`, one of `ARCHITECTURES`, with these fields."""
    kind = registered("architecture", name, ARCHITECTURES)
    allowed = field_names(kind)
    for field in fields:
        if field in allowed:
            continue
        listed = ", ".join(allowed)
        if field in field_names(Transformer) and field not in _GENERAL:
            raise ValueError(
                f"{name} has no attention, so it takes no {field}; its fields are {listed}"
            )
        raise ValueError(f"{name} has no field {field!r}; its fields are {listed}")
    return kind(**fields)
