"""What the claims of geometry share: the trained models of tunnel-bijection and tunnel-hmm.

The same trainings, so nothing is trained twice; where one of the models that come along was trained
in just this way, it is taken instead.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self, TypeVar

import numpy as np

from bayesattn import zoo
from bayesattn.claims import tunnel_bijection, tunnel_hmm
from bayesattn.ledger.study import PartedStudy, Recipe, Tier
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Predictor, build
from bayesattn.models.open import open_tunnel
from bayesattn.probes.measured import Measured
from bayesattn.training import Run
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Tunnel

NEVER, AGAIN = VARIANTS = tunnel_bijection.VARIANTS
FILTER = "filter"
P = TypeVar("P")


class GeometryRecipe(Recipe):
    """How much to look at; what is trained is up to the claims about tunnels."""

    sequences: int = 512
    """Held-out sequences behind every number."""
    filters: bool = True
    """Look into models of hidden Markov models, too; they are recorded and not judged."""


class Pair(Stored):
    """A number of the trained network, and of the same network before training."""

    trained: float
    untrained: float

    @classmethod
    def of(cls, measured: Measured) -> Self:
        return cls(trained=measured.value, untrained=measured.nulls["untrained"])


class Layers(Stored):
    """The same layer by layer."""

    trained: list[float]
    untrained: list[float]

    @classmethod
    def of(cls, layers: Sequence[Measured], **others: list[float]) -> Self:
        """`others` are the fields that a subclass adds."""
        untrained = [one.nulls["untrained"] for one in layers]
        return cls(trained=[one.value for one in layers], untrained=untrained, **others)


class TrainedModel(NamedTuple):
    """A trained model, the same network before training, and the task."""

    model: Predictor
    initial: Predictor
    tunnel: Tunnel


class GeometryStudy(PartedStudy[GeometryRecipe, P]):
    """Looks into models of tunnels; each is a part of its own."""

    def parts(self, tier: Tier) -> Sequence[str]:
        """Both kinds of bijection, and the filter if the recipe says so."""
        return (*VARIANTS, FILTER) if self.recipes[tier].filters else VARIANTS

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """Those that do not come along."""
        wanted = {part: training(tier, part, seed) for part in self.parts(tier)}
        return {part: own for part, own in wanted.items() if _shipped(own) is None}

    def measure_part(self, tier: Tier, seed: int, part: str) -> P:
        return self.look(trained_model(tier, part, seed), self.recipes[tier].sequences)

    @abstractmethod
    def look(self, trained: TrainedModel, sequences: int) -> P:
        """What is found in one model, on so many held-out sequences."""


def training(tier: Tier, variant: str, seed: int) -> TunnelTraining:
    if variant == FILTER:
        return tunnel_hmm.TunnelHMM.recipes[tier].training(tunnel_hmm.POSITIONS, seed)
    return tunnel_bijection.TunnelBijection.recipes[tier].training(variant, seed)


def trained_model(tier: Tier, variant: str, seed: int) -> TrainedModel:
    """One that comes along, that of another claim, or one that is trained now."""
    wanted = training(tier, variant, seed)
    initial = build(wanted.architecture, wanted.tunnel, wanted.config.seed).eval()
    return TrainedModel(_shipped(wanted) or wanted.model(), initial, wanted.tunnel)


def each(found: Mapping[int, Mapping[str, P]], variant: str) -> list[P]:
    return [one[variant] for one in found.values()]


def average(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _shipped(wanted: TunnelTraining) -> Predictor | None:
    for name in zoo.names():
        run = Run.open(zoo.locate(f"{zoo.PREFIX}{name}"))
        tunnel, model, config = parse_config(run)
        # keeping checkpoints does not change what is learnt
        config = replace(config, dynamics=wanted.config.dynamics)
        if TunnelTraining(tunnel, model, config) == wanted:
            return open_tunnel(run)[0]
    return None
