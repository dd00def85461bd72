"""The same gradients by autograd, without the laws.

Zeros are added to the scores, like a log-prior, and autograd differentiates with respect to them.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, linear

from bayesattn.attention.kernels.dense import repeat_heads, softmax, weigh
from bayesattn.dynamics.head import Gradients, Head, Reduction
from bayesattn.dynamics.model import Data, attention_of, heads, loss_of, recorded
from bayesattn.models.layout import Layout


def random_head(
    generator: Generator, length: int, *, causal: bool, prior: bool, reduction: Reduction = "mean"
) -> Head:
    """A float64 head on normal inputs, its four widths all different.

    With `causal`, queries see the past only; with `prior`, a random log-prior joins the scores.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    mask = torch.ones(length, length, dtype=torch.bool).tril() if causal else None
    return Head(
        x=normal(length, 6),
        w_q=normal(4, 6) / 2,
        w_k=normal(4, 6) / 2,
        w_v=normal(5, 6) / 2,
        w_o=normal(3, 5) / 2,
        labels=torch.randint(3, (length,), generator=generator),
        bias=normal(3),
        mask=mask,
        log_prior=normal(length, length) if prior else None,
        reduction=reduction,
    )


def gradients_of(head: Head) -> Gradients:
    """Gradients of one head without leading dimensions."""
    leaves = [w.detach().requires_grad_() for w in (head.w_q, head.w_k, head.w_v, head.w_o)]
    w_q, w_k, w_v, w_o = leaves
    bias = (head.x.new_zeros(len(w_o)) if head.bias is None else head.bias).detach()
    bias.requires_grad_()
    q, k, v = linear(head.x, w_q), linear(head.x, w_k), linear(head.x, w_v)
    shift = head.x.new_zeros(len(head.x), len(head.x)).requires_grad_()
    prior = shift if head.log_prior is None else head.log_prior + shift
    visible = torch.ones_like(shift, dtype=torch.bool) if head.mask is None else head.mask
    alpha = weigh(q[None, None], k[None, None], prior, visible, len(w_q) ** -0.5)[0, 0]
    logits = linear(alpha @ v, w_o, bias)
    loss = cross_entropy(logits, head.labels, reduction=head.reduction)
    return Gradients(*torch.autograd.grad(loss, [*leaves, bias, shift, q, k, v]))


def score_gradient(model: nn.Module, batch: Data, layer: int) -> Tensor:
    """[B, H, T, S] ∂L/∂s of every head of a layer.

    The layer attends once more with softmax(ln α + 0): scores are free up to a constant per row.
    """
    attention = attention_of(model, layer)
    seen: dict[str, Tensor] = {}

    def remember_values(_: nn.Module, __: Any, values: Tensor) -> None:
        seen["values"] = heads(attention, values)

    def attend_again(_: Tensor, __: Layout, posterior: Tensor) -> Tensor:
        alpha = posterior.detach()
        seen["shift"] = torch.zeros_like(alpha, requires_grad=True)
        again = softmax(alpha.log() + seen["shift"], alpha > 0)
        attended = again @ repeat_heads(seen["values"], alpha.shape[1])
        return attention.o_proj(attended.transpose(1, 2).flatten(2))

    with (
        torch.enable_grad(),
        attention.v_proj.register_forward_hook(remember_values),
        recorded(attention, attend_again),
    ):
        return torch.autograd.grad(loss_of(model, batch), seen["shift"])[0]


def value_gradient(model: nn.Module, batch: Data, layer: int) -> Tensor:
    """[B, G, S, D] ∂L/∂v of every key/value head of a layer."""
    attention = attention_of(model, layer)
    seen: dict[str, Tensor] = {}

    def cut(_: nn.Module, __: Any, values: Tensor) -> Tensor:
        seen["values"] = values.detach().requires_grad_()
        return seen["values"]

    with torch.enable_grad(), attention.v_proj.register_forward_hook(cut):
        (gradient,) = torch.autograd.grad(loss_of(model, batch), seen["values"])
    return heads(attention, gradient)
