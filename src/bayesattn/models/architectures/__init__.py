"""Architectures: transformer, recurrent and feed-forward models of a tunnel, by name.

>>> make_architecture("transformer", layers=3, prior="ggd").width
64
"""

from dataclasses import fields
from typing import Any

from bayesattn.checks import registered
from bayesattn.models.architectures.base import Architecture, Body, Predictor, build
from bayesattn.models.architectures.matching import count_parameters, match_parameters
from bayesattn.models.architectures.mlp import MLP
from bayesattn.models.architectures.recurrent import LSTM, Mamba
from bayesattn.models.architectures.transformer import Transformer
from bayesattn.models.choices import renamed

__all__ = [
    "ARCHITECTURES",
    "LSTM",
    "MLP",
    "Architecture",
    "Body",
    "Mamba",
    "Predictor",
    "Transformer",
    "build",
    "count_parameters",
    "make_architecture",
    "match_parameters",
]

ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.name: kind for kind in (Transformer, LSTM, Mamba, MLP)
}


def make_architecture(name: str, **given: Any) -> Architecture:
    """The architecture called `name`, one of `ARCHITECTURES`, with these fields.

    The fields may come from the config.json of an older run.
    """
    kind = registered("architecture", name, ARCHITECTURES)
    chosen = renamed(given)
    own = [field.name for field in fields(kind)]
    for one in chosen:
        if one not in own and one in (field.name for field in fields(Transformer)):
            names = ", ".join(own)
            raise ValueError(f"only the transformer has {one}; {name} has {names}")
    return kind(**chosen)
