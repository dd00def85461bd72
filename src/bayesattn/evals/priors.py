"""What each head of a language model believes about distance: its prior, class and reach.

Everything is told for a query at the end of a training sequence, which sees as many keys as the
model was trained with, with the temperature of SSMax where it scales the prior. L layers that
attend, H heads.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bayesattn.attention import SSMax, Visibility
from bayesattn.attention.ssmax import temperatures
from bayesattn.models import BayesForCausalLM
from bayesattn.models.layers import BayesAttention, BayesDecoderLayer
from bayesattn.models.open import LanguageModel, find
from bayesattn.priors import GeneralizedGaussian, Prior
from bayesattn.priors.generalized_gaussian import HeadClass
from bayesattn.runs import Run

REACH = 1e-3
"""A head reaches as far as its prior is this share of its largest value."""
LARGEST_DROP = 700.0
"""Largest fall of a log-prior that is looked for: `Prior.reach` takes its exponential."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The prior of one head. The thetas, mu and kind are None if it is no generalised Gaussian."""

    layer: int
    head: int
    theta_alpha: float | None = None
    theta_beta: float | None = None
    mu: float | None = None
    kind: HeadClass | None = None
    reach: float
    """Tokens; infinite for heads that look as far as there is text."""
    temperature: float | None
    """Learnt factor s of SSMax; None without it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite reach is null."""
        return asdict(self) | {"reach": self.reach if math.isfinite(self.reach) else None}


@dataclass(frozen=True)
class Movement:
    """Parameters of generalised Gaussians at the checkpoints that a run has kept."""

    steps: list[int]
    theta_alpha: Tensor
    """[steps, L, H]."""
    theta_beta: Tensor
    """[steps, L, H]."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        thetas = {"theta_alpha": self.theta_alpha, "theta_beta": self.theta_beta}
        return {"steps": self.steps} | {
            name: path.numpy().tolist() for name, path in thetas.items()
        }


@dataclass(frozen=True)
class Priors:
    """All priors of a model."""

    model: str
    prior: str
    """Its name."""
    length: int
    """Tokens of a training sequence."""
    heads: list[Head]
    """By layer, and by head in each."""
    density: Tensor
    """[L, H, length] float64 prior probability of each distance."""
    movement: Movement | None
    """None if there is no run, only one checkpoint, or no generalised Gaussian."""

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers that attend."""
        return list(dict.fromkeys(head.layer for head in self.heads))

    def counts(self) -> dict[str, int]:
        """Heads of each class."""
        return dict(Counter(head.kind for head in self.heads if head.kind is not None))

    def to_json(self) -> dict[str, Any]:
        """Everything but the densities, as plain values."""
        moved = self.movement
        return {
            "model": self.model,
            "prior": self.prior,
            "length": self.length,
            "reach_share": REACH,
            "classes": self.counts(),
            "heads": [head.to_json() for head in self.heads],
            "movement": moved and moved.to_json(),
        }


def measure_priors(language_model: LanguageModel, run: Run | None = None) -> Priors:
    """The priors of a model, and how they moved if the `run` that trained it is given."""
    model = our_model(language_model)
    layers = attending(model)
    heads: list[Head] = []
    densities: list[Tensor] = []
    for number, attention in layers:
        prior = prior_of(model, attention)
        temper = _temperature(attention.ssmax, prior, language_model.length)
        heads += _heads(number, prior, attention.ssmax, temper)
        densities.append(_density(prior, temper, language_model.length, attention))
    return Priors(
        language_model.name,
        model.config.prior,
        language_model.length,
        heads,
        torch.stack(densities),
        None if run is None else _movement(model, run),
    )


def our_model(language_model: LanguageModel) -> BayesForCausalLM:
    """The model, if it is one with priors."""
    model = language_model.model
    if not isinstance(model, BayesForCausalLM):
        raise ValueError(
            f"{language_model.name} is a {type(model).__name__}, which has no prior over distance: "
            "train a model that has with `bayesattn lm train`."
        )
    return model


def attending(model: BayesForCausalLM) -> list[tuple[int, BayesAttention]]:
    """Number and attention of every layer that attends."""
    found: list[tuple[int, BayesAttention]] = []
    for number, layer in enumerate(model.model.layers):
        assert isinstance(layer, BayesDecoderLayer)
        if layer.attends:
            found.append((number, layer.self_attn))
    return found


def prior_of(model: BayesForCausalLM, attention: BayesAttention) -> Prior:
    """The layer's own prior, or the one that all share."""
    prior = attention.prior or model.model.prior
    assert prior is not None
    return prior


def run_of(source: str) -> Run | None:
    """The run of that name; None if it is something else."""
    found = find(source)
    return Run.open(found.location) if found.run else None


@torch.no_grad()
def _heads(layer: int, prior: Prior, ssmax: SSMax | None, temper: Tensor) -> list[Head]:
    heads: list[Head] = []
    shaped = prior if isinstance(prior, GeneralizedGaussian) else None
    for head in range(prior.num_heads):
        own = Head(
            layer=layer,
            head=head,
            reach=_reach(prior, head, float(temper[head])),
            temperature=None if ssmax is None else float(ssmax.scale[head]),
        )
        if shaped is not None:
            names = ("theta_alpha", "theta_beta", "mu")
            thetas = {name: float(getattr(shaped, name)[head]) for name in names}
            own = replace(own, kind=shaped.classes()[head], **thetas)
        heads.append(own)
    return heads


@torch.no_grad()
def _temperature(ssmax: SSMax | None, prior: Prior, length: int) -> Tensor:
    """[H] factor of the log-prior for a query that sees `length` keys."""
    if ssmax is None or ssmax.scope == "content":
        return torch.ones(prior.num_heads, dtype=torch.float64)
    seen, table = Visibility(1, offset=length - 1), prior.table(length).double()
    _, factor = temperatures(ssmax, table, seen, torch.float64, table.device)
    assert factor is not None
    return factor[0, :, 0].cpu()


def _reach(prior: Prior, head: int, temper: float) -> float:
    """Last distance whose tempered density is at least `REACH` of the largest."""
    if temper <= 0:  # as flat as uniform, or upside down
        return math.inf
    drop = min(-math.log(REACH) / temper, LARGEST_DROP)
    return float(prior.reach(math.exp(-drop))[head])


@torch.no_grad()
def _density(prior: Prior, temper: Tensor, length: int, attention: BayesAttention) -> Tensor:
    """[H, length] prior probability of each distance."""
    window = attention.config.sliding_window or length
    logits = prior.table(length).cpu().double() * temper[:, None]
    return logits.masked_fill(torch.arange(length) >= window, -math.inf).softmax(-1)


def _movement(model: BayesForCausalLM, run: Run) -> Movement | None:
    steps = run.steps()
    shapes = [name for name, _ in model.named_parameters() if name.endswith(".theta_beta")]
    if len(steps) < 2 or not shapes:
        return None
    found: dict[str, list[Tensor]] = {"theta_alpha": [], "theta_beta": []}
    for step in steps:
        checkpoint = run.checkpoint(step)
        tensors = checkpoint.tensors("model")
        tensors |= checkpoint.tensors("ema") if checkpoint.has("ema") else {}
        for theta, kept in found.items():
            # A shared prior is listed once: it stands for every layer.
            rows = [tensors[name.replace("theta_beta", theta)] for name in shapes]
            kept.append(torch.stack(rows).expand(len(attending(model)), -1))
    return Movement(steps, *(torch.stack(kept) for kept in found.values()))
