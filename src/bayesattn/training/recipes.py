"""Ready trainings of language models: functions that return a model config and a training config.

    language, training = tiny()
    train_language(replace(language, prior="laplace", prior_options={}), training, "RUN")

`tiny` and `tiny-long` learn passkeys and the Python documentation on two CPU cores; `published`
does the same in the authors' setting. `code` reads the installed packages, without needles. `paper`
is the training of BAM's authors (their repository: RAdam, cosine to 10%, 589,824 tokens per step).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bayesattn.models.language_config import LanguageConfig
from bayesattn.training.config import TrainConfig
from bayesattn.training.machine import Precision, quickest

Recipe = tuple[LanguageConfig, TrainConfig]
PAPER_SIZES = ("l6", "l8", "l12", "l15", "l18", "l24")


def tiny() -> Recipe:
    """Minutes: three layers of width 128, trained at 128 tokens.

    Half the heads of the last layer are initialised uniform, all others local, and SSMax has a
    horizon, so a prompt takes linear time. Priors have a small learning rate: with that of the
    other weights, text makes the uniform heads local (LOG, "slow priors retrieve farther"). Muon
    learns passkeys in a third of the steps of AdamW (LOG, "far heads in the last layer").
    """
    language = LanguageConfig(size="tiny", prior="ggd", global_layers="last", ssmax_horizon="1x")
    training = TrainConfig(
        steps=400, batch_size=32, optimizer="muon-fp32", lr=4e-3, prior_lr=5e-4, log_every=20
    )
    return language, training


def small() -> Recipe:
    """The same model, trained longer, with a still smaller learning rate of the priors.

    The decisive quantity is how far priors move (LOG, "what longer training does to length
    extrapolation").
    """
    language, training = tiny()
    return language, replace(training, steps=1000, prior_lr=2e-4, log_every=50)


def published() -> Recipe:
    """The same model in the authors' setting: all heads of all layers are initialised uniform.

    Priors have the learning rate of the other weights, and SSMax counts all keys.
    """
    language = LanguageConfig(size="tiny", prior="ggd")
    return language, replace(tiny()[1], steps=800, prior_lr=None)


def code(precision: Precision | None = None) -> Recipe:
    """Hours, with pauses if needed: 6M parameters, installed packages, no needles.

    Only the last layer has far heads, and SSMax has a horizon, as in the models that found passkeys
    farthest. The averaged weights are evaluated, which are good at any time of the training.
    """
    language = LanguageConfig(
        corpus="site-packages",
        corpus_tokens=50_000_000,  # no text is read twice
        tokenizer="train:4096",
        length=512,
        needle_share=0.0,
        size="mini",
        heads=4,  # heads of 64: a step takes three quarters of the time of one with eight
        prior="ggd",
        global_layers="last",
        ssmax_horizon="1x",
    )
    training = TrainConfig(
        steps=12_000,
        batch_size=8,
        lr=2e-3,
        prior_lr=2e-4,
        weight_decay=0.1,
        warmup=0.02,
        decay=0.3,
        ema=0.998,
        precision=precision or quickest(),
        log_every=20,
        evaluate_every=500,
    )
    return language, training


def paper(size: str = "l12") -> Recipe:
    """The authors' training of one of their sizes: 20,000 steps of 1,152 × 512 tokens."""
    if size not in PAPER_SIZES:
        raise ValueError(f"The authors' sizes are {', '.join(PAPER_SIZES)}, not {size!r}.")
    language = LanguageConfig(
        corpus="hf:HuggingFaceFW/fineweb:sample-10BT:train",
        tokenizer="mistralai/Mistral-7B-Instruct-v0.3",
        length=512,
        needle_share=0.0,
        size=size,
    )
    training = TrainConfig(
        steps=20_000,
        batch_size=1152,
        accumulate=32,
        optimizer="radam",
        betas=(0.9, 0.95),
        weight_decay=0.1,
        lr=1e-3,
        schedule="cosine",
        warmup=0.0,
        floor=0.1,
        precision="bf16",
        seed=42,
        log_every=10,
        evaluate_every=100,
    )
    return language, training


LANGUAGE_RECIPES: dict[str, Callable[[], Recipe]] = {
    "tiny": tiny,
    "tiny-long": small,
    "published": published,
    "code": code,
    **{size: partial(paper, size) for size in PAPER_SIZES},
}
