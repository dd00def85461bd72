"""dynamics-values: which way does cross-entropy push a value?

    Δv_j = -η Σ_i α_ij u_i

Each query asks for its own change, and is heard as far as it attends. Heads that share values, as
in grouped-query attention, are all heard.
"""

import torch
from torch import Generator, Tensor, nn

from bayesattn.claims.gradient_law import GradientLawStudy, Sides
from bayesattn.claims.registry import register
from bayesattn.dynamics import autograd, laws
from bayesattn.dynamics.head import Head
from bayesattn.dynamics.model import head_dynamics
from bayesattn.dynamics.routing import Routing
from bayesattn.ledger.study import Claim
from bayesattn.tunnels import Batch


@register
class DynamicsValues(GradientLawStudy):
    """The value law against autograd."""

    claim = Claim(
        id="dynamics-values",
        statement="Descent moves a value along the errors of its users, weighted with their "
        "attention: Δv_j = -η Σ_i α_ij u_i.",
        source="Agarwal et al., Gradient Dynamics of Attention, arXiv 2512.22473: section 3",
        reported="derived",
    )
    method = (
        "In float64 the law is compared with autograd: on random heads with and without mask and "
        "prior, on every head of two trained models, and of an untrained one with grouped queries, "
        "a prior and SSMax, where the query heads of a group add up. Then every value of a random "
        "head makes a real step: what the law leaves unexplained of the loss must shrink with the "
        "square of the step, to a power of 2 ± 0.05."
    )
    null = (
        "The law with uniform attention over the visible keys as weights, and with the weights of "
        "the next key; the smallest difference counts."
    )

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
        after = head.loss_at(values=head.v + laws.value_step(head.routing, eta))
        predicted = laws.loss_change_of_value_step(head.routing, eta)
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
