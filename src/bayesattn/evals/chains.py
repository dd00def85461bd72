"""Models that write their own scratch, compared with the exact posterior.

A written chain is a sample, so the right answer is the posterior *given the chain*. The model's
belief about the answer alone is the mean over many chains:

    conditional   p(answer | chain)                      against the posterior given the chain
    marginal      mean over chains of p(answer | chain)  against the posterior without a chain

Equal chains of a sequence are computed once and counted. Errors are in bits.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy, entropy_errors, kl_divergence
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.evals.prediction import Model, predict_all
from bayesattn.tunnels import Batch, GroupFilter, Hops

LIMIT = 0.05
"""Largest error in bits at which a number of hops counts as mastered."""
TOLD_APART = 0.5
"""Least total variation at which two posteriors count as different."""


class Written(NamedTuple):
    """Distinct chains of many sequences."""

    inputs: Tensor
    """[M, T] inputs with the written scratch."""
    sequence: Tensor
    """[M] sequence of each chain."""
    times: Tensor
    """[M] number of times that the chain was written."""


@dataclass(frozen=True, kw_only=True)
class HopScores:
    """Scores of sequences with the same number of hops."""

    mae: float
    """|H(model) - H(Bayes)| of the answer, for the mean over chains."""
    kl: float
    """KL(Bayes ‖ model) of the answer, for the mean over chains."""
    conditional_mae: float
    """|H(model) - H(Bayes)| of the answer, chain by chain."""
    conditional_kl: float
    accuracy: float
    """Share of sequences whose most probable answer is the true one."""
    scratch_mae: tuple[float, ...]
    """Errors at each place of the scratch that is not blank, given the true symbols before it."""
    bayes: float
    """Entropy of the exact posterior of the answer."""


@dataclass(frozen=True, kw_only=True)
class Overwriting:
    """KL of the answer, in bits, after one symbol of the scratch was overwritten."""

    kl_to_new: float
    """KL to the posterior given the new symbol."""
    kl_to_old: float
    """KL to the posterior given the old symbol."""

    @property
    def followed(self) -> float:
        """How much nearer the answer is to the new posterior than to the old one, in bits."""
        return self.kl_to_old - self.kl_to_new


class Bayes:
    """The exact posterior as a model: its error is the noise of a mean over chains."""

    def __init__(self, tunnel: Hops | GroupFilter) -> None:
        self.tunnel = tunnel

    def __call__(self, inputs: Tensor, scored: Tensor) -> Tensor:
        """Log-probabilities at `scored`, which must be scored positions of the tunnel."""
        steps = torch.searchsorted(self.tunnel.scored, scored.contiguous())
        return self.tunnel.exact(inputs)[:, steps].log()


def write_chains(
    model: Model, tunnel: Hops | GroupFilter, inputs: Tensor, chains: int, generator: Generator
) -> Written:
    """Let `model` write the scratch of inputs [B, T], `chains` times each."""
    rows, sequence = inputs, torch.arange(len(inputs))
    times = torch.full((len(inputs),), chains)
    for position in tunnel.written.tolist():
        chances = predict_all(model, rows, torch.tensor([position - 1]))[:, 0].exp()
        each = torch.arange(len(rows)).repeat_interleave(times)
        drawn = torch.multinomial(chances[each], 1, generator=generator)[:, 0]
        outcomes = chances.shape[1]
        different, times = (each * outcomes + drawn).unique(return_counts=True)
        origin = different // outcomes
        rows = rows[origin]
        rows[:, position] = tunnel.spell(different % outcomes)
        sequence = sequence[origin]
    return Written(rows, sequence, times)


def write_most_probable(model: Model, tunnel: Hops | GroupFilter, inputs: Tensor) -> Tensor:
    """Inputs [B, T] with the scratch that `model` finds most probable, place by place."""
    rows = inputs.clone()
    for position in tunnel.written.tolist():
        log_probs = predict_all(model, rows, torch.tensor([position - 1]))[:, 0]
        rows[:, position] = tunnel.spell(log_probs.argmax(-1))
    return rows


def measure_hops(
    model: Model, tunnel: Hops, *, sequences: int = 600, chains: int = 64
) -> list[HopScores]:
    """Scores by number of hops, on held-out sequences with a scratch that the model writes.

    The model writes `chains` chains for each sequence; without a scratch the sequence itself is the
    only one. `sequences` is the number over all numbers of hops together.
    """
    generator = Generator().manual_seed(EVAL_SEED)
    batch = tunnel.sample(sequences, generator)
    if len(batch.metadata["hops"].unique()) < tunnel.hops:
        raise ValueError(
            f"{sequences} sequences do not ask for every number of hops up to {tunnel.hops}: "
            "take more"
        )
    written = write_chains(model, tunnel, batch.inputs, chains, generator)
    answers = predict_all(model, written.inputs, tunnel.scored[-1:])[:, 0]
    weight = written.times.double() / chains
    mean = torch.zeros(sequences, tunnel.outcomes, dtype=torch.float64)
    mean.index_add_(0, written.sequence, weight[:, None] * answers.exp())
    given, marginal = tunnel.exact(written.inputs)[:, -1], tunnel.marginal(batch.inputs)
    columns = {
        "mae": entropy_errors(mean.log(), marginal).abs(),
        "kl": kl_divergence(marginal, mean.log()),
        "conditional_mae": _by_sequence(entropy_errors(answers, given).abs(), written, weight),
        "conditional_kl": _by_sequence(kl_divergence(given, answers), written, weight),
        "accuracy": (mean.argmax(1) == batch.labels[:, -1]).double(),
        "bayes": entropy(marginal),
    }
    told = entropy_errors(predict_all(model, batch.inputs, tunnel.scored), batch.posterior).abs()
    hops = batch.metadata["hops"]
    return [
        HopScores(
            scratch_mae=_places(told[hops == number], tunnel, number),
            **{name: float(column[hops == number].mean()) for name, column in columns.items()},
        )
        for number in range(1, tunnel.hops + 1)
    ]


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Errors of a belief at each step."""

    mae: list[float]
    kl: list[float]


