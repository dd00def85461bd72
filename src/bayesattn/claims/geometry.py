"""What the claims of geometry share: the trained models they look into, and their premise.

The full tier looks into models of the bank. A registration names each with the digest of its
recipe, so that a bank that changed is noticed. The quick tier looks into the small models of
tunnel-bijection and tunnel-hmm; where one that comes along was trained in just this way, it is
taken instead.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from bayesattn import zoo
from bayesattn.claims import tunnel_bijection, tunnel_hmm
from bayesattn.claims.bank import registered_training
from bayesattn.ledger.study import PartedStudy, Recipe, Tier
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Predictor, build
from bayesattn.models.open import open_tunnel
from bayesattn.probes.ablation import errors
from bayesattn.probes.measured import held_out
from bayesattn.training import Run
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Batch, Tunnel

NEVER, AGAIN = tunnel_bijection.VARIANTS
FILTER = "filter"
LEARNT = 0.02
"""Bits: the premise of every statement is KL(Bayes ‖ model) of at most this, on held-out data."""


class GeometryRecipe(Recipe):
    """Which models to look into, and at how many sequences."""

    sequences: int = 512
    """Held-out sequences behind every number."""
    bank: Mapping[str, tuple[str, str]] | None = None
    """By part, a model of the bank and the digest of its recipe; None: the small models."""

    def training(self, part: str, seed: int) -> TunnelTraining:
        """How the model of one part is, or was, trained; of the bank only what is there."""
        if self.bank is None:
            return _small_training(part, seed)
        return registered_training(*self.bank[part], seed)


class Looked(Stored):
    """What is found in one model; claims add their own fields."""

    kl: float
    """KL(Bayes ‖ model), bits, on the sequences that were looked at."""

    @property
    def learnt(self) -> bool:
        """Whether the model has learnt its task, without which there is nothing to judge."""
        return self.kl <= LEARNT


class TrainedModel(NamedTuple):
    """A trained model, the same network before training, its task, and held-out sequences."""

    model: Predictor
    initial: Predictor
    tunnel: Tunnel
    batch: Batch

    @property
    def kl(self) -> float:
        return float(errors(self.model, self.batch)[0].mean())


P = TypeVar("P", bound=Looked)


class GeometryStudy(PartedStudy[GeometryRecipe, P]):
    """Looks into models of tunnels; each is a part of its own."""

    models: Sequence[str] = (NEVER, AGAIN)

    def parts(self, tier: Tier) -> Sequence[str]:
        return self.models

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """Small ones that do not come along. No claim trains a model of the bank in passing."""
        if self.recipes[tier].bank:
            return {}
        wanted = {part: _small_training(part, seed) for part in self.models}
        return {part: own for part, own in wanted.items() if _shipped(own) is None}

    def measure_part(self, tier: Tier, seed: int, part: str) -> P:
        return self.look(self.trained(tier, part, seed))

    def trained(self, tier: Tier, part: str, seed: int) -> TrainedModel:
        """One of the bank, one that comes along, or one that is trained now."""
        recipe = self.recipes[tier]
        wanted = recipe.training(part, seed)
        initial = build(wanted.architecture, wanted.tunnel, wanted.config.seed).eval()
        batch = held_out(wanted.tunnel, recipe.sequences)
        return TrainedModel(_shipped(wanted) or wanted.model(), initial, wanted.tunnel, batch)

    @staticmethod
    def each(found: Mapping[int, Mapping[str, P]], part: str) -> list[P]:
        """Of every seed."""
        return [one[part] for one in found.values()]

    @abstractmethod
    def look(self, trained: TrainedModel) -> P:
        """What is found in one model."""


def average(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _small_training(part: str, seed: int) -> TunnelTraining:
    if part == FILTER:
        return tunnel_hmm.TunnelHMM.recipes[Tier.QUICK].training(tunnel_hmm.POSITIONS, seed)
    return tunnel_bijection.TunnelBijection.recipes[Tier.QUICK].training(part, seed)


def _shipped(wanted: TunnelTraining) -> Predictor | None:
    for name in zoo.names():
        run = Run.open(zoo.locate(f"{zoo.PREFIX}{name}"))
        tunnel, model, config = parse_config(run)
        # keeping checkpoints does not change what is learnt
        config = replace(config, dynamics=wanted.config.dynamics)
        if TunnelTraining(tunnel, model, config) == wanted:
            return open_tunnel(run)[0]
    return None
