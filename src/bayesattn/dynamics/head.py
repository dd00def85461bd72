"""One attention head under cross-entropy: all first-order quantities in closed form.

    s_ij = q_i·k_j/√d_k + log prior_ij      α_i = softmax(s_i)      g_i = Σ_j α_ij v_j
    ℓ_i  = W_O g_i + bias                   p_i = softmax(ℓ_i)      L = -Σ_i ln p_i[y_i]
    u_i  = ∂L/∂g_i = W_Oᵀ ∂L/∂ℓ_i           ∂L/∂ℓ_i = p_i - e_{y_i}

with L, and so every gradient, divided by T if the loss is a mean over positions.

This file does not use autograd; `autograd.py` computes the same numbers with it.

Positions are rows, and weights are [out, in] as in `nn.Linear`, so ∂L/∂W is Σ_i ∂L/∂(W x_i) x_iᵀ;
for code that writes x @ W, transpose both. Leading dimensions are separate heads, each with its
own loss. Losses are in nats.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, inf
from torch.nn.functional import one_hot

from bayesattn.attention.kernels.dense import weigh
from bayesattn.dynamics.routing import Routing

Reduction = Literal["sum", "mean"]


class Weights(NamedTuple):
    """The four matrices of a head, or one value for each of them, such as a learning rate."""

    w_q: Any
    w_k: Any
    w_v: Any
    w_o: Any


class Gradients(NamedTuple):
    """Gradients of the loss with respect to all quantities of a head."""

    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    w_o: Tensor
    bias: Tensor
    scores: Tensor
    q: Tensor
    k: Tensor
    v: Tensor


@dataclass(frozen=True, eq=False)
class Head:
    """One head on one sequence; see the module.

    Args:
        x: [..., T, d_x] inputs.
        w_q: [..., d_k, d_x].
        w_k: [..., d_k, d_x].
        w_v: [..., d_v, d_x].
        w_o: [..., C, d_v].
        labels: [..., T] int64, y_i.
        bias: [..., C].
        mask: [..., T, T] True where a query sees a key; every query must see one.
        log_prior: [..., T, T] added to the scores; -inf hides a key as a mask does.
        reduction: Sum or mean over the losses of the positions; it scales u and every gradient.
    """

    x: Tensor
    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    w_o: Tensor
    labels: Tensor
    bias: Tensor | None = None
    mask: Tensor | None = None
    log_prior: Tensor | None = None
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        if self.reduction not in ("sum", "mean"):
            raise ValueError(f"reduction must be sum or mean, not {self.reduction!r}")
        if self.mask is not None and not bool(self.mask.any(-1).all()):
            raise ValueError("a query sees no key at all; let every row of mask hold a True")

    @cached_property
    def q(self) -> Tensor:
        return self.x @ self.w_q.mT

    @cached_property
    def k(self) -> Tensor:
        return self.x @ self.w_k.mT

    @cached_property
    def v(self) -> Tensor:
        return self.x @ self.w_v.mT

    @cached_property
    def alpha(self) -> Tensor:
        """[..., T, T] attention."""
        visible = self.visible
        if visible is None:
            visible = torch.ones(self.x.shape[-2], dtype=torch.bool, device=self.x.device)
        # q and k have the same leading dimensions, so no head is repeated.
        return weigh(self.q, self.k, self.log_prior, visible, self._scale, all_see=True)

    @property
    def scores(self) -> Tensor:
        """[..., T, T] s up to a constant in each row, ln α; -inf where a key is hidden."""
        return self.alpha.log()

    @cached_property
    def visible(self) -> Tensor | None:
        """[..., T, T] True where neither mask nor prior hides a key; None if all see all."""
        if self.log_prior is None:
            return self.mask
        allowed = self.log_prior > -inf
        return allowed if self.mask is None else self.mask & allowed

    @cached_property
    def context(self) -> Tensor:
        """[..., T, d_v] g."""
        return self.alpha @ self.v

    @cached_property
    def logits(self) -> Tensor:
        return self._read_out(self.context)

    @cached_property
    def log_probabilities(self) -> Tensor:
        """[..., T, C] ln p."""
        return self.logits.log_softmax(-1)

    @cached_property
    def loss(self) -> Tensor:
        """[...] L, nats."""
        return self._loss(self.log_probabilities)

    @cached_property
    def errors(self) -> Tensor:
        """[..., T, C] ∂L/∂ℓ."""
        probabilities = self.log_probabilities.exp()
        errors = probabilities - one_hot(self.labels, probabilities.shape[-1])
        return errors if self.reduction == "sum" else errors / errors.shape[-2]

    @cached_property
    def upstream(self) -> Tensor:
        """[..., T, d_v] u."""
        return self.errors @ self.w_o

    @cached_property
    def routing(self) -> Routing:
        """Compatibility, advantage, and the gradients of scores and values."""
        routing = Routing(self.alpha, self.v, self.upstream, self.visible)
        routing.__dict__["context"] = self.context  # known already, so not computed again
        return routing

    @cached_property
    def gradients(self) -> Gradients:
        """All gradients, by the routing law, the value law and the chain rule."""
        scores, values = self.routing.score_gradient, self.routing.weighted_error
        q = scores @ self.k * self._scale
        k = scores.mT @ self.q * self._scale
        return Gradients(
            w_q=q.mT @ self.x,
            w_k=k.mT @ self.x,
            w_v=values.mT @ self.x,
            w_o=self.errors.mT @ self.context,
            bias=self.errors.sum(-2),
            scores=scores,
            q=q,
            k=k,
            v=values,
        )

    def loss_at(self, *, scores: Tensor | None = None, values: Tensor | None = None) -> Tensor:
        """[...] L with these scores or values, independent of the weights."""
        alpha = self.alpha if scores is None else scores.softmax(-1)
        context = alpha @ (self.v if values is None else values)
        return self._loss(self._read_out(context).log_softmax(-1))

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self.w_q.shape[-2])

    def _read_out(self, context: Tensor) -> Tensor:
        logits = context @ self.w_o.mT
        return logits if self.bias is None else logits + self.bias[..., None, :]

    def _loss(self, log_probabilities: Tensor) -> Tensor:
        labels = self.labels.expand(log_probabilities.shape[:-1])
        losses = -log_probabilities.gather(-1, labels[..., None])[..., 0]
        return losses.sum(-1) if self.reduction == "sum" else losses.mean(-1)