def measure_tracking(model: Model, tunnel: GroupFilter, *, sequences: int = 600) -> Tracking:
    """Errors of the belief at each step; the model writes its own scratch."""
    batch = tunnel.sample(sequences, Generator().manual_seed(EVAL_SEED))
    inputs = write_most_probable(model, tunnel, batch.inputs)
    every = 2 if tunnel.scratch == "product" else 1  # a product stands before each belief
    log_probs = predict_all(model, inputs, tunnel.scored[every - 1 :: every])
    posterior = batch.posterior[:, every - 1 :: every]
    return Tracking(
        mae=entropy_errors(log_probs, posterior).abs().mean(0).tolist(),
        kl=kl_divergence(posterior, log_probs).mean(0).tolist(),
    )


def overwrite(tunnel: Hops, batch: Batch, place: Tensor, symbol: Tensor) -> Tensor:
    """Inputs with `symbol` [B] at `place` [B] of the scratch, and its true continuation."""
    if tunnel.mode != "cot":
        raise ValueError(f"only a scratch of mode cot can be overwritten, not of {tunnel.mode}")
    inputs = batch.inputs.clone()
    current = symbol
    for number, position in enumerate(tunnel.written.tolist()):
        following = batch.metadata["permutation"].gather(1, current[:, None])[:, 0]
        current = torch.where(number > place, following, current)
        changed = (number >= place) & (number + 1 < batch.metadata["hops"])
        inputs[:, position] = torch.where(changed, current, inputs[:, position])
    return inputs


def measure_overwriting(model: Model, tunnel: Hops, *, sequences: int = 600) -> Overwriting:
    """Answers after a random symbol of the true scratch is replaced by another one.

    Only for sequences in which the answer must change: posteriors before and after are far apart.
    """
    generator = Generator().manual_seed(EVAL_SEED)
    batch = tunnel.sample(sequences, generator)
    if len(tunnel.written) == 0:
        raise ValueError("there is no scratch to overwrite: choose mode cot and two hops or more")
    length = batch.metadata["hops"] - 1
    place = (torch.rand(sequences, generator=generator) * length).long()
    true = batch.metadata["chain"].gather(1, place[:, None] + 1)[:, 0]
    by = torch.randint(1, tunnel.alphabet, (sequences,), generator=generator)
    inputs = overwrite(tunnel, batch, place, (true + by) % tunnel.alphabet)
    after, before = tunnel.exact(inputs)[:, -1], batch.posterior[:, -1]
    differ = (length > 0) & ((after - before).abs().sum(1) / 2 > TOLD_APART)
    log_probs = predict_all(model, inputs[differ], tunnel.scored[-1:])[:, 0]
    return Overwriting(
        kl_to_new=float(kl_divergence(after[differ], log_probs).mean()),
        kl_to_old=float(kl_divergence(before[differ], log_probs).mean()),
    )


def knee(errors: Sequence[float]) -> int:
    """The largest number of hops up to which all errors are below `LIMIT`."""
    return next((number for number, error in enumerate(errors) if not error < LIMIT), len(errors))


def _by_sequence(values: Tensor, written: Written, weight: Tensor) -> Tensor:
    """[B] mean over the chains of each sequence."""
    every = int(written.sequence[-1]) + 1  # each sequence has a chain, and chains are in order
    return torch.zeros(every, dtype=torch.float64).index_add_(0, written.sequence, weight * values)


def _places(errors: Tensor, tunnel: Hops, hops: int) -> tuple[float, ...]:
    """Means at the places of a scratch for so many hops, from errors [B, S]."""
    used = len(range(tunnel.stride, hops, tunnel.stride)) if len(tunnel.written) else 0
    return tuple(map(float, errors[:, :used].mean(0)))
