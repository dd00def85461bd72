"""Priors of the heads of a language model, and the factors of its attention.

Priors are those of a query at the end of a training sequence, so the number of keys is the training
length; the temperature of SSMax counts if it scales the prior. On a passkey prompt attention is
decomposed into likelihood, prior and posterior. L layers with attention, H heads, n tokens.
"""

import math
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesattn.attention import Decomposed, LogTemperature, SSMax, Visibility, attend
from bayesattn.attention.ssmax import temperatures
from bayesattn.corpora import NeedleMaker
from bayesattn.encodings import Rotation
from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.models import BayesForCausalLM
from bayesattn.models.layers import BayesAttention, BayesDecoderLayer
from bayesattn.models.layout import Layout
from bayesattn.models.open import LanguageModel, language_of
from bayesattn.priors import GeneralizedGaussian, Prior
from bayesattn.priors.generalized_gaussian import HeadClass
from bayesattn.runs import Run

REACH = 1e-3
"""A head reaches as far as its prior is at least this share of its largest value."""
NEAR = 0.1
"""A prior this close to uniform, in total variation, is near-uniform."""
Look = Literal["local", "near-uniform", "far"]
_LARGEST_DROP = 700.0  # largest drop of the log-prior: `Prior.reach` takes its exponential
_LONGEST = 512  # largest number of tokens in a picture


@dataclass(frozen=True, kw_only=True)
class HeadPrior:
    """The prior of one head. Thetas, mu and kind are None if it is no generalised Gaussian."""

    layer: int
    head: int
    looks: Look
    """near, uniform or far: the mean distance compared with a uniform prior, at the training
    length."""
    half: int
    """Smallest distance within which at least half of the prior lies."""
    moved: float | None = None
    """Total variation between the prior at initialisation and now; None without a run."""
    theta_alpha: float | None = None
    theta_beta: float | None = None
    mu: float | None = None
    kind: HeadClass | None = None
    """The authors' class of the head, from its shape alone."""
    reach: float
    """Reach in tokens; infinite for heads without a limit."""
    temperature: float | None
    """Learnt factor s of SSMax; None without SSMax."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"reach": self.reach if math.isfinite(self.reach) else None}


@dataclass(frozen=True)
class Movement:
    """Parameters of generalised Gaussians at the checkpoints of a run."""

    steps: list[int]
    theta_alpha: Tensor
    """[steps, L, H]."""
    theta_beta: Tensor
    """[steps, L, H]."""

    def to_json(self) -> dict[str, Any]:
        thetas = {"theta_alpha": self.theta_alpha, "theta_beta": self.theta_beta}
        return {"steps": self.steps, **{name: x.numpy().tolist() for name, x in thetas.items()}}


@dataclass(frozen=True)
class Priors:
    """All priors of a model."""

    model: str
    prior: str
    """Name of the model."""
    length: int
    """Number of tokens of a training sequence."""
    heads: list[HeadPrior]
    """Heads by layer."""
    density: Tensor
    """[L, H, length] float64 prior probability of each distance."""
    initial: Tensor | None
    """[L, H, length] the same at initialisation; None without a run."""
    movement: Movement | None
    """None without a run or without generalised Gaussians."""

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers with attention."""
        return list(dict.fromkeys(head.layer for head in self.heads))

    def counts(self) -> dict[str, int]:
        """Number of heads by how far they look."""
        return dict(Counter(head.looks for head in self.heads))

    def to_json(self) -> dict[str, Any]:
        """All fields but the densities."""
        moved = self.movement and self.movement.to_json()
        about = {"model": self.model, "prior": self.prior, "length": self.length}
        about |= {"reach_share": REACH, "classes": self.counts(), "movement": moved}
        return about | {"heads": [head.to_json() for head in self.heads]}


