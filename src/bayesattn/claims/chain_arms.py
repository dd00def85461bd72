"""What cot-extender trains: arms of one task, at several depths, all of one size.

An arm is what stands in the scratch; each is trained on as many sequences, with the same optimiser
and as many parameters (within 2%) whatever its depth.
"""

from dataclasses import dataclass, replace
from functools import cache

from bayesattn.ledger.study import Recipe
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.models.architectures import Transformer, count_parameters, match_parameters
from bayesattn.training import TrainConfig
from bayesattn.tunnels import GroupFilter, Hops, Tunnel
from bayesattn.tunnels.groups import Scratch
from bayesattn.tunnels.hops import Mode

Arm = tuple[Mode, int]
"""What stands in the scratch, and the number of layers."""
Track = tuple[str, Scratch]
"""A group, and what stands in the scratch."""


@dataclass(frozen=True, kw_only=True)
class ChainRecipe(Recipe):
    """Tasks, models and training."""

    alphabet: int
    hops: int
    arms: tuple[Arm, ...]
    """The first depth of direct is the one that is judged."""
    width: int
    """Of the shallowest model; deeper ones are narrower."""
    heads: int = 4
    steps: int
    tracks: tuple[Track, ...] = ()
    """Of the group filter, at the first depth."""
    track_length: int = 12
    track_steps: int = 0
    batch_size: int = 64
    lr: float = 3e-3
    sequences: int
    """Held-out sequences, over all numbers of hops."""
    chains: int = 64
    """Self-written for each of them."""
    prompts: int
    """Of the language model, for each difference of labels."""

    @property
    def depths(self) -> list[int]:
        """Of direct, rising."""
        return sorted(depth for mode, depth in self.arms if mode == "direct")

    def hops_training(self, arm: Arm, seed: int) -> TunnelTraining:
        """Of one arm."""
        mode, depth = arm
        tunnel = Hops(self.alphabet, self.hops, mode=mode)
        return TunnelTraining(
            tunnel, _architecture(self, depth, tunnel), self._config(self.steps, seed)
        )

    def track_training(self, track: Track, seed: int) -> TunnelTraining:
        """Of one group."""
        group, scratch = track
        tunnel = GroupFilter(group, self.track_length, scratch=scratch, actions="generators")
        architecture = _architecture(self, self.depths[0], tunnel)
        return TunnelTraining(tunnel, architecture, self._config(self.track_steps, seed))

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        """All of them, by name."""
        arms = {arm_name(arm): self.hops_training(arm, seed) for arm in self.arms}
        return arms | {track_name(track): self.track_training(track, seed) for track in self.tracks}

    def _config(self, steps: int, seed: int) -> TrainConfig:
        return TrainConfig(
            steps=steps, batch_size=self.batch_size, lr=self.lr, seed=seed, threads=1
        )


def arm_name(arm: Arm) -> str:
    """As numbers and figures call it."""
    mode, depth = arm
    return f"{mode}, {depth} layers"


def track_name(track: Track) -> str:
    """As numbers and figures call it."""
    group, scratch = track
    return f"{group}, {scratch}"


@cache  # sizes are found by trying, and trainings are asked for many times
def _architecture(recipe: ChainRecipe, depth: int, tunnel: Tunnel) -> Transformer:
    # A prior that is local in half of the heads finds the neighbour of a key at once; learned
    # positions take several times as many steps to get there.
    shallow = Transformer(
        layers=recipe.depths[0],
        width=recipe.width,
        heads=recipe.heads,
        prior="ggd",
        prior_options={"init": "mixed"},
    )
    if depth == shallow.layers:
        return shallow
    budget = count_parameters(shallow, tunnel)
    return match_parameters(replace(shallow, layers=depth), tunnel, budget)
