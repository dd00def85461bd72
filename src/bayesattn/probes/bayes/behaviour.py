"""How near a model's predictions come to exact Bayes in one task, one seed at a time.

    missed = mean KL(Bayes ‖ model) / mean KL(Bayes ‖ trivial)

The trivial predictor gives the mean posterior of the step, or that after the last token, whichever
is nearer to Bayes: it knows the task, and collects no evidence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from bayesattn.bits import entropy, kl_divergence
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.probes.bayes.coherence import Drift, Order, measure_drift, measure_order
from bayesattn.probes.bayes.laws import held_out_errors
from bayesattn.probes.bayes.readers import Reader
from bayesattn.stats import mean_interval
from bayesattn.tunnels import Batch, Dice, Labels, Markov, Tunnel
from bayesattn.verdicts import LOOKS, Judgement, Outcome, Value, judge

BAYESIAN = 0.1
"""A model that misses less of the evidence tracks exact Bayes."""
NOTHING = 0.9
"""One that misses more does not infer."""
RESOLUTION = 1e-3
"""Of what is missed: seeds that agree to more than that do so by rounding, as with Bayes itself."""
REFERENCE = 2000
"""Sequences that the trivial predictor is made of."""
REORDERED = 16
"""Sequences that are read in other orders, and continued in imagination, at most; else half."""
ORDERS = 4
CONCENTRATIONS = tuple(float(x) for x in np.geomspace(0.02, 50, 35))
ALPHAS = tuple(float(x) for x in np.linspace(0.51, 0.99, 25))


@dataclass(frozen=True)
class Task:
    """A tunnel, and how a model is asked for it."""

    name: str
    what: str
    """The task in a few words."""
    tunnel: Tunnel
    reader: Callable[[int], Reader]
    """By seed, since words of a prompt are drawn as well."""


@dataclass(frozen=True, kw_only=True)
class OwnPrior:
    """The prior under which exact Bayes is nearest to the model."""

    field: str
    """concentration or alpha."""
    value: float
    missed: float
    """On other sequences than it was chosen on, as a share of the same evidence."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What one seed gives; curves go by step."""

    seed: int
    bits: float
    """Mean KL(Bayes ‖ model)."""
    trivial: float
    """Mean KL(Bayes ‖ trivial)."""
    mass: float
    curve: list[float]
    """Mean KL(Bayes ‖ model)."""
    curve_trivial: list[float]
    order: Order | None = None
    drift: Drift | None = None
    prior: OwnPrior | None = None
    laws: dict[str, float] | None = None

    @property
    def missed(self) -> float:
        return self.bits / self.trivial


def measure_seed(task: Task, seed: int, sequences: int, *, thorough: bool = True) -> Seed:
    """`sequences` fresh sequences; only the first numbers unless `thorough`."""
    tunnel, reader = task.tunnel, task.reader(seed)
    batch = tunnel.sample(sequences, Generator().manual_seed(EVAL_SEED + 1 + seed))
    reading = reader.read(batch.inputs, batch.scored)
    bits = kl_divergence(batch.posterior, reading.log_probs)
    known = reference(tunnel)
    trivial = kl_divergence(batch.posterior, known.trivial(batch).log())
    found = Seed(
        seed=seed,
        bits=float(bits.mean()),
        trivial=float(trivial.mean()),
        mass=float(reading.mass.mean()),
        curve=bits.mean(0).tolist(),
        curve_trivial=trivial.mean(0).tolist(),
    )
    if not thorough:
        return found
    some = batch.inputs[: min(REORDERED, (sequences + 1) // 2)]
    return replace(
        found,
        order=measure_order(reader, tunnel, some, ORDERS, seed),
        drift=measure_drift(reader, tunnel, some),
        prior=own_prior(tunnel, batch.inputs, reading.log_probs, found.trivial),
        laws=held_out_errors((known.least + bits.mean(0)).tolist()),
    )


class Reference(NamedTuple):
    """What many sequences of a tunnel say on average."""

    by_step: Tensor
    """[S, C] mean posterior at each step."""
    by_token: Tensor | None
    """[V, C] mean posterior after each token, if that is nearer to Bayes than the step's."""
    least: Tensor
    """[S] mean entropy of the posterior, bits: the least loss there is."""

    def trivial(self, batch: Batch) -> Tensor:
        """[B, S, C] the better of both."""
        if self.by_token is None:
            return self.by_step.expand_as(batch.posterior)
        return self.by_token[batch.inputs[:, batch.scored]]


@cache
def reference(tunnel: Tunnel) -> Reference:
    batch = tunnel.sample(REFERENCE, Generator().manual_seed(EVAL_SEED))
    posterior = batch.posterior
    found = Reference(posterior.mean(0), None, entropy(posterior).mean(0))
    if tunnel.vocabulary is None:
        return found
    tokens = batch.inputs[:, batch.scored].flatten()
    total = posterior.new_zeros(tunnel.vocabulary, tunnel.outcomes)
    total.index_add_(0, tokens, posterior.flatten(0, 1))
    count = torch.bincount(tokens, minlength=tunnel.vocabulary)[:, None]
    means = torch.where(count > 0, total / count.clamp(min=1), 1 / tunnel.outcomes)
    after = found._replace(by_token=means)
    errors = [kl_divergence(posterior, one.trivial(batch).log()).mean() for one in (found, after)]
    return after if errors[1] < errors[0] else found


def own_prior(
    tunnel: Tunnel, inputs: Tensor, log_probs: Tensor, evidence: float
) -> OwnPrior | None:
    """Chosen on one half of inputs [B, T], judged on the other; None where there is no such prior.

    `evidence` is the mean KL(Bayes ‖ trivial) that what is missed is a share of.
    """
    if isinstance(tunnel, Dice | Markov):
        field, values = "concentration", CONCENTRATIONS
    elif isinstance(tunnel, Labels):
        field, values = "alpha", ALPHAS
    else:
        return None
    bits = torch.stack(
        [
            kl_divergence(replace(tunnel, **{field: value}).exact(inputs), log_probs).mean(1)
            for value in values
        ]
    )
    best = int(bits[:, ::2].mean(1).argmin())
    missed = float(bits[best, 1::2].mean()) / evidence
    return OwnPrior(field=field, value=values[best], missed=missed)


@dataclass(frozen=True)
class Verdict:
    """What seeds say of one task."""

    words: str
    reason: str
    tracks: Judgement
    infers: Judgement

    @property
    def inferring(self) -> bool:
        return self.infers.outcome is Outcome.YES


def judge_seeds(seeds: Sequence[Seed]) -> Verdict:
    """The rule of docs/howto/bayes.md."""
    values = [Value(one.missed) for one in seeds]
    tracks, infers = (
        judge(
            values,
            transform="identity",
            rule="below",
            limit=limit,
            looks=LOOKS[0],
            resolution=RESOLUTION,
        )
        for limit in (BAYESIAN, NOTHING)
    )
    if tracks.outcome is Outcome.YES:
        interval = mean_interval([one.bits for one in seeds])
        most = seeds[0].bits if interval is None else interval.high
        return Verdict(f"tracks exact Bayes within {most:.2g} bits", tracks.reason, tracks, infers)
    if infers.outcome is Outcome.NO:
        return Verdict("no inference", infers.reason, tracks, infers)
    if infers.outcome is Outcome.YES and tracks.outcome is Outcome.NO:
        words = "better than the trivial predictor, but not Bayesian"
        return Verdict(words, tracks.reason, tracks, infers)
    open_ = tracks if infers.outcome is Outcome.YES else infers
    return Verdict("undecided", open_.reason, tracks, infers)
