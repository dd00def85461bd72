"""Language models of claims: one recipe, many ways to know positions, trained once and kept.

What is changed after training, such as a window or a scaling of RoPE, needs no training of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bayesattn.ledger.study import Recipe
from bayesattn.ledger.trained import LanguageTraining
from bayesattn.models import BayesConfig
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.open import LanguageModel, open_language
from bayesattn.priors import GeneralizedGaussian
from bayesattn.training import TrainConfig

THETA = BayesConfig.default_theta
SLOW = 1 / 8
"""Rate of priors and temperatures in rates of the rest, so low that heads stay what they are."""
TUNING_SEED = 1000
"""Learning rates are chosen on models of this seed, which no claim measures."""


@dataclass(frozen=True)
class Variant:
    """One way to know positions."""

    trained: dict[str, Any]
    """Fields of the `LanguageConfig`."""
    later: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the model that are changed after training; see `after`."""
    rate: float = 1.0
    """At which its priors and temperatures learn, in rates of the rest."""
    made_local: Literal["far", "others"] | None = None
    """After training a quarter of the heads are made local: those with the most negative β, or as
    many of the others."""


def _both(
    name: str, trained: dict[str, Any], later: dict[str, Any] | None = None
) -> dict[str, Variant]:
    """With and without SSMax, which scales the content only unless there is a learned prior."""
    scope = "content+prior" if trained["prior"] == "ggd" else "content"
    scaled = {**trained, "ssmax": True, "ssmax_scope": scope}
    plain = {**trained, "ssmax": False}
    return {name: Variant(plain, later or {}), f"{name} + SSMax": Variant(scaled, later or {})}


ROPE: dict[str, Any] = {"prior": "uniform", "encoding": "rope"}
LAST: dict[str, Any] = {"global_layers": "last", "sliding_window": 128}
"""Only the last layer looks far; the others see as many keys as a training sequence has."""
SWAN = ROPE | LAST | {"rope_layers": "local"}
GGD: dict[str, Any] = {"prior": "ggd"}
FAR_LAST: dict[str, Any] = GGD | {"global_layers": "last", "ssmax_horizon": "1x"}

BEST = "GGD, far heads last"
"""Local heads but for half of the last layer's, and SSMax with a horizon: the recipe `tiny`."""
PUBLISHED = "GGD + SSMax"
"""All heads uniform at first, SSMax scales content and prior, priors learn like the rest."""
FAR_LOCAL, OTHERS_LOCAL = f"{PUBLISHED}, far heads local", f"{PUBLISHED}, others local"

VARIANTS: dict[str, Variant] = {
    **_both("NoPE", {"prior": "uniform"}),
    **_both("ALiBi", {"prior": "laplace"}),
    **_both("T5 buckets", {"prior": "bucketed"}),
    **_both("KERPLE-log", {"prior": "student"}),
    **_both("RoPE", ROPE),
    **_both("RoPE, YaRN", ROPE, {"rope_type": "yarn"}),
    **_both("RoPE, NTK", ROPE, {"rope_type": "ntk"}),
    **_both("local RoPE", ROPE, {"sliding_window": 1.0}),
    **_both("RoPE, NoPE last", SWAN),
    "RoPE, NoPE last, log-temperature": Variant(
        SWAN | {"ssmax": False, "log_temperature": 0.1, "log_temperature_start": "1x"}
    ),
    **_both("forget gates", {"prior": "uniform", "forget": True}),
    **_both("RoPE, sinks", ROPE | {"sink": True}),
    **_both("GGD", GGD),
    "GGD + SSMax with horizon": Variant(GGD, {"ssmax_horizon": "1x"}),
    BEST: Variant(FAR_LAST, rate=SLOW),
    f"{BEST}, no horizon": Variant(FAR_LAST, {"ssmax_horizon": None}, rate=SLOW),
    f"{BEST}, frozen": Variant(FAR_LAST, rate=0.0),
    "GGD alibi + SSMax": Variant(GGD | {"prior_options": {"init": "alibi"}}),
    "GGD sampled + SSMax": Variant(GGD | {"prior_options": {"init": "sampled"}}),
    "GGD mixed + SSMax": Variant(GGD | {"prior_options": {"init": "mixed"}}),
    FAR_LOCAL: Variant(GGD, made_local="far"),
    OTHERS_LOCAL: Variant(GGD, made_local="others"),
}


