"""One decoder layer in memory at a time, for models that are larger than memory.

    stream(model, torch.float32)      for a model whose weights are mapped from their files

Weights from .safetensors are mapped pages: the system reads them when they are used, and frees them
when it needs the memory. Before a layer runs, its weights are copied in the computing dtype, and
the copies are freed after it. Weights outside the layers are copied once.
"""

from typing import Any

import torch
from torch import Tensor, nn

Kept = list[tuple[nn.Parameter, Tensor]]


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """Modules of the list that holds most of the weights; empty if there is no list."""
    lists = [[*module] for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=lambda own: sum(map(size, own)), default=[])


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def held(model: nn.Module) -> int:
    """Number of parameters that are in memory at once when `model` is streamed."""
    layers = [size(layer) for layer in decoder_layers(model)]
    return size(model) - sum(layers) + max(layers, default=0)


def stream(model: nn.Module, dtype: torch.dtype) -> None:
    """Make `model` compute in `dtype` with one layer's weights at a time; cannot be undone."""
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
