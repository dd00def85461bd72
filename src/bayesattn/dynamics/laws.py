"""What a small step does, to first order in its size η. Each is wrong by O(η²) only.

A value step moves every value freely, Δv_j = -η ū_j, and a score step every score,
Δs_ij = η α_ij A_ij; in a network both are tied through weights.
"""

from torch import Tensor

from bayesattn.dynamics.routing import Routing


def value_step(routing: Routing, eta: float) -> Tensor:
    """[..., S, D] Δv_j = -η ū_j: descent on the values alone."""
    return -eta * routing.weighted_error


def score_step(routing: Routing, eta: float) -> Tensor:
    """[..., T, S] Δs_ij = η α_ij A_ij: descent on the scores alone."""
    return -eta * routing.score_gradient


def loss_change_by_pair(routing: Routing, eta: float) -> Tensor:
    """[..., T, S] what query i gains when v_j alone makes its step: -η α_ij u_i·ū_j.

    A column sums to -η |ū_j|² <= 0, but an entry may be positive: v_j serves several queries.
    """
    return eta * routing.alpha * compatibility_change(routing, 1.0)


def loss_change_of_value_step(routing: Routing, eta: float) -> Tensor:
    """[...] -η Σ_j |ū_j|²."""
    return -eta * routing.weighted_error.square().sum((-2, -1))


def loss_change_of_score_step(routing: Routing, eta: float) -> Tensor:
    """[...] -η Σ_ij (α_ij A_ij)²."""
    return -eta * routing.score_gradient.square().sum((-2, -1))


def attention_change(routing: Routing, eta: float) -> Tensor:
    """[..., T, S] Δα_ij = η α_ij (α_ij A_ij - Σ_k α_ik² A_ik), of a score step."""
    push = -routing.score_gradient
    return eta * routing.alpha * (push - (routing.alpha * push).sum(-1, keepdim=True))


def compatibility_change(routing: Routing, eta: float) -> Tensor:
    """[..., T, S] Δb_ij = -η u_i·ū_j, of a value step with u held; exact."""
    return -eta * routing.upstream @ routing.weighted_error.mT