class LanguageRecipe(Recipe):
    """Models and their training."""

    wishes = frozenset({"seeds", "variants"})
    size: str = "tiny"
    steps: int
    batch_size: int = 32
    accumulate: int = 1
    """Pieces of a batch, one after another, so that it fits into memory."""
    precision: Literal["fp32", "bf16"] = "fp32"
    optimizer: Literal["adamw", "muon-fp32"] = "adamw"
    lr: float = 4e-3
    rates: tuple[float, ...] = ()
    """Learning rates to choose from for each variant, by the loss on held-out text; `lr` if there
    are none."""
    tuning_steps: int = 0
    """Of the trainings that choose."""
    corpus: str = "pydoc"
    length: int = 128
    """Tokens of a training sequence."""
    needle_share: float = 0.9
    """Share of training sequences that begin with a passkey prompt; the authors' had none."""
    variants: tuple[str, ...]
    """Names from `VARIANTS`."""

    def language(self, variant: str) -> LanguageConfig:
        own = VARIANTS[variant].trained
        if own.get("sliding_window"):
            own = own | {"sliding_window": self.length}
        same = {name: getattr(self, name) for name in ("size", "corpus", "length", "needle_share")}
        return LanguageConfig(**same, **own)

    def training_of(self, variant: str, seed: int, lr: float | None = None) -> LanguageTraining:
        """A given learning rate is one to choose from."""
        same = ("batch_size", "accumulate", "precision", "optimizer")
        settings: dict[str, Any] = {name: getattr(self, name) for name in same}
        rate, steps = VARIANTS[variant].rate, self.tuning_steps if lr else self.steps
        lr = lr or self.rate_of(variant)
        config = TrainConfig(**settings, lr=lr, steps=steps, seed=seed, threads=1)
        if rate != 1:
            config = replace(config, prior_lr=rate * lr)
        return LanguageTraining(self.language(variant), config)

    def rate_of(self, variant: str) -> float:
        """The learning rate whose model reads held-out text best."""
        runs = {lr: self.training_of(variant, TUNING_SEED, lr).train() for lr in self.rates}
        losses = {lr: (run.finished or {})["metrics"]["heldout"] for lr, run in runs.items()}
        return min(losses, key=lambda lr: losses[lr], default=self.lr)

    def trainings(self, seed: int) -> Mapping[str, LanguageTraining]:
        """Of all variants."""
        every = (self.needed(variant, seed) for variant in self.variants)
        return {name: own for trainings in every for name, own in trainings.items()}

    def needed(self, variant: str, seed: int) -> dict[str, LanguageTraining]:
        """Its training; where rates are still to be chosen from, the trainings that choose."""
        if not self.rates:
            return {variant: self.training_of(variant, seed)}
        return {
            f"{variant} at {lr:g}": self.training_of(variant, TUNING_SEED, lr) for lr in self.rates
        }

    def model(self, variant: str, seed: int, tokens: int) -> LanguageModel:
        """The trained model, ready to read up to `tokens` tokens."""
        own = VARIANTS[variant]
        width = self.language(variant).model_config().head_dim
        assert width is not None
        changes = after(own.later, self.length, tokens, width)
        model = open_language(self.training_of(variant, seed).train(), **changes)
        if own.made_local is not None:
            make_local(model, own.made_local)
        return model


def after(later: dict[str, Any], trained: int, tokens: int, width: int) -> dict[str, Any]:
    """Settings of a model trained at `trained` tokens that is to read `tokens`.

    A sliding window is given in training lengths. YaRN and NTK are scaled for the very length that
    is read, which favours them. NTK is the fixed one: the dynamic one turns cached keys by other
    angles than new ones.

    Args:
        later: see `Variant`.
        trained: tokens of a training sequence.
        tokens: of the text to read.
        width: of an attention head.
    """
    factor = max(1.0, tokens / trained)
    if "sliding_window" in later:
        return {"sliding_window": round(later["sliding_window"] * trained)}
    match later.get("rope_type"):
        case "yarn":
            original = {"original_max_position_embeddings": trained}
            scaled = {"rope_type": "yarn", "rope_theta": THETA, "factor": factor, **original}
        case "ntk":
            theta = THETA * factor ** (width / (width - 2))
            scaled = {"rope_type": "default", "rope_theta": theta}
        case _:
            return later
    return {"rope_parameters": scaled}


def learned_priors(model: LanguageModel) -> list[GeneralizedGaussian]:
    """By layer."""
    modules = model.model.modules()
    return [module for module in modules if isinstance(module, GeneralizedGaussian)]


def shapes(model: LanguageModel) -> list[float]:
    """β of every head, layer by layer."""
    return [float(beta) for prior in learned_priors(model) for beta in prior.beta.detach()]


def make_local(model: LanguageModel, which: Literal["far", "others"]) -> None:
    """Give a quarter of the heads the log-prior -r/2: those with the smallest β, or the next ones.

    The others are the quarter that follows in the order of β, those most like the far ones.
    """
    beta, priors = shapes(model), learned_priors(model)
    count = max(1, len(beta) // 4)
    order = sorted(range(len(beta)), key=lambda head: beta[head])
    heads = len(beta) // len(priors)
    for head in order[:count] if which == "far" else order[count : 2 * count]:
        prior, at = priors[head // heads], head % heads
        prior.theta_alpha.data[at] = -0.6931471805599453  # ln(1/2)
        prior.theta_beta.data[at] = 1.0
