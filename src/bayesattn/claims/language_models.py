"""Language models of claims: one recipe, many ways to know positions, trained once and kept.

What is changed after training, such as a window or a scaling of RoPE, needs no training of its own.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bayesattn.ledger.study import Recipe
from bayesattn.ledger.trained import LanguageTraining
from bayesattn.models import BayesConfig
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.open import LanguageModel, open_language
from bayesattn.training import TrainConfig

ROPE: dict[str, Any] = {"prior": "uniform", "encoding": "rope"}
THETA = BayesConfig.default_theta
PUBLISHED = "GGD + SSMax"
"""The published setting: all heads start uniform, SSMax scales content and prior."""
SOONER = "GGD mixed, slow + SSMax"
"""Half of the heads local at first, and priors that move slowly: passkeys take fewer steps."""
ALONE = "GGD mixed, slow"
"""`SOONER` without SSMax: what is the prior's."""
FROZEN = "GGD mixed, frozen + SSMax"
"""The same with priors and temperatures as they begin: what is left if they learn nothing."""
UNIFORM = "GGD uniform, slow + SSMax"
"""The same with all heads uniform at first."""
SLOW = 1 / 8
"""Rate of priors and temperatures in rates of the rest, so low that heads stay what they are."""


@dataclass(frozen=True)
class Variant:
    """One way to know positions."""

    trained: dict[str, Any]
    """Fields of the `LanguageConfig`."""
    later: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the model that are changed after training; see `after`."""
    rate: float = 1.0
    """At which its priors and temperatures learn, in rates of the rest."""


def _both(
    name: str, trained: dict[str, Any], later: dict[str, Any] | None = None
) -> dict[str, Variant]:
    """With and without SSMax, which scales the content only unless there is a learned prior."""
    scope = "content+prior" if trained["prior"] == "ggd" else "content"
    scaled = {**trained, "ssmax": True, "ssmax_scope": scope}
    plain = {**trained, "ssmax": False}
    return {name: Variant(plain, later or {}), f"{name} + SSMax": Variant(scaled, later or {})}


GGD: dict[str, Any] = {"prior": "ggd"}
MIXED: dict[str, Any] = {**GGD, "prior_options": {"init": "mixed"}}


def _slow(**changes: Any) -> Variant:
    """`SOONER` but for some fields of its `LanguageConfig`."""
    return Variant({**MIXED, **changes}, rate=SLOW)


VARIANTS: dict[str, Variant] = {
    **_both("NoPE", {"prior": "uniform"}),
    **_both("ALiBi", {"prior": "laplace"}),
    **_both("RoPE", ROPE),
    **_both("RoPE, YaRN", ROPE, {"rope_type": "yarn"}),
    **_both("RoPE, NTK", ROPE, {"rope_type": "ntk"}),
    **_both("local RoPE", ROPE, {"sliding_window": 1.0}),
    **_both("sinusoidal", {"prior": "uniform", "encoding": "sinusoidal"}),
    **_both("GGD", GGD),
    SOONER: _slow(),
    ALONE: _slow(ssmax=False),
    "GGD mixed, slow + SSMax on content": _slow(ssmax_scope="content"),
    "GGD mixed + SSMax": Variant(MIXED),
    FROZEN: Variant(MIXED, rate=0.0),
    UNIFORM: _slow(prior_options={}),
    "GGD alibi, slow + SSMax": _slow(prior_options={"init": "alibi"}),
    "GGD sampled, slow + SSMax": _slow(prior_options={"init": "sampled"}),
    "GGD mixed positive, slow + SSMax": _slow(prior_options={"init": "mixed", "positive": True}),
    "GGD mixed shared, slow + SSMax": _slow(shared_prior=True),
}
"""The first eight pairs are encodings; of the rest each differs from `SOONER` in one thing."""


class LanguageRecipe(Recipe):
    """Model, training and measurement."""

    wishes = frozenset({"seeds", "variants"})
    size: str = "tiny"
    steps: int
    batch_size: int = 32
    accumulate: int = 1
    """Pieces of a batch, one after another, so that it fits into memory."""
    precision: Literal["fp32", "bf16"] = "fp32"
    lr: float = 4e-3
    length: int = 128
    """Tokens of a training sequence."""
    needle_share: float = 0.9
    """Share of training sequences that begin with a passkey prompt; the authors' had none."""
    variants: tuple[str, ...]
    """Names from `VARIANTS`."""
    judged: str = PUBLISHED
    """The one of them that the claim is judged by."""

    def language(self, variant: str) -> LanguageConfig:
        return LanguageConfig(
            size=self.size,
            length=self.length,
            needle_share=self.needle_share,
            **VARIANTS[variant].trained,
        )

    def training(self, seed: int) -> TrainConfig:
        """How, the same for all that do not say otherwise."""
        same = ("steps", "batch_size", "accumulate", "precision", "lr")
        return TrainConfig(**{name: getattr(self, name) for name in same}, seed=seed, threads=1)

    def training_of(self, variant: str, seed: int) -> LanguageTraining:
        config, rate = self.training(seed), VARIANTS[variant].rate
        own = config if rate == 1 else replace(config, prior_lr=rate * config.lr)
        return LanguageTraining(self.language(variant), own)

    def trainings(self, seed: int) -> dict[str, LanguageTraining]:
        return {variant: self.training_of(variant, seed) for variant in self.variants}

    def model(self, variant: str, seed: int, tokens: int) -> LanguageModel:
        """The trained model, ready to read up to `tokens` tokens."""
        width = self.language(variant).model_config().head_dim
        assert width is not None
        changes = after(VARIANTS[variant].later, self.length, tokens, width)
        return open_language(self.training_of(variant, seed).train(), **changes)


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
            return {}
    return {"rope_parameters": scaled}
