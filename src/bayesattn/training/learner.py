"""The state of a training: weights, their average, optimisers, step number."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, Self

import torch
from accelerate import Accelerator
from torch import Generator, Tensor, nn

from bayesattn.errors import DivergedError, TrainingError
from bayesattn.runs import Checkpoint, Tensors, load_model_tensors, model_tensors
from bayesattn.training.config import TrainConfig
from bayesattn.training.optimizers import (
    load_optimizer_tensors,
    make_optimizers,
    optimizer_tensors,
    set_learning_rate,
)
from bayesattn.training.schedule import step_seed


class Batch(Protocol):
    """The sequences of one step."""

    def rows(self, rows: slice) -> Self: ...

    def to(self, device: torch.device | str) -> Self: ...


class Task(Protocol):
    """A training task, with new data for every step."""

    @property
    def goal(self) -> str:
        """The number of `evaluate` that `TrainConfig.target` limits; less is better."""
        ...

    @property
    def tokens(self) -> int | None:
        """Number of tokens of one sequence, if speed is shown in tokens."""
        ...

    def batch(self, generator: Generator, batch_size: int, step: int) -> Any:
        """The `Batch` of one step, a function of the generator's state and the step alone."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss, one number in nats; calls `model` once.

        The mean over equal parts of a batch is the loss of the batch.
        """
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Quality on fixed held-out data."""
        ...


