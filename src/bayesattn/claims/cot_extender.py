"""cot-extender: does a written step buy a model another round of inference?

    error = | H(model) - H(Bayes) | of the answer, in bits, by number of hops k

of small transformers that follow a partly revealed permutation for k hops (`tunnels/hops.py`),
directly or with a scratch that they write themselves. k*(L), the knee, is the number of hops up to
which a model of L layers has an error below 0.05 bits.

Judged is the smallest depth, given that it has learnt one hop, which needs no chain. Other depths
and scratches, geometry and a language model are recorded beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from bayesattn.claims.chain_language import Labelling, measure_language
from bayesattn.claims.panels import draw_curves, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import TunnelRecipe
from bayesattn.evals.chains import (
    LIMIT,
    Bayes,
    Overwriting,
    Tracking,
    measure_hops,
    measure_overwriting,
    measure_tracking,
)
from bayesattn.ledger.study import Picture, Study, Tier, Value
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Transformer, count_parameters, match_parameters
from bayesattn.probes.chain import Way, measure_chain
from bayesattn.tunnels import GroupFilter, Hops, Tunnel
from bayesattn.tunnels.groups import Scratch
from bayesattn.tunnels.hops import Mode

ERROR = "|H(model) - H(Bayes)|, bits"


class ChainRecipe(TunnelRecipe):
    """Arms of one task, at several depths, all of one size.

    Each is trained on as many sequences, with the same optimiser and as many parameters (within
    2%) whatever its depth.
    """

    alphabet: int
    hops: int
    arms: tuple[tuple[Mode, int], ...]
    """What stands in the scratch, and the layers. The first depth of direct is judged."""
    width: int
    """Of the shallowest model; deeper ones are narrower."""
    tracks: tuple[tuple[str, Scratch], ...]
    """Groups and what stands in the scratch, for the group filter at the first depth; the first
    group is the serial one, with blanks and with products."""
    track_length: int = 12
    track_steps: int = 0
    lr: float = 3e-3
    sequences: int = 1200
    """Held-out sequences, over all numbers of hops."""
    chains: int = 64
    """Chains that a model writes for each of them."""
    prompts: int
    """Prompts of the language model, for each difference of labels."""

    @property
    def depth(self) -> int:
        return min(depth for mode, depth in self.arms if mode == "direct")

    def hops_tunnels(self) -> dict[str, tuple[Hops, int]]:
        """Task and layers of each arm."""
        return {
            arm_name(mode, depth): (Hops(self.alphabet, self.hops, mode=mode), depth)
            for mode, depth in self.arms
        }

    def track_tunnels(self) -> dict[str, GroupFilter]:
        return {
            f"{group}, {scratch}": GroupFilter(
                group, self.track_length, scratch=scratch, actions="generators"
            )
            for group, scratch in self.tracks
        }

    def training(self, tunnel: Tunnel, depth: int, steps: int, seed: int) -> TunnelTraining:
        return TunnelTraining(tunnel, _architecture(self, depth, tunnel), self.config(seed, steps))

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        arms = {
            name: self.training(tunnel, depth, self.steps, seed)
            for name, (tunnel, depth) in self.hops_tunnels().items()
        }
        return arms | {
            name: self.training(tunnel, self.depth, self.track_steps, seed)
            for name, tunnel in self.track_tunnels().items()
        }


def arm_name(mode: Mode, depth: int) -> str:
    return f"{mode}, {depth} layers"


@cache  # sizes are found by trying, and trainings are asked for many times
def _architecture(recipe: ChainRecipe, depth: int, tunnel: Tunnel) -> Transformer:
    # A prior that is local in half of the heads finds the neighbour of a key at once; learned
    # positions take several times as many steps to get there.
    shallow = recipe.transformer(recipe.depth, prior="ggd", prior_options={"init": "mixed"})
    if depth == shallow.layers:
        return shallow
    budget = count_parameters(shallow, tunnel)
    return match_parameters(replace(shallow, layers=depth), tunnel, budget)


class Arm(Stored):
    """One model on hops: lists are by number of hops, errors in bits."""

    error: list[float]
    """Of the entropy of the answer, mean over chains."""
    kl: list[float]
    error_given_chain: list[float]
    kl_given_chain: list[float]
    accuracy: list[float]
    scratch_error: list[float]
    """At each place of the scratch; empty if there is none to predict."""
    overwritten: Overwriting | None
    """Only of chain of thought."""
    over_layers: Way
    over_steps: Way | None
    """None without a scratch."""
    order_by_entropy: float | None
    """None without a scratch."""


class Chains(Stored):
    """What one seed measured."""

    arms: Mapping[str, Arm]
    noise_of_chains: list[float]
    """Error of the exact posterior with as many sampled chains, by number of hops."""
    tracks: Mapping[str, Tracking]
    language: Mapping[str, Labelling]
    """Of a language model that is not trained here, by style of the prompt."""


@register("cot-extender")
class CotExtender(Study[ChainRecipe, Chains]):
    """Trains models on hops with and without scratch, and lets them write it themselves."""

    def measure(self, tier: Tier, seed: int) -> Chains:
        recipe = self.recipes[tier]
        trainings = recipe.trainings(seed)
        bayes = Hops(recipe.alphabet, recipe.hops, mode="cot")
        ideal = measure_hops(Bayes(bayes), bayes, sequences=recipe.sequences, chains=recipe.chains)
        return Chains(
            arms={
                name: _measure_arm(recipe, trainings[name], tunnel)
                for name, (tunnel, _) in recipe.hops_tunnels().items()
            },
            noise_of_chains=[score.mae for score in ideal],
            tracks={
                name: measure_tracking(trainings[name].model(), tunnel)
                for name, tunnel in recipe.track_tunnels().items()
            },
            language=measure_language(recipe.prompts, seed),
        )

    def values(self, tier: Tier, one: Chains) -> Mapping[str, Value]:
        recipe = self.recipes[tier]
        direct, cot, filler = (
            one.arms[arm_name(mode, recipe.depth)] for mode in ("direct", "cot", "filler")
        )
        learnt = direct.error[0] < LIMIT
        assert cot.overwritten is not None
        blanks, written = np.mean(filler.error[1:]), np.mean(cot.error[1:])
        group = recipe.tracks[0][0]  # the serial one
        idle, products = (np.mean(one.tracks[f"{group}, {s}"].mae) for s in ("filler", "product"))
        return {
            "helps": Value(float(blanks - written), float(blanks), learnt),
            "exact": Value(max(cot.error), max(one.noise_of_chains), learnt),
            "followed": Value(cot.overwritten.followed, cot.overwritten.kl_to_old, learnt),
            "serial-group": Value(float(idle - products), float(idle)),
        }

    def draw(self, tier: Tier, found: Mapping[int, Chains]) -> list[Picture]:
        recipe = self.recipes[tier]
        depths = sorted({depth for _, depth in recipe.arms})
        figure, axes = panels(len(depths), (2.2 + 2.6 * len(depths), 3.6), sharey=True)
        for panel, depth in zip(axes, depths, strict=True):
            _draw_depth(panel, recipe, depth, found)
        axes[0].set_ylabel(ERROR)
        # the smallest depth has every arm
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
        caption = (
            "Error of the answer by number of hops, scratch written by the model itself; dotted: "
            "what counts as mastered; means over seeds, and each seed in a thin line."
        )
        alt = "One panel per depth, one line per arm over the number of hops."
        pictures = [Picture("hops", figure, caption, alt)]
        if recipe.tracks:
            figure, (panel,) = panels(size=(6, 3.2))
            draw_curves(
                panel,
                {
                    name: mean_curve(found, lambda one, name=name: one.tracks[name].mae)
                    for name in recipe.track_tunnels()
                },
            )
            panel.set(xlabel="step", ylabel=ERROR, yscale="log")
            caption = (
                f"Tracking a point moved by a group, {recipe.depth} layers: products of S5 are "
                "serial, those of Z5 are sums; means over seeds."
            )
            alt = "One line per group and scratch over the steps."
            pictures.append(Picture("groups", figure, caption, alt))
        return pictures


def _measure_arm(recipe: ChainRecipe, training: TunnelTraining, tunnel: Hops) -> Arm:
    model = training.model()
    scores = measure_hops(model, tunnel, sequences=recipe.sequences, chains=recipe.chains)
    cot = tunnel.mode == "cot"
    geometry = measure_chain(model, tunnel)
    return Arm(
        error=[score.mae for score in scores],
        kl=[score.kl for score in scores],
        error_given_chain=[score.conditional_mae for score in scores],
        kl_given_chain=[score.conditional_kl for score in scores],
        accuracy=[score.accuracy for score in scores],
        scratch_error=list(scores[-1].scratch_mae),
        overwritten=measure_overwriting(model, tunnel, sequences=recipe.sequences) if cot else None,
        over_layers=geometry.layers,
        over_steps=geometry.steps,
        order_by_entropy=geometry.order,
    )


def _draw_depth(axes: Any, recipe: ChainRecipe, depth: int, found: Mapping[int, Chains]) -> None:
    hops = range(1, recipe.hops + 1)
    colours = {mode: f"C{at}" for at, mode in enumerate(dict(recipe.arms))}
    for mode, layers in recipe.arms:
        if layers != depth:
            continue
        colour, name = colours[mode], arm_name(mode, depth)
        for one in found.values():
            axes.plot(hops, one.arms[name].error, lw=0.6, alpha=0.5, color=colour)
        mean = mean_curve(found, lambda one, name=name: one.arms[name].error)
        axes.plot(hops, mean, "o-", ms=3, color=colour, label=mode)
    floor = mean_curve(found, lambda one: one.noise_of_chains)
    axes.plot(hops, floor, color="grey", lw=1, label="Bayes, sampled")
    axes.axhline(LIMIT, color="grey", ls=":")
    axes.set(title=f"{depth} layers", xlabel="hops", xticks=hops, yscale="log", ylim=(5e-4, 5))
