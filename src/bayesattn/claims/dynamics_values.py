"""dynamics-values: which way does cross-entropy push a value?

    Δv_j = -η Σ_i α_ij u_i

Each query asks for its own change, and is heard as far as it attends. Heads that share values, as
in grouped-query attention, are all heard.
"""

import torch
from torch import Generator, Tensor, nn

from bayesattn.claims.gradient_law import GradientLawStudy, Sides
from bayesattn.claims.registry import register
from bayesattn.dynamics import autograd
from bayesattn.dynamics.head import Head
from bayesattn.dynamics.model import head_dynamics
from bayesattn.dynamics.routing import Routing
from bayesattn.tunnels import Batch


@register("dynamics-values")
class DynamicsValues(GradientLawStudy):
    """The value law against autograd."""

    def of_head(self, head: Head, generator: Generator) -> Sides:
        """One head, one value each."""
        routing = head.routing
        wrong = {name: alpha.mT @ routing.upstream for name, alpha in _wrong(routing).items()}
        return Sides(routing.weighted_error, autograd.gradients_of(head).v, wrong)

    def of_layer(self, model: nn.Module, batch: Batch, layer: int, generator: Generator) -> Sides:
        """Query heads that share a value add up."""
        found = head_dynamics(model, batch, layer)
        truth = autograd.value_gradient(model, batch, layer)
        wrong = {
            name: (alpha.mT @ found.upstream).unflatten(1, (found.kv_heads, -1)).sum(2)
            for name, alpha in _wrong(found).items()
        }
        return Sides(found.value_gradient, truth, wrong)

    def remainder(self, head: Head, eta: float) -> float:
        """Of the loss, after a step of all values."""
        after = head.loss_at(values=head.v + head.routing.value_step(eta))
        predicted = head.routing.loss_change_of_value_step(eta)
        return (after - head.loss - predicted).abs().item()


def _wrong(routing: Routing) -> dict[str, Tensor]:
    """Weights that are not the responsibilities."""
    seen = torch.ones_like(routing.alpha)
    if routing.visible is not None:
        seen = seen * routing.visible
    return {
        "uniform weights": seen / seen.sum(-1, keepdim=True),
        "weights of the next key": routing.alpha.roll(1, -1),
    }
