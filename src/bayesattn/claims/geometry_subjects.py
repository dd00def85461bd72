"""Trained models for the studies of geometry: those of tunnel-bijection and tunnel-hmm.

The same trainings, so nothing is trained twice; where one of the models that come along was trained
in just this way, it is taken instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar, cast

from bayesattn import zoo
from bayesattn.claims import tunnel_bijection, tunnel_hmm
from bayesattn.ledger.study import Numbers, Recipe, Study, Tier
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.models.architectures import Predictor, build
from bayesattn.models.open import open_tunnel
from bayesattn.training import Run
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Tunnel

NEVER, AGAIN = VARIANTS = tunnel_bijection.VARIANTS
FILTER = "filter"


@dataclass(frozen=True, kw_only=True)
class GeometryRecipe(Recipe):
    """How much to look at; what is trained is up to the tunnel studies."""

    sequences: int = 512
    """Held-out sequences behind every number."""
    filters: bool = True
    """Look into models of hidden Markov models, too; they are recorded and not judged."""


M = TypeVar("M")


class GeometryStudy(Study[GeometryRecipe, M]):
    """Looks into the models of the tunnel studies."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """Those that do not come along."""
        wanted = trainings(tier, seed, self.recipes[tier])
        return {variant: own for variant, own in wanted.items() if _shipped(own) is None}


class Subject(NamedTuple):
    """A trained model, the same network before training, and the task."""

    model: Predictor
    initial: Predictor
    tunnel: Tunnel


def training(tier: Tier, variant: str, seed: int) -> TunnelTraining:
    """The training of a tunnel study at this tier."""
    if variant == FILTER:
        return tunnel_hmm.TunnelHMM.recipes[tier].training(tunnel_hmm.POSITIONS, seed)
    return tunnel_bijection.TunnelBijection.recipes[tier].training(variant, seed)


def trainings(tier: Tier, seed: int, recipe: GeometryRecipe) -> dict[str, TunnelTraining]:
    """Both kinds of bijection, and the filter if the recipe says so."""
    variants = (*VARIANTS, FILTER) if recipe.filters else VARIANTS
    return {variant: training(tier, variant, seed) for variant in variants}


def subject(wanted: TunnelTraining) -> Subject:
    """The trained model: one that comes along, that of an earlier study, or trained now."""
    initial = build(wanted.architecture, wanted.tunnel, wanted.config.seed).eval()
    return Subject(_shipped(wanted) or wanted.model(), initial, wanted.tunnel)


def subjects(tier: Tier, seed: int, recipe: GeometryRecipe) -> Iterator[tuple[str, Subject]]:
    """The models of `trainings`, one after the other."""
    for variant, wanted in trainings(tier, seed, recipe).items():
        yield variant, subject(wanted)


def listed(measured: Numbers, name: str) -> list[float]:
    """A list of numbers of one seed."""
    return list(cast(Sequence[float], measured[name]))


def _shipped(wanted: TunnelTraining) -> Predictor | None:
    for name in zoo.names():
        run = Run.open(zoo.locate(f"{zoo.PREFIX}{name}"))
        tunnel, model, config = parse_config(run)
        # keeping checkpoints does not change what is learnt
        config = replace(config, dynamics=wanted.config.dynamics)
        if TunnelTraining(tunnel, model, config) == wanted:
            return open_tunnel(run)[0]
    return None
