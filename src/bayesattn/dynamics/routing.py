"""The routing law: what attention weights, values and upstream gradients say about the next step.

    b_ij = u_i·v_j                        compatibility, ∂L/∂α_ij
    A_ij = -(b_ij - Σ_k α_ik b_ik)        advantage: positive means that raising s_ij lowers L
    ∂L/∂s_ij = -α_ij A_ij                 the routing law; every row sums to 0
    ∂L/∂v_j = ū_j = Σ_i α_ij u_i          the value law; α_ij are responsibilities

(Agarwal, Dalal and Misra, arXiv 2512.22473.) Its prose says in places that scores rise where b lies
above its row mean; descent prefers *smaller* b, as the formulas say. The law is about the score s
that enters the softmax, so priors and temperatures change nothing in it.

A value step moves every value freely, Δv_j = -η ū_j, and a score step every score,
Δs_ij = η α_ij A_ij; in a network both are tied through weights. What a step changes is given to
first order in its size η, so it is wrong by O(η²).

Shapes: T queries, S keys, D head width; any leading dimensions.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, where

DEAD = 0.01
"""A value is dead if it is used less than this share of what uniform attention would use it."""


@dataclass(frozen=True, eq=False)
class Routing:
    """First-order quantities of attention, from three tensors.

    Args:
        alpha: [..., T, S] attention weights: the responsibility of key j for query i.
        values: [..., S, D].
        upstream: [..., T, D] u_i, gradient of the loss at the output of the head.
        visible: [..., T, S] True where a query sees a key; None if all see all.
    """

    alpha: Tensor
    values: Tensor
    upstream: Tensor
    visible: Tensor | None = None

    @cached_property
    def context(self) -> Tensor:
        """[..., T, D] g_i = Σ_j α_ij v_j."""
        return self.alpha @ self.values

    @cached_property
    def compatibility(self) -> Tensor:
        """[..., T, S] b_ij = u_i·v_j."""
        return self.upstream @ self.values.mT

    @cached_property
    def row_mean(self) -> Tensor:
        """[..., T] Σ_j α_ij b_ij = u_i·g_i."""
        return (self.upstream * self.context).sum(-1)

    @cached_property
    def advantage(self) -> Tensor:
        """[..., T, S] A_ij; 0 for keys that the query does not see."""
        advantage = self.row_mean[..., None] - self.compatibility
        return advantage if self.visible is None else where(self.visible, advantage, 0.0)

    @cached_property
    def score_gradient(self) -> Tensor:
        """[..., T, S] ∂L/∂s_ij = α_ij (b_ij - Σ_k α_ik b_ik)."""
        return self.alpha * (self.compatibility - self.row_mean[..., None])

    @cached_property
    def weighted_error(self) -> Tensor:
        """[..., S, D] ū_j = Σ_i α_ij u_i; descent moves v_j by -η ū_j."""
        return self.alpha.mT @ self.upstream

    @cached_property
    def usage(self) -> Tensor:
        """[..., S] Σ_i α_ij, how much all queries together use a value."""
        return self.alpha.sum(-2)

    @cached_property
    def dead(self) -> Tensor:
        """[..., S] True for values that are seen but, next to uniform attention, hardly used."""
        if self.visible is None:
            queries, keys = self.alpha.shape[-2:]
            return self.usage < DEAD * queries / keys
        seen = self.visible.to(self.alpha.dtype)
        uniform = (seen / seen.sum(-1, keepdim=True).clamp(min=1)).sum(-2)
        return self.usage < DEAD * uniform

    def value_step(self, eta: float) -> Tensor:
        """[..., S, D] Δv_j = -η ū_j: descent on the values alone."""
        return -eta * self.weighted_error

    def score_step(self, eta: float) -> Tensor:
        """[..., T, S] Δs_ij = η α_ij A_ij: descent on the scores alone."""
        return -eta * self.score_gradient

    def loss_change_of_value_step(self, eta: float) -> Tensor:
        """[...] -η Σ_j |ū_j|²."""
        return -eta * self.weighted_error.square().sum((-2, -1))

    def loss_change_of_score_step(self, eta: float) -> Tensor:
        """[...] -η Σ_ij (α_ij A_ij)²."""
        return -eta * self.score_gradient.square().sum((-2, -1))

    def loss_change_by_pair(self, eta: float) -> Tensor:
        """[..., T, S] what query i gains when v_j alone makes its step: -η α_ij u_i·ū_j.

        A column sums to -η |ū_j|² <= 0, but an entry may be positive: v_j serves several queries.
        """
        return self.alpha * self.compatibility_change(eta)

    def attention_change(self, eta: float) -> Tensor:
        """[..., T, S] Δα_ij = η α_ij (α_ij A_ij - Σ_k α_ik² A_ik), of a score step."""
        push = self.score_step(eta)
        return self.alpha * (push - (self.alpha * push).sum(-1, keepdim=True))

    def compatibility_change(self, eta: float) -> Tensor:
        """[..., T, S] Δb_ij = -η u_i·ū_j, of a value step with u held; exact."""
        return self.upstream @ self.value_step(eta).mT
