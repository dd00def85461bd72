"""Trained models for the studies of geometry: those of tunnel-bijection and tunnel-hmm.

The same trainings, so nothing is trained twice; where one of the models that come along was trained
in just this way, it is taken instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

from bayesattn import zoo
from bayesattn.models.architectures import Architecture, Predictor, build
from bayesattn.studies import tunnel_bijection, tunnel_hmm
from bayesattn.studies.study import Numbers, Recipe, Tier
from bayesattn.studies.trained import run_name, runs_folder, trained
from bayesattn.training import Run, TrainConfig, load_predictor, train_tunnel
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import HMM, Bijection, Tunnel

NEVER, AGAIN = VARIANTS = tunnel_bijection.VARIANTS
FILTER = "filter"


@dataclass(frozen=True, kw_only=True)
class GeometryRecipe(Recipe):
    """How much to look at; what is trained is up to the tunnel studies."""

    sequences: int = 512
    """Held-out sequences behind every number."""
    filters: bool = True
    """Look into models of hidden Markov models, too; they are recorded and not judged."""


RECIPES = MappingProxyType(
    {
        Tier.QUICK: GeometryRecipe(seeds=2, sequences=256, filters=False),
        Tier.FULL: GeometryRecipe(seeds=3),
        Tier.PAPER: GeometryRecipe(seeds=5),
    }
)


class Training(NamedTuple):
    """What decides a trained model."""

    tunnel: Tunnel
    architecture: Architecture
    config: TrainConfig


class Subject(NamedTuple):
    """A trained model, the same network before training, and the task."""

    model: Predictor
    initial: Predictor
    tunnel: Tunnel


def training(tier: Tier, variant: str, seed: int) -> Training:
    """The training of a tunnel study at this tier."""
    if variant == FILTER:
        filters = tunnel_hmm.TunnelHMM.recipes[tier]
        return Training(
            HMM(filters.states, filters.states, filters.length),
            tunnel_hmm.architecture(filters, tunnel_hmm.POSITIONS),
            TrainConfig(
                steps=filters.steps,
                batch_size=filters.batch_size,
                lr=filters.lr,
                seed=seed,
                threads=1,
            ),
        )
    recipe = tunnel_bijection.TunnelBijection.recipes[tier]
    return Training(
        Bijection(recipe.alphabet, replacement=variant == AGAIN),
        tunnel_bijection.architecture(recipe),
        TrainConfig(
            steps=recipe.recall_steps if variant == AGAIN else recipe.steps,
            batch_size=recipe.batch_size,
            lr=recipe.lr,
            labels="posterior",
            seed=seed,
            threads=1,
            dynamics=True,
        ),
    )


def subject(tier: Tier, variant: str, seed: int) -> Subject:
    """The trained model: one that comes along, that of an earlier study, or trained now."""
    wanted = training(tier, variant, seed)
    initial = build(wanted.architecture, wanted.tunnel, seed).eval()
    return Subject(_shipped(wanted) or trained(*wanted), initial, wanted.tunnel)


def subjects(tier: Tier, seed: int, recipe: GeometryRecipe) -> Iterator[tuple[str, Subject]]:
    """Both kinds of bijection, and the filter if the recipe says so."""
    for variant in (*VARIANTS, FILTER) if recipe.filters else VARIANTS:
        yield variant, subject(tier, variant, seed)


def followed(tier: Tier, variant: str, seed: int) -> Run:
    """The run of such a training, with checkpoints from all over it."""
    wanted = training(tier, variant, seed)
    folder: Path = runs_folder() / run_name(*wanted)
    return train_tunnel(*wanted, folder, progress=False)


def listed(measured: Numbers, name: str) -> list[float]:
    """A list of numbers of one seed."""
    return list(cast(Sequence[float], measured[name]))


def _shipped(wanted: Training) -> Predictor | None:
    for name in zoo.names():
        run = Run.open(zoo.locate(f"{zoo.PREFIX}{name}"))
        tunnel, model, config = parse_config(run)
        # keeping checkpoints does not change what is learnt
        if (tunnel, model, replace(config, dynamics=wanted.config.dynamics)) == wanted:
            return load_predictor(run)[0]
    return None
