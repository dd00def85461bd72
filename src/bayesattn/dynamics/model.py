"""The routing law in a real model: α, u, b and A of every head of one layer.

Autograd gives the upstream gradient u at the output of the heads. The law gives all other
quantities from u, the attention weights and the values. The loss is a mean over sequences and
scored positions, so u is small if there are many.

Shapes: B batch, H query heads, G key/value heads, T queries, S keys, D head width.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.attention.visibility import Visibility, first_visible
from bayesattn.dynamics.routing import Routing
from bayesattn.models.layers import BayesAttention
from bayesattn.models.layout import Layout
from bayesattn.tunnels import Batch

Data = Batch | Mapping[str, Tensor]
"""A batch of a tunnel; or the arguments of a language model, with `labels`."""


@dataclass(frozen=True, eq=False)
class LayerDynamics(Routing):
    """`Routing` of all heads of a layer, [B, H, ...]; values are repeated for each query head."""

    kv_heads: int = 1
    """Number G of key/value heads."""

    @cached_property
    def value_gradient(self) -> Tensor:
        """[B, G, S, D] ∂L/∂v: ū summed over the query heads that share a value."""
        return self.weighted_error.unflatten(1, (self.kv_heads, -1)).sum(2)


def head_dynamics(model: nn.Module, batch: Data, layer: int) -> LayerDynamics:
    """Routing of every head of `layer` of a transformer, on one batch.

    Args:
        model: a transformer `Predictor` or a `BayesForCausalLM`, in the precision wanted.
        batch: see `Data`; a tunnel's loss is the cross-entropy to its exact posterior.
        layer: counts from 0.
    """
    attention = attention_of(model, layer)
    seen: dict[str, Any] = {}

    def remember_values(_: nn.Module, __: Any, values: Tensor) -> None:
        seen["values"] = heads(attention, values)

    def cut(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        # A leaf here is all that the backward pass has to reach.
        seen["output"] = args[0].detach().requires_grad_()
        return (seen["output"],)

    def remember_attention(x: Tensor, layout: Layout, alpha: Tensor) -> None:
        seen["alpha"], seen["visible"] = alpha, visibility(x.shape[1], layout)

    with torch.enable_grad(), recorded(attention, remember_attention):
        with (
            attention.v_proj.register_forward_hook(remember_values),
            attention.o_proj.register_forward_pre_hook(cut),
        ):
            loss = loss_of(model, batch)
        (upstream,) = torch.autograd.grad(loss, seen["output"])
    alpha, values = seen["alpha"].detach(), seen["values"].detach()
    return LayerDynamics(
        alpha=alpha,
        values=repeat_heads(values, alpha.shape[1]),
        upstream=heads(attention, upstream),
        visible=seen["visible"],
        kv_heads=values.shape[1],
    )


def attention_of(model: nn.Module, layer: int) -> BayesAttention:
    """The attention of one layer; ValueError if there is none."""
    found = {m.layer_idx: m for m in model.modules() if isinstance(m, BayesAttention)}
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no attention of ours, so there is no routing to look at; "
            "take a transformer"
        )
    if layer not in found:
        raise ValueError(
            f"there is no attention in layer {layer}; choose one of {', '.join(map(str, found))}"
        )
    return found[layer]


def loss_of(model: nn.Module, batch: Data) -> Tensor:
    """Mean cross-entropy of the model, nats."""
    if isinstance(batch, Batch):
        dtype = next(model.parameters()).dtype
        inputs = batch.inputs.to(dtype) if batch.inputs.is_floating_point() else batch.inputs
        logits = model(inputs, batch.scored)
        return cross_entropy(logits.flatten(0, 1), batch.posterior.to(dtype).flatten(0, 1))
    if "labels" not in batch:
        raise ValueError("a language model's batch needs labels; pass input_ids as labels too")
    return model(**batch, use_cache=False).loss


def heads(attention: BayesAttention, x: Tensor) -> Tensor:
    """[B, T, heads · D] to [B, heads, T, D]."""
    width = attention.config.head_dim
    assert width is not None  # BayesConfig fills it in
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def visibility(count: int, layout: Layout) -> Tensor:
    """[B or 1, 1, T, S] True where a query sees a key, in a call on `count` tokens."""
    first = first_visible(count, layout.offset, layout.documents, layout.padding)
    seen = Visibility(count, layout.offset, first, layout.window)
    return seen.mask(layout.positions.device)


@contextmanager
def recorded(
    attention: BayesAttention, look: Callable[[Tensor, Layout, Tensor], Tensor | None]
) -> Iterator[None]:
    """Context in which the layer calls `look(x, layout, posterior)`.

    If `look` returns a tensor, it replaces the output of the layer.
    """
    signature = inspect.signature(attention.forward)

    def write_out(_: nn.Module, args: Any, kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.arguments["output_attentions"] = True
        return call.args, call.kwargs

    def show(_: nn.Module, args: Any, kwargs: Any, output: tuple[Tensor, Tensor]) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        instead = look(given["x"], given["layout"], output[1])
        return None if instead is None else (instead, output[1])

    with (
        attention.register_forward_pre_hook(write_out, with_kwargs=True),
        attention.register_forward_hook(show, with_kwargs=True),
    ):
        yield
