"""The routing law: the next gradient step from attention weights, values and upstream gradients.

    b_ij = u_i·v_j                        compatibility, ∂L/∂α_ij
    A_ij = -(b_ij - Σ_k α_ik b_ik)        advantage: positive means that raising s_ij lowers L
    ∂L/∂s_ij = -α_ij A_ij                 the routing law; every row sums to 0
    ∂L/∂v_j = ū_j = Σ_i α_ij u_i          the value law; α_ij are responsibilities

(Agarwal, Dalal and Misra, arXiv 2512.22473.) Its prose says in places that scores rise where b lies
above its row mean; descent prefers *smaller* b, as the formulas say. The law is about the score s
that enters the softmax, so it is the same for all priors and temperatures.

Shapes: T queries, S keys, D head width; any leading dimensions.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, where


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
