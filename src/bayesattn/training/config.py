"""How to train: one flat config for tunnels and language models."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from bayesattn.checks import Strict, changed_fields
from bayesattn.training.schedule import (
    evaluation_interval,
    warmup_cosine,
    warmup_stable_decay,
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Strict):
    """One training. The result is a function of this config, the task, the model and the machine.

    Every field is a plain JSON value, and a run can only be resumed with the same ones.
    """

    steps: int = 2000
    """Updates of the weights, each on the next data."""
    batch_size: int = 128
    """Sequences per step, over all processes together."""
    lr: float = 3e-3
    """Learning rate at its highest."""
    prior_lr: float | None = None
    """Learning rate of priors and SSMax; lr if not given, and 0 keeps them as they begin."""
    optimizer: Literal["adamw", "muon", "radam"] = "adamw"
    """adamw, radam, or muon for hidden matrices with adamw for the rest."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay of the two moments of AdamW and RAdam."""
    weight_decay: float = 0.01
    """Decay of matrices; norms, biases, priors and SSMax have none."""
    schedule: Literal["wsd", "cosine"] = "wsd"
    """Learning rate: wsd rises, stays and falls; cosine falls all the time after it has risen."""
    warmup: float = 0.05
    """Share of the steps in which the learning rate rises from 0."""
    decay: float = 0.5
    """Share of the steps, at the end, in which that of wsd falls."""
    floor: float = 0.0
    """Share of the learning rate that it falls to."""
    clip: float | None = 1.0
    """Largest norm of the gradient; longer ones are shortened to it."""
    accumulate: int = 1
    """Pieces of a batch that each process takes one after another: less memory, the same step."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """What products are computed in; weights and their updates are always fp32."""
    labels: Literal["posterior", "sampled"] = "posterior"
    """What is learnt from: the exact posterior, or an outcome sampled from it."""
    lengths: tuple[float, ...] = (1.0,)
    """Multiples of the tunnel's horizon that the steps take in turn."""
    ema: float | None = None
    """Decay of an average of the weights, such as 0.999; what is evaluated is then the average."""
    seed: int = 0
    """Of the initial weights and of the data."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: int | None = None
    """Steps between evaluations; a twentieth of all, at least 50, if not given."""
    target: float | None = None
    """Stop when an evaluation finds this or less: entropy error in bits, held-out loss in nats."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; if not given, as often as 2% of the time allows."""
    dynamics: bool = False
    """Keep checkpoints from all over the training: densely at first, then ever more sparsely."""
    threads: int | None = None
    """CPU threads; those that torch has anyway if not given."""
    track: Literal["tensorboard", "trackio"] | None = None
    """Send the metrics there, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON gives a list
        object.__setattr__(self, "lengths", tuple(self.lengths))
        for name in ("steps", "batch_size", "log_every", "accumulate"):
            _require(getattr(self, name) >= 1, name, "1 or more", getattr(self, name))
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be cut into {self.accumulate} equal pieces: "
                "choose a multiple, or another accumulate."
            )
        for name in ("evaluate_every", "checkpoint_every", "threads"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, "1 or more", value)
        for name in ("lr", "clip"):
            value = getattr(self, name)
            _require(value is None or 0 < value < math.inf, name, "positive", value)
        for name in ("prior_lr", "weight_decay", "target"):
            value = getattr(self, name)
            _require(value is None or 0 <= value < math.inf, name, "0 or more", value)
        _require(0 <= self.seed < 2**63, "seed", "between 0 and 2^63 - 1", self.seed)
        _require(self.ema is None or 0 < self.ema < 1, "ema", "between 0 and 1", self.ema)
        _require(
            len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas),
            "betas",
            "two numbers from 0 to below 1",
            self.betas,
        )
        _require(
            len(self.lengths) > 0 and all(0 < length < math.inf for length in self.lengths),
            "lengths",
            "one or more positive multiples",
            self.lengths,
        )
        _require(self.warmup >= 0, "warmup", "a share from 0 to 1", self.warmup)
        _require(self.decay >= 0, "decay", "a share from 0 to 1", self.decay)
        _require(self.warmup <= 1, "warmup", "a share from 0 to 1", self.warmup)
        _require(0 <= self.floor <= 1, "floor", "a share from 0 to 1", self.floor)
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(
                f"warmup and decay are shares of the steps and may not exceed 1 together, "
                f"but {self.warmup} + {self.decay} does."
            )
        for name, allowed in (
            ("optimizer", ("adamw", "muon", "radam")),
            ("labels", ("posterior", "sampled")),
            ("schedule", ("wsd", "cosine")),
            ("precision", ("fp32", "bf16")),
            ("track", (None, "tensorboard", "trackio")),
        ):
            if getattr(self, name) not in allowed:
                words = " or ".join(choice or "nothing" for choice in allowed)
                raise ValueError(f"{name} must be {words}, not {getattr(self, name)!r}.")

    @property
    def evaluation_steps(self) -> int:
        """Steps between evaluations."""
        return self.evaluate_every or evaluation_interval(self.steps)

    def rate(self, step: int) -> float:
        """Share of the learning rate at `step` (0-based)."""
        if self.schedule == "cosine":
            return warmup_cosine(step, self.steps, self.warmup, self.floor)
        return warmup_stable_decay(step, self.steps, self.warmup, self.decay, self.floor)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were chosen; a run keeps these."""
        return changed_fields(self)


def _require(good: bool, name: str, allowed: str, value: object) -> None:
    if not good:
        raise ValueError(f"{name} must be {allowed}, not {value}.")
