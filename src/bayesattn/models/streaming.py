"""One decoder layer in memory at a time, for models that are larger than memory.

    stream(model, torch.float32)      of a model whose weights are still where they are stored

Weights from .safetensors are pages of their file: the system reads them when they are used, and
takes them back when it needs the room. Before a layer runs its weights are copied out in the dtype
that is computed in; after it the copies are forgotten. What is outside the layers is copied once.
"""

from typing import Any

import torch
from torch import Tensor, nn

Kept = list[tuple[nn.Parameter, Tensor]]


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """Members of the module list that holds most of the weights; none if there is no list."""
    lists = [[*module] for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=lambda own: sum(map(size, own)), default=[])


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def held(model: nn.Module) -> int:
    """Parameters that are in memory at once when `model` is streamed."""
    layers = [size(layer) for layer in decoder_layers(model)]
    return size(model) - sum(layers) + max(layers, default=0)


def stream(model: nn.Module, dtype: torch.dtype) -> None:
    """From now on `model` computes in `dtype` with one layer's weights at a time; for good."""
    layers = decoder_layers(model)
    inside = {id(own) for layer in layers for own in layer.parameters()}
    for own in model.parameters():
        if id(own) not in inside:
            own.data = own.data.to(dtype)
    for layer in layers:
        kept: Kept = []

        def copy_out(own: nn.Module, *_: Any, kept: Kept = kept) -> None:
            kept += [(parameter, parameter.data) for parameter in own.parameters()]
            for parameter, stored in kept:
                parameter.data = stored.to(dtype)

        def forget(*_: Any, kept: Kept = kept) -> None:
            for parameter, stored in kept:
                parameter.data = stored
            kept.clear()

        layer.register_forward_pre_hook(copy_out)
        layer.register_forward_hook(forget, always_call=True)
