"""dynamics-routing: which way does cross-entropy push a score?

    ∂L/∂s_ij = α_ij (b_ij - Σ_k α_ik b_ik),    b_ij = u_i·v_j

An advantage law, as in policy gradients: a key gains if it is better than what attention has on
average. The score is the one that enters the softmax, with prior and temperature.
"""

from torch import Generator, Tensor, nn

from bayesattn.claims.gradient_law import GradientLawStudy, Sides, shuffled
from bayesattn.claims.registry import register
from bayesattn.dynamics import autograd
from bayesattn.dynamics.head import Head
from bayesattn.dynamics.model import head_dynamics
from bayesattn.dynamics.routing import Routing
from bayesattn.tunnels import Batch


@register("dynamics-routing")
class DynamicsRouting(GradientLawStudy):
    """The routing law against autograd."""

    def of_head(self, head: Head, generator: Generator) -> Sides:
        """See `_sides`."""
        return _sides(head.routing, autograd.gradients_of(head).scores, generator)

    def of_layer(self, model: nn.Module, batch: Batch, layer: int, generator: Generator) -> Sides:
        """See `_sides`."""
        truth = autograd.score_gradient(model, batch, layer)
        return _sides(head_dynamics(model, batch, layer), truth, generator)

    def remainder(self, head: Head, eta: float) -> float:
        """Of the loss, after a step of all scores."""
        after = head.loss_at(scores=head.scores + head.routing.score_step(eta))
        predicted = head.routing.loss_change_of_score_step(eta)
        return (after - head.loss - predicted).abs().item()


def _sides(routing: Routing, truth: Tensor, generator: Generator) -> Sides:
    wrong = {
        "without the row mean": routing.alpha * routing.compatibility,
        "advantages exchanged": -routing.alpha
        * shuffled(routing.advantage, routing.visible, generator),
    }
    return Sides(routing.score_gradient, truth, wrong)
