"""The training config: one flat config for tunnels and language models."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_type_hints

from bayesattn.checks import Strict
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
    """Number of updates of the weights, each on new data."""
    batch_size: int = 128
    """Sequences per step, over all processes together."""
    lr: float = 3e-3
    """Highest learning rate."""
    prior_lr: float | None = None
    """Learning rate of priors and SSMax; lr if not given. 0 freezes them."""
    optimizer: Literal["adamw", "muon", "muon-fp32", "radam"] = "adamw"
    """adamw; radam; muon for hidden matrices, with adamw for other weights; or muon-fp32, which is
    muon in single precision and quicker on CPUs without bfloat16."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay of the two moments of AdamW and RAdam."""
    weight_decay: float = 0.01
    """Weight decay of matrices; norms, biases, priors and SSMax have none."""
    schedule: Literal["wsd", "cosine"] = "wsd"
    """Learning rate: wsd rises, stays constant and falls; cosine rises and falls."""
    warmup: float = 0.05
    """Share of the steps in which the learning rate rises from 0."""
    decay: float = 0.5
    """Share of the steps, at the end, in which the learning rate of wsd falls."""
    floor: float = 0.0
    """Final learning rate as a share of lr."""
    clip: float | None = 1.0
    """Largest norm of the gradient; larger gradients are scaled down to it."""
    accumulate: int = 1
    """Number of pieces of a batch that each process computes in turn: less memory, same step."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of products; weights and their updates are always fp32."""
    labels: Literal["posterior", "sampled"] = "posterior"
    """Targets: the exact posterior, or an outcome sampled from it."""
    lengths: tuple[float, ...] = (1.0,)
    """Multiples of the tunnel's length; the steps use them in turn."""
    ema: float | None = None
    """Decay of an average of the weights, such as 0.999; then the averaged model is evaluated."""
    seed: int = 0
    """Seed of the initial weights and of the data."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: int | None = None
    """Steps between evaluations; if not given, a twentieth of all steps, at least 50."""
    target: float | None = None
    """Stop when an evaluation is at or below this: entropy error in bits, held-out loss in nats."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; if not given, checkpoints take at most 2% of the time."""
    dynamics: bool = False
    """Keep checkpoints of the whole training, with intervals that grow."""
    threads: int | None = None
    """Number of CPU threads; torch's number if not given."""
    track: Literal["tensorboard", "trackio"] | None = None
    """Also send the metrics to this tracker."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))  # JSON gives a list
        object.__setattr__(self, "lengths", tuple(self.lengths))
        self._require(
            "1 or more",
            lambda value: value >= 1,
            *("steps", "batch_size", "log_every", "accumulate"),
            *("evaluate_every", "checkpoint_every", "threads"),
        )
        self._require("positive", lambda value: 0 < value < math.inf, "lr", "clip")
        self._require(
            "0 or more", lambda value: 0 <= value < math.inf, "prior_lr", "weight_decay", "target"
        )
        self._require("between 0 and 2^63 - 1", lambda value: 0 <= value < 2**63, "seed")
        self._require("between 0 and 1", lambda value: 0 < value < 1, "ema")
        self._require(
            "two numbers from 0 to below 1",
            lambda value: len(value) == 2 and all(0 <= beta < 1 for beta in value),
            "betas",
        )
        self._require(
            "one or more positive multiples",
            lambda value: value and all(0 < length < math.inf for length in value),
            "lengths",
        )
        self._require(
            "a share from 0 to 1", lambda value: 0 <= value <= 1, "warmup", "decay", "floor"
        )
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be cut into {self.accumulate} equal pieces: "
                "choose a multiple, or another accumulate."
            )
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(
                f"warmup and decay are shares of the steps and may not exceed 1 together, "
                f"but {self.warmup} + {self.decay} does."
            )
        for name in ("optimizer", "labels", "schedule", "precision", "track"):
            words = _words(get_type_hints(TrainConfig)[name])
            if getattr(self, name) not in words:
                allowed = " or ".join(word or "nothing" for word in words)
                raise ValueError(f"{name} must be {allowed}, not {getattr(self, name)!r}.")

    def _require(self, allowed: str, good: Callable[[Any], bool], *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not good(value):
                raise ValueError(f"{name} must be {allowed}, not {value}.")

    @property
    def evaluation_steps(self) -> int:
        return self.evaluate_every or evaluation_interval(self.steps)

    def rate(self, step: int) -> float:
        """Share of the learning rate at `step` (0-based)."""
        if self.schedule == "cosine":
            return warmup_cosine(step, self.steps, self.warmup, self.floor)
        return warmup_stable_decay(step, self.steps, self.warmup, self.decay, self.floor)

    def to_dict(self) -> dict[str, Any]:
        """All fields; a run stores them, so later defaults do not change the run."""
        return asdict(self)


def _words(kind: Any) -> tuple[str | None, ...]:
    """The words of a Literal, or of a Literal that may also be None."""
    found = get_args(kind)
    return found if type(None) not in found else (None, *get_args(found[0]))
