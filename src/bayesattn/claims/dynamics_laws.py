"""dynamics-routing and dynamics-values: which way does cross-entropy push a score, and a value?

    routing   ∂L/∂s_ij = α_ij (b_ij - Σ_k α_ik b_ik),   b_ij = u_i·v_j
    values    Δv_j = -η Σ_i α_ij u_i

The first is an advantage law, as in policy gradients: a key gains if it is better than what
attention has on average; the score is the one that enters the softmax, with prior and temperature.
In the second each query asks for its own change, and is heard as far as it attends; heads that
share values, as in grouped-query attention, are all heard.

A law and autograd must differ by rounding only: on random heads, on every head of trained models
and on an untrained one with all that may enter a score. Then real steps are taken: what the law
leaves unexplained must shrink with the square of the step.

Differences are relative to the largest gradient of the head, since gradients of a trained model can
be small as a whole.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.dynamics import autograd
from bayesattn.dynamics.autograd import random_head
from bayesattn.dynamics.head import Head
from bayesattn.dynamics.model import head_dynamics
from bayesattn.dynamics.routing import Routing
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Transformer, build
from bayesattn.models.open import open_tunnel
from bayesattn.tunnels import HMM, Batch
from bayesattn.zoo import locate

TOLERANCE = 1e-10
ETAS = tuple(np.geomspace(1e-3, 1e-6, 7).tolist())
FLOOR = 1e-18

RANDOM = "random heads"
EVERYTHING = "untrained, grouped queries, prior and SSMax"
TRAINED = ("zoo:bijection-10", "zoo:bijection-10-returning")


class Sides(NamedTuple):
    """The law, what autograd says, and wrong laws by name; all of one shape."""

    law: Tensor
    truth: Tensor
    wrong: Mapping[str, Tensor]


class LawRecipe(Recipe):
    """Random heads of these lengths, and sequences per model."""

    lengths: tuple[int, ...]
    sequences: int


class Place(Stored):
    """Largest relative differences from autograd in one place, one per head."""

    law: list[float]
    wrong: Mapping[str, list[float]]
    """Of wrong laws, by name."""

    @property
    def all_wrong(self) -> list[float]:
        return [difference for own in self.wrong.values() for difference in own]


class Law(Stored):
    """What one seed found."""

    places: Mapping[str, Place]
    unexplained: list[float]
    """Share of the predicted change of the loss that a real step misses, by size of the step."""
    wrong_step: float
    """The same for the best wrong law, at the smallest step."""


class GradientLawStudy(Study[LawRecipe, Law]):
    """A law beside autograd, and wrong laws beside it."""

    @abstractmethod
    def of_head(self, head: Head, generator: Generator) -> Sides:
        """Both sides for one head [T, ...]."""

    @abstractmethod
    def of_layer(self, model: nn.Module, batch: Batch, layer: int, generator: Generator) -> Sides:
        """Both sides for all heads of a layer, [B, heads, ...]."""

    @abstractmethod
    def loss_after(self, head: Head, step: Tensor) -> Tensor:
        """The loss after a step of the scores, or of the values."""

    def unexplained(self, head: Head, gradient: Tensor, eta: float) -> float:
        """|ΔL + η |g|²| / η |g|² after a real step of -η g: near 0 if g is the gradient."""
        predicted = -eta * gradient.square().sum()
        change = self.loss_after(head, -eta * gradient) - head.loss
        return ((change - predicted) / predicted).abs().item()

    def measure(self, tier: Tier, seed: int) -> Law:
        recipe = self.recipes[tier]
        generator = Generator().manual_seed(seed)
        found: dict[str, list[Place]] = {}
        for length, causal, prior in product(recipe.lengths, (False, True), (False, True)):
            head = random_head(generator, length, causal=causal, prior=prior)
            sides = self.of_head(head, generator)
            wrong = {name: side[None, None] for name, side in sides.wrong.items()}
            sides = Sides(sides.law[None, None], sides.truth[None, None], wrong)
            found.setdefault(RANDOM, []).append(_compare(sides))
        for place, model, batch in _models(recipe.sequences, seed, generator):
            found[place] = [
                _compare(self.of_layer(model, batch, layer, generator)) for layer in range(2)
            ]
        head = random_head(generator, 12, causal=True, prior=True, reduction="sum")
        sides = self.of_head(head, generator)
        return Law(
            places={name: _pooled(own) for name, own in found.items()},
            unexplained=[self.unexplained(head, sides.law, eta) for eta in ETAS],
            wrong_step=min(self.unexplained(head, g, ETAS[-1]) for g in sides.wrong.values()),
        )

    def values(self, tier: Tier, one: Law) -> Mapping[str, Value]:
        places = one.places.values()
        return {
            "law": Value(
                max(max(place.law) for place in places),
                min(min(place.all_wrong) for place in places),
            ),
            "step": Value(one.unexplained[-1], one.wrong_step),
        }

    def draw(self, tier: Tier, found: Mapping[int, Law]) -> list[Picture]:
        figure, (heads, steps) = panels(2, size=(8, 3.6), width_ratios=(3, 2))
        laws = list(found.values())
        places = {name: _pooled([law.places[name] for law in laws]) for name in laws[0].places}
        for row, place in enumerate(places.values()):
            for colour, values in enumerate((place.law, place.all_wrong)):
                spread = np.linspace(-0.3, 0.3, len(values)) + row
                heads.plot(np.maximum(values, FLOOR), spread, ".", color=f"C{colour}", ms=4)
        heads.axvline(TOLERANCE, color="grey", ls=":")
        heads.set(xscale="log", xlabel="largest relative difference, one point per head")
        names = [place.replace(", ", ",\n") for place in places]
        heads.set_yticks(range(len(places)), names, fontsize=8)
        heads.set_title("law (left), wrong laws (right)", fontsize=10)
        shares = np.mean([one.unexplained for one in found.values()], 0)
        steps.plot(ETAS, shares, "o-")
        steps.plot(ETAS, [shares[0] * eta / ETAS[0] for eta in ETAS], ":", color="grey")
        steps.set(xscale="log", yscale="log", xlabel="size of the step η")
        steps.set_ylabel("unexplained share of ΔL")
        steps.set_title("dotted: proportional to η", fontsize=10)
        caption = (
            "Left: the law against autograd in float64, and wrong laws against autograd; dotted, "
            "what rounding may cause. Right: what first order leaves unexplained of a real step."
        )
        alt = "The law is at rounding level in every head, wrong laws far from it."
        return [Picture("law", figure, caption, alt)]


@register("dynamics-routing")
class DynamicsRouting(GradientLawStudy):
    """The routing law against autograd."""

    def of_head(self, head: Head, generator: Generator) -> Sides:
        return _routing_sides(head.routing, autograd.gradients_of(head).scores, generator)

    def of_layer(self, model: nn.Module, batch: Batch, layer: int, generator: Generator) -> Sides:
        truth = autograd.score_gradient(model, batch, layer)
        return _routing_sides(head_dynamics(model, batch, layer), truth, generator)

    def loss_after(self, head: Head, step: Tensor) -> Tensor:
        return head.loss_at(scores=head.scores + step)


@register("dynamics-values")
class DynamicsValues(GradientLawStudy):
    """The value law against autograd."""

    def of_head(self, head: Head, generator: Generator) -> Sides:
        routing = head.routing
        wrong: dict[str, Tensor] = {
            name: alpha.mT @ routing.upstream for name, alpha in _wrong_weights(routing).items()
        }
        return Sides(routing.weighted_error, autograd.gradients_of(head).v, wrong)

    def of_layer(self, model: nn.Module, batch: Batch, layer: int, generator: Generator) -> Sides:
        """Query heads that share a value add up."""
        found = head_dynamics(model, batch, layer)
        truth = autograd.value_gradient(model, batch, layer)
        wrong: dict[str, Tensor] = {
            name: torch.unflatten(alpha.mT @ found.upstream, 1, (found.kv_heads, -1)).sum(2)
            for name, alpha in _wrong_weights(found).items()
        }
        return Sides(found.value_gradient, truth, wrong)

    def loss_after(self, head: Head, step: Tensor) -> Tensor:
        return head.loss_at(values=head.v + step)


def _routing_sides(routing: Routing, truth: Tensor, generator: Generator) -> Sides:
    wrong = {
        "without the row mean": routing.alpha * routing.compatibility,
        "advantages exchanged": -routing.alpha
        * shuffled(routing.advantage, routing.visible, generator),
    }
    return Sides(routing.score_gradient, truth, wrong)


def _wrong_weights(routing: Routing) -> dict[str, Tensor]:
    """Weights that are not the responsibilities."""
    seen = torch.ones_like(routing.alpha)
    if routing.visible is not None:
        seen = seen * routing.visible
    return {
        "uniform weights": seen / seen.sum(-1, keepdim=True),
        "weights of the next key": routing.alpha.roll(1, -1),
    }


def _models(
    sequences: int, seed: int, generator: Generator
) -> Iterator[tuple[str, nn.Module, Batch]]:
    """Models in float64, each with a batch of its tunnel."""
    for name in TRAINED:
        model, tunnel = open_tunnel(locate(name))
        yield name, model.double(), tunnel.sample(sequences, generator)
    tunnel = HMM(3, 3, 8)
    everything = Transformer(
        width=32,
        num_key_value_heads=2,
        prior="ggd",
        prior_options={"init": "mixed"},
        ssmax=True,
        exempt="header",
    )
    model = build(everything, tunnel, seed).double()
    yield EVERYTHING, model, tunnel.sample(sequences, generator)


def _largest(x: Tensor) -> Tensor:
    """[heads] largest entry of [B, heads, ...]."""
    return x.abs().transpose(0, 1).flatten(1).amax(1)


def _compare(sides: Sides) -> Place:
    size = _largest(sides.truth)

    def differences(side: Tensor) -> list[float]:
        return (_largest(side - sides.truth) / size).detach().numpy().tolist()

    wrong = {name: differences(side) for name, side in sides.wrong.items()}
    return Place(law=differences(sides.law), wrong=wrong)


def _pooled(places: Sequence[Place]) -> Place:
    return Place(
        law=[difference for place in places for difference in place.law],
        wrong={
            name: [difference for place in places for difference in place.wrong[name]]
            for name in places[0].wrong
        },
    )


def shuffled(x: Tensor, visible: Tensor | None, generator: Generator) -> Tensor:
    """Entries of each row of x [..., T, S] exchanged among the keys that the query sees."""
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64)
    if visible is None:
        return x.gather(-1, noise.argsort(-1))
    hidden = ~visible.expand(x.shape)
    # Visible keys first, in random order there and in their own order here.
    source = noise.masked_fill(hidden, 2.0).argsort(-1)
    place = torch.arange(x.shape[-1], dtype=torch.float64).expand(x.shape)
    place = place.masked_fill(hidden, float(x.shape[-1])).argsort(-1)
    return torch.empty_like(x).scatter_(-1, place, x.gather(-1, source))
