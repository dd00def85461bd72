"""What drawing one sequence at a time means for every tunnel."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Sample(NamedTuple):
    """One sequence."""

    inputs: Array
    """[T] tokens or [T, features]."""
    posterior: Array
    """[S, outcomes]."""
    labels: Array
    """[S]."""


class PerSample(ABC):
    """One tunnel, sequence by sequence; `tunnel` is asked for its fields only."""

    def __init__(self, tunnel: Any) -> None:
        """The sizes of a tunnel of `bayesattn.tunnels`."""
        self.tunnel = tunnel

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""

    @abstractmethod
    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