class Learner:
    """A model in training. `advance` makes one step and does not wait for the device."""

    def __init__(
        self, task: Task, model: nn.Module, config: TrainConfig, accelerator: Accelerator
    ) -> None:
        self.pieces = accelerator.num_processes * config.accumulate
        if config.batch_size % self.pieces:
            raise TrainingError(
                f"batch_size {config.batch_size} cannot be shared by {accelerator.num_processes} "
                f"processes in {config.accumulate} pieces each: choose a multiple of {self.pieces}."
            )
        self.task, self.config, self.accelerator = task, config, accelerator
        self.model = model.to(accelerator.device)
        self.parallel: nn.Module = accelerator.prepare_model(self.model)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizers = make_optimizers(self.model, config)
        self.average = Average(self.model, config.ema) if config.ema else None
        self.step = 0
        self.learning_rate = 0.0
        self._generator = Generator()
        self.losses: list[float] = []
        self.norms: list[float] = []
        self._losses: list[Tensor] = []  # not yet copied from the device
        self._norms: list[Tensor] = []

    def advance(self) -> None:
        """Make one step, on data that depend on the step number alone."""
        config = self.config
        self._seed()
        # Every process draws the whole batch, so their number changes nothing.
        batch = self.task.batch(self._generator, config.batch_size, self.step)
        self.model.train()
        loss = self._backward(batch)
        if config.clip is not None:
            norm = self.accelerator.clip_grad_norm_(self.trained, config.clip)
            assert norm is not None
            self._norms.append(norm)
        factor = config.rate(self.step)
        set_learning_rate(self.optimizers, factor)
        self.learning_rate = factor * config.lr
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.average:
            self.average.update(self.step)
        self._losses.append(loss)
        self.step += 1

    def evaluate(self) -> dict[str, float]:
        """The task's evaluation, with the averaged weights if there are any."""
        self.model.eval()
        with torch.no_grad(), self._precision():
            if self.average is None:
                return self.task.evaluate(self.model)
            with self.average.applied():
                return self.task.evaluate(self.model)

    def collect(self) -> None:
        """Copy losses and gradient norms from the device, averaged over all processes.

        Raises:
            DivergedError: if one of them, or a weight, is not finite; it names the step.
        """
        first = self.step - len(self._losses) + 1
        for name, waiting, known in (
            ("loss", self._losses, self.losses),
            ("gradient", self._norms, self.norms),
        ):
            if not waiting:
                continue
            values = self._mean(torch.stack(waiting).double()).tolist()
            waiting.clear()
            for step, value in enumerate(values, first):
                if not math.isfinite(value):
                    raise DivergedError(f"The {name} became {value} at step {step}")
            known.extend(values)
        if not nn.utils.get_total_norm(self.trained).isfinite():
            raise DivergedError(f"The weights ceased to be finite at step {self.step}")

    def forget(self) -> None:
        self.losses.clear()
        self.norms.clear()

    def tensors(self) -> dict[str, Tensors]:
        found = {
            "model": model_tensors(self.model),
            "optimizer": optimizer_tensors(self.model, self.optimizers),
        }
        return found | ({"ema": self.average.tensors()} if self.average else {})

    def state(self) -> dict[str, Any]:
        """The content of a checkpoint's state.json, after `collect`.

        It has no state of a random generator, because seed and step determine every draw.
        """
        return {"seed": self.config.seed, "losses": self.losses, "norms": self.norms}

    def load(self, checkpoint: Checkpoint) -> None:
        load_model_tensors(self.model, checkpoint.tensors("model"))
        load_optimizer_tensors(self.model, self.optimizers, checkpoint.tensors("optimizer"))
        if self.average:
            self.average.load(checkpoint.tensors("ema"))
        self.step = checkpoint.step
        self.losses, self.norms = list(checkpoint.state["losses"]), list(checkpoint.state["norms"])

    def _backward(self, batch: Batch) -> Tensor:
        """Compute gradients of the mean loss over the rows of this process; returns the loss."""
        total, count = None, self.config.accumulate
        for number, piece in enumerate(self._pieces(batch), 1):
            # Processes exchange gradients once, after the last piece.
            alone = number < count
            with self.accelerator.no_sync(self.parallel) if alone else nullcontext():
                with self._precision():
                    loss = self.task.loss(self.parallel, piece) / count
                self.accelerator.backward(loss)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        """The rows of this process in equal pieces, each copied to the device."""
        device, size = self.accelerator.device, self.config.batch_size // self.pieces
        first = self.accelerator.process_index * self.config.accumulate
        for number in range(first, first + self.config.accumulate):
            start = number * size
            piece = batch if self.pieces == 1 else batch.rows(slice(start, start + size))
            yield piece if device.type == "cpu" else piece.to(device)

    def _precision(self):
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.accelerator.device.type, torch.bfloat16)

    def _mean(self, values: Tensor) -> Tensor:
        mean = self.accelerator.reduce(values, reduction="mean")
        assert isinstance(mean, Tensor)
        return mean

    def _seed(self) -> None:
        self._generator.manual_seed(step_seed(self.config.seed, self.step))
        where = (self.accelerator.process_index, self.accelerator.num_processes)
        noise = step_seed(self.config.seed, self.step, *where, "noise")
        # torch.manual_seed would look for every kind of device, which takes longer than a layer.
        torch.default_generator.manual_seed(noise)
        if self.accelerator.device.type == "cuda":
            torch.cuda.manual_seed(noise)


class Average:
    """a ← a + (1 − d)(w − a) with d = min(decay, (1 + n) / (10 + n)) after n updates.

    The smaller d of the first updates removes the random initial weights from the average.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.decay = decay
        self.names = list(named)
        self.weights: list[Tensor] = list(named.values())
        self.averages = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Add the weights of a step; `updates` is the number of updates before."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        # What torch.optim.swa_utils calls, too; its own class would ask the device at every step.
        torch._foreach_lerp_(self.averages, self.weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the model has the averaged weights."""
        originals = [weight.data for weight in self.weights]
        for weight, average in zip(self.weights, self.averages, strict=True):
            weight.data = average
        try:
            yield
        finally:
            for weight, original in zip(self.weights, originals, strict=True):
                weight.data = original

    def tensors(self) -> Tensors:
        return dict(zip(self.names, self.averages, strict=True))

    @torch.no_grad()
    def load(self, tensors: Tensors) -> None:
        for name, average in self.tensors().items():
            average.copy_(tensors[name])
