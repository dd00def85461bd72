"""What the loop needs to know about what is learnt."""

from typing import Any, Protocol

from torch import Generator, Tensor, nn


class Task(Protocol):
    """Something to learn, with fresh data for every step."""

    def batch(self, generator: Generator, batch_size: int) -> Any:
        """Data of one step, a function of the generator's state alone.

        Tensors, collections of them, or anything with `.to(device)`.
        """
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """What to minimise, one number in nats; calls `model` once."""
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Quality on fixed held-out data; `TrainConfig.target` is compared with "mae"."""
        ...
