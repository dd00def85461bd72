"""Base of tunnels: a sampler, the exact posterior at every scored position, and a leak check.

A tunnel knows P(outcome | inputs up to here) exactly at each scored position. Training reads
`posterior` (soft targets) or `labels` (sampled truth); fidelity compares a model with `posterior`.
Most tunnels sample a fresh instance of their task for every sequence, so a model cannot memorise
answers. Sticky chains and processes are fixed tasks with fresh paths: a model memorises their
dynamics.

Each tunnel has one file: a frozen dataclass with plain JSON fields, named in its first line,
`class HMM(Tunnel, name="hmm")`, and registered by one entry in `bayesattn.tunnels.TUNNELS`.
Shapes: B sequences, T positions, S scored positions, C outcomes.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from bayesattn.checks import Strict, shortened

LONGEST = 2**31
"""Largest size of a tunnel."""
ROOM = 2**33
"""Largest number of bytes of one sequence with its posterior."""
TOLERANCE = 1e-12
"""Largest rounding difference between two computations of the same posterior."""
CHECKED = 32
"""A leak check replaces the future of at most this many scored positions, evenly spread."""


class LeakError(ValueError):
    """Inputs, posterior and labels of a batch do not belong together."""


@dataclass(frozen=True)
class Batch:
    """Sequences with the exact posterior at every scored position."""

    inputs: Tensor
    """[B, T] int64 tokens, or [B, T, F] float32 features."""
    scored: Tensor
    """[S] int64, increasing: the scored positions, the same in all sequences."""
    posterior: Tensor
    """[B, S, C] float64: P(outcome | inputs[:, : scored + 1])."""
    labels: Tensor
    """[B, S] int64: the sampled truth, distributed according to the posterior."""
    metadata: dict[str, Tensor]
    """Hidden variables of the sampler; first dimension B."""

    def to(self, device: torch.device | str) -> "Batch":
        return self._changed(self.scored.to(device), lambda values: values.to(device))

    def rows(self, rows: slice) -> "Batch":
        return self._changed(self.scored, lambda values: values[rows])

    def _changed(self, scored: Tensor, change: Callable[[Tensor], Tensor]) -> "Batch":
        metadata = {name: change(values) for name, values in self.metadata.items()}
        inputs, posterior, labels = map(change, (self.inputs, self.posterior, self.labels))
        return Batch(inputs, scored, posterior, labels, metadata)


class Shape(NamedTuple):
    """Sizes of the inputs and outputs of a tunnel's model."""

    outcomes: int
    """C: size of the predicted alphabet."""
    positions: int
    """T: length of the input."""
    scored: Sequence[int]
    """The S scored positions, increasing."""
    vocabulary: int | None = None
    """Number of input tokens; None where inputs are features."""
    features: int | None = None
    """Width of the input features; None where inputs are tokens."""
    prefix: int = 0
    """Positions before the first step: the header."""