@dataclass(frozen=True)
class Factors:
    """The factors of every head on one prompt with its answer, `tokens` [n].

    The hidden value is at the positions `value`, and must be predicted at the positions `asked`.
    """

    tokens: Tensor
    value: Tensor
    asked: Tensor
    layers: dict[int, Decomposed]
    """Factors [1, H, n, n] by number of the layer."""

    def mass(self) -> Tensor:
        """[L, H] share of the posterior on the hidden value, at the positions `asked`."""
        posteriors = [parts.posterior[0] for parts in self.layers.values()]
        seen = [posterior[:, self.asked][:, :, self.value] for posterior in posteriors]
        return torch.stack([each.sum(-1).mean(-1) for each in seen])

    def strongest(self) -> tuple[int, int]:
        """Layer and head with the largest share on the hidden value."""
        mass = self.mass()
        at = int(mass.argmax())
        return list(self.layers)[at // mass.shape[1]], at % mass.shape[1]


@torch.no_grad()
def measure_priors(language_model: LanguageModel, run: Run | None = None) -> Priors:
    """The priors of a model; with the `run` that trained it, also how they moved."""
    model, length = _require_prior(language_model), language_model.length
    density = _density(model, length)
    fresh = None if run is None else _fresh(language_model, run)
    initial = None if fresh is None else _density(fresh, length)
    moved = None if initial is None else _distance(density, initial)
    heads: list[HeadPrior] = []
    for row, (number, attention) in enumerate(_attending(model)):
        change = None if moved is None else moved[row]
        heads += _heads(number, _prior_of(model, attention), attention.ssmax, density[row], change)
    movement = None if run is None or fresh is None else _movement(model, fresh, run)
    about = (language_model.name, model.config.prior, length)
    return Priors(*about, heads, density, initial, movement)


def look(density: Tensor) -> Look:
    """How far a prior with these probabilities [n] of distances looks."""
    uniform = torch.full_like(density, 1 / len(density))
    if float(_distance(density, uniform)) <= NEAR:
        return "near-uniform"
    distances = torch.arange(len(density), dtype=density.dtype)
    return "local" if float(distances @ (density - uniform)) < 0 else "far"


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """Total variation along the last dimension."""
    return (one - other).abs().sum(-1) / 2


def _fresh(language_model: LanguageModel, run: Run) -> BayesForCausalLM:
    """The model of a run at initialisation."""
    seed = run.config["training"]["seed"]
    return language_of(run).build(language_model.tokenizer, seed)


def _density(model: BayesForCausalLM, length: int) -> Tensor:
    """[L, H, length] prior probability of each distance, for a query with `length` keys."""
    found: list[Tensor] = []
    for _, attention in _attending(model):
        prior = _prior_of(model, attention)
        temper = _temperature(attention.ssmax, prior, length)
        logits = prior.table(length).cpu().double() * temper[:, None]
        hidden = torch.arange(length) >= (attention.window or length)
        found.append(logits.masked_fill(hidden, -math.inf).softmax(-1))
    return torch.stack(found)


def factors_on_passkey(language_model: LanguageModel) -> Factors:
    """Factors on a passkey prompt of the training length, at most 512 tokens."""
    model = _require_prior(language_model)
    maker = NeedleMaker(language_model.tokenizer)
    room = min(language_model.length, _LONGEST) - maker.answer_length
    prompts = maker.prompts(max(room, maker.shortest), [0.5], 1, seed=0)
    tokens = torch.cat([prompts.tokens[0], prompts.answers[0]])
    scored = prompts.answers[0][prompts.scored]
    found = (prompts.tokens[0].unfold(0, len(scored), 1) == scored).all(-1).nonzero()[:, 0]
    value = (found[:, None] + torch.arange(len(scored))).flatten()
    asked = prompts.length + prompts.scored.nonzero()[:, 0] - 1
    return Factors(tokens, value, asked, decomposed(model, tokens[None]))


def decomposed(model: BayesForCausalLM, tokens: Tensor) -> dict[int, Decomposed]:
    """Factors of every layer with attention, on whole sequences [B, n]."""
    found: dict[int, Decomposed] = {}
    with evaluating(model), ExitStack() as hooks:
        for number, attention in _attending(model):

            def hear(module: nn.Module, arguments: tuple[Any, ...], number: int = number) -> None:
                assert isinstance(module, BayesAttention)
                x, _, layout, turn, *_ = arguments
                found[number] = _factors_of(x, module, _prior_of(model, module), layout, turn)

            handle: Any = attention.register_forward_pre_hook(hear)
            hooks.callback(handle.remove)
        model(tokens.to(device_of(model)), use_cache=False)
    return found


def _factors_of(
    x: Tensor, attention: BayesAttention, prior: Prior, layout: Layout, turn: Rotation | None
) -> Decomposed:
    """The factors of what `BayesAttention.forward` computes from the same arguments."""
    q, k, v = (
        project(x).unflatten(-1, (-1, attention.config.head_dim)).transpose(1, 2)
        for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if turn is not None:
        q, k = turn(q), turn(k)
    seen: dict[str, Any] = {"window": layout.window, "exempt": layout.exempt}
    seen |= {"forget": attention.forget and attention.forget(x), "sink": attention.sink}
    parts = attend(q, k, v, prior, decompose=True, ssmax=attention.ssmax, **seen)
    return Decomposed(*(part.cpu() for part in parts))


def _require_prior(language_model: LanguageModel) -> BayesForCausalLM:
    model = language_model.model
    if not isinstance(model, BayesForCausalLM):
        raise ValueError(
            f"{language_model.name} is a {type(model).__name__}, which has no prior over distance: "
            "train a model that has with `bayesattn lm train`."
        )
    return model


def _attending(model: BayesForCausalLM) -> list[tuple[int, BayesAttention]]:
    layers = [layer for layer in model.model.layers if isinstance(layer, BayesDecoderLayer)]
    return [(number, layer.self_attn) for number, layer in enumerate(layers) if layer.attends]


def _prior_of(model: BayesForCausalLM, attention: BayesAttention) -> Prior:
    """The layer's prior, or the prior that all layers share."""
    prior = attention.prior or model.model.prior
    assert prior is not None
    return prior


def _heads(
    layer: int,
    prior: Prior,
    ssmax: SSMax | LogTemperature | None,
    density: Tensor,
    moved: Tensor | None,
) -> list[HeadPrior]:
    heads: list[HeadPrior] = []
    temper = _temperature(ssmax, prior, density.shape[-1])
    for head in range(prior.num_heads):
        shape: dict[str, Any] = {"looks": look(density[head])}
        shape["half"] = int((density[head].cumsum(0) < 0.5).sum())
        shape["moved"] = None if moved is None else float(moved[head])
        if isinstance(prior, GeneralizedGaussian):
            names = ("theta_alpha", "theta_beta", "mu")
            shape |= {name: float(getattr(prior, name)[head]) for name in names}
            shape["kind"] = prior.classes()[head]
        learnt = float(ssmax.scale[head]) if isinstance(ssmax, SSMax) else None
        reach = _reach(prior, head, float(temper[head]))
        heads.append(HeadPrior(layer=layer, head=head, reach=reach, temperature=learnt, **shape))
    return heads


def _temperature(ssmax: SSMax | LogTemperature | None, prior: Prior, length: int) -> Tensor:
    """[H] factor of the log-prior for a query with `length` keys."""
    if ssmax is None or ssmax.scope == "content":
        return torch.ones(prior.num_heads, dtype=torch.float64)
    seen, table = Visibility(1, offset=length - 1), prior.table(length).double()
    _, factor = temperatures(ssmax, table, seen, torch.float64, table.device)
    assert factor is not None
    return factor[0, :, 0].cpu()


def _reach(prior: Prior, head: int, temper: float) -> float:
    """Last distance whose tempered density is at least `REACH` of the largest."""
    if temper <= 0:  # uniform, or rising with distance
        return math.inf
    drop = min(-math.log(REACH) / temper, _LARGEST_DROP)
    return float(prior.reach(math.exp(-drop))[head])


def _movement(model: BayesForCausalLM, fresh: BayesForCausalLM, run: Run) -> Movement | None:
    """Movement from the initialisation on, which is computed anew."""
    steps = [step for step in run.steps() if step > 0]
    shapes = [name for name, _ in model.named_parameters() if name.endswith(".theta_beta")]
    if not steps or not shapes:
        return None
    found: dict[str, list[Tensor]] = {"theta_alpha": [], "theta_beta": []}
    for tensors in (dict(fresh.named_parameters()), *map(run.weights, steps)):
        for theta, kept in found.items():
            # A shared prior is listed once: it stands for every layer.
            rows = [tensors[name.replace("theta_beta", theta)] for name in shapes]
            kept.append(torch.stack(rows).expand(len(_attending(model)), -1))
    return Movement([0, *steps], *(torch.stack(kept) for kept in found.values()))