@dataclass(frozen=True)
class Tunnel(Strict, ABC):
    """Base of all tunnels."""

    name: ClassVar[str]
    stretches: ClassVar[str] = "length"
    """The field that `stretched` multiplies."""

    def __init_subclass__(cls, name: str | None = None, stretches: str | None = None) -> None:
        if name is not None:
            cls.name = name
        if stretches is not None:
            cls.stretches = stretches

    def __new__(cls, *values: Any, **given: Any) -> Self:
        for value in (*values, *given.values()):
            if isinstance(value, int) and abs(value) >= LONGEST:
                raise ValueError(f"sizes of a tunnel lie below {LONGEST:,}, not {shortened(value)}")
        return super().__new__(cls, *values, **given)

    def require_room(self) -> Self:
        """The tunnel itself; refused if one sequence with its posterior needs too much memory."""
        shape = self.shape
        taken = 4 * shape.positions * (shape.features or 1) + 8 * self.horizon * shape.outcomes
        if taken > ROOM:
            raise ValueError(
                f"one sequence of this {self.name} tunnel takes {taken / 2**30:,.0f} GiB, more "
                f"than {ROOM >> 30}: choose smaller sizes"
            )
        return self

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Sizes of inputs and outcomes; each is also a property of the tunnel."""

    @property
    def outcomes(self) -> int:
        return self.shape.outcomes

    @property
    def positions(self) -> int:
        return self.shape.positions

    @property
    def vocabulary(self) -> int | None:
        return self.shape.vocabulary

    @property
    def features(self) -> int | None:
        return self.shape.features

    @property
    def prefix(self) -> int:
        return self.shape.prefix

    @property
    def horizon(self) -> int:
        """S: number of scored steps."""
        return len(self.shape.scored)

    @property
    def scored(self) -> Tensor:
        return torch.tensor(self.shape.scored)

    @abstractmethod
    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Fresh sequences: the same ones for the same state of the generator."""

    @abstractmethod
    def exact(self, inputs: Tensor) -> Tensor:
        """[B, S, C] float64 posterior, from the inputs alone."""

    def beliefs(self, inputs: Tensor) -> Tensor:
        """[B, S, states] float64: belief about the hidden state; refused without hidden state."""
        raise ValueError(
            f"beliefs about a hidden state are not defined in the {self.name} tunnel: take one of "
            "hmm, sticky, mess3, rrxor"
        )

    def stretched(self, factor: float) -> Self:
        """The same task over `factor` times the horizon."""
        if not 0 < factor < math.inf:
            raise ValueError(f"factor must be positive and finite, not {factor}")
        longer = max(1, round(getattr(self, self.stretches) * factor))
        return dataclasses.replace(self, **{self.stretches: longer}).require_room()

    def label_tokens(self, labels: Tensor) -> Tensor | None:
        """The input tokens that stand for `labels`.

        None if no input token stands for a label, or if labels are later tokens, which may repeat.
        """
        return None

    def check_leaks(self, batch: Batch, generator: torch.Generator) -> None:
        """Raise `LeakError` unless inputs, posterior and labels of `batch` belong together.

        - the posterior follows from the inputs alone;
        - the posterior does not change if all inputs after its position come from other sequences;
        - every label is possible under its posterior, and no input shows it at its own position.
        """
        posterior = self.exact(batch.inputs)
        if _differ(posterior, batch.posterior):
            raise LeakError("the posterior of this batch does not follow from its inputs alone")
        others = self.sample(len(batch.inputs), generator).inputs
        stride = max(1, (self.horizon - 1) / (CHECKED - 1))
        for step in (int(count * stride) for count in range(min(self.horizon, CHECKED))):
            after = int(batch.scored[step]) + 1
            mixed = torch.cat([batch.inputs[:, :after], others[:, after:]], dim=1)
            if _differ(self.exact(mixed)[:, step], posterior[:, step]):
                raise LeakError(f"the posterior at step {step} depends on inputs after it")
        if bool((posterior.gather(-1, batch.labels[..., None]) <= 0).any()):
            raise LeakError("a label is impossible under its own posterior")
        tokens = self.label_tokens(batch.labels)
        if tokens is not None and bool((batch.inputs[:, batch.scored] == tokens).any()):
            raise LeakError("an input at a scored position is the label of that position")

    def to_dict(self) -> dict[str, Any]:
        """Name and fields, plain JSON values: `make_tunnel(**tunnel.to_dict()) == tunnel`."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def _batch(self, inputs: Tensor, labels: Tensor, **metadata: Tensor) -> Batch:
        scored = self.scored.to(inputs.device)
        return Batch(inputs, scored, self.exact(inputs), labels, metadata)

    def _check_inputs(self, inputs: Tensor) -> None:
        width = () if self.features is None else (self.features,)
        if tuple(inputs.shape[1:]) != (self.positions, *width):
            expected = ", ".join(str(size) for size in ("batch", self.positions, *width))
            raise ValueError(
                f"inputs of this {self.name} tunnel have the shape [{expected}], "
                f"not {list(inputs.shape)}"
            )


def _differ(first: Tensor, second: Tensor) -> bool:
    return first.shape != second.shape or not bool(((first - second).abs() <= TOLERANCE).all())
