"""Base class of priors: an unnormalised log-density over the distance from query to key, per head.

    attention_ij ∝ exp(content_ij) · exp(log_prior(i - j))

Each prior has one file: a subclass of `Prior` with a `name`, its parameters, their
`initial_values`, the formula (`_log_prior`) and the farthest relevant distance (`_reach`). One
entry in `bayesattn.priors.PRIORS` registers it. Shapes: H heads, n distances.
"""

import inspect
import itertools
import math
from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from bayesattn.checks import LONGEST, at_least, readable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Prior(nn.Module, ABC):
    """Base of all priors. The first dimension of every parameter is the head."""

    name: ClassVar[str]
    settings: ClassVar[tuple[str, ...] | None] = None
    """Attributes that decide the density, besides parameters and buffers. If a class sets this, its
    table is computed once for many steps of decoding; otherwise once per step."""
    frozen: tuple[str, ...] = ()
    """Names of parameters that are not trained."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = at_least("num_heads", num_heads, 1)

    @abstractmethod
    def _log_prior(self, distance: Tensor) -> Tensor:
        """[H, n] log-density at `distance` [n], in the dtype of `distance` (at least float32)."""

    @abstractmethod
    def _reach(self, drop: float) -> Tensor:
        """[H] largest integer distance whose log-density is within `drop` of the largest one."""

    @classmethod
    def layer_options(cls, num_heads: int, local: bool) -> dict[str, Any]:
        """Options for a layer in which all heads (or else half of them) are initialised local.

        Models in which only some layers have far heads use this.
        """
        return {}

    def initial_values(self) -> dict[str, Tensor]:
        """Initial value of each parameter and buffer, by name."""
        return {}

    def options(self) -> dict[str, Any]:
        """Arguments that build the same kind of prior; they do not include its parameters."""
        names = [name for name in inspect.signature(type(self)).parameters if name != "num_heads"]
        found = {name: getattr(self, name, None) for name in names}
        return {k: v for k, v in found.items() if isinstance(v, bool | int | float | str)}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, value in self.initial_values().items():
            getattr(self, name).copy_(value)

    def log_prior(self, distance: Tensor) -> Tensor:
        """Unnormalised log-density [H, n] at distances [n], each finite and at least 0.

        Float64 if the parameters are float64, otherwise float32: half-precision parameters are
        upcast, because a bias rounded to bfloat16 cannot tell distance 256 from 257.
        Differentiable in the parameters.
        """
        if distance.dim() != 1:
            shape = tuple(distance.shape)
            raise ValueError(f"distance must have one dimension, [n], not the shape {shape}")
        if readable(distance) and not bool(((distance >= 0) & (distance < math.inf)).all()):
            raise ValueError("distance must be finite and at least 0 (query index minus key index)")
        return self._log_prior(distance.to(self._dtype))

    def forward(self, distance: Tensor) -> Tensor:
        return self.log_prior(distance)

    def table(self, length: int) -> Tensor:
        """[H, length] log-density at distances 0 .. length-1, on the device of the parameters."""
        if length < 1:
            raise ValueError(f"length must be at least 1, not {length}")
        return self._log_prior(torch.arange(length, dtype=self._dtype, device=self._anchor.device))

    @torch.no_grad()
    def reach(self, tolerance: float = 1e-6) -> Tensor:
        """[H] distance beyond which density / (its maximum) < tolerance; inf if no such distance.

        Distances are the integers 0, 1, 2, … that attention uses: the result is the last one
        whose relative density is still at least `tolerance`.
        """
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance must lie strictly between 0 and 1, not {tolerance}")
        return self._reach(-math.log(tolerance)).to(self._anchor.device, self._dtype)

    def check(self) -> None:
        """Raise ValueError naming parameter and head if a parameter is NaN or infinite."""
        for name, values in itertools.chain(self.named_parameters(), self.named_buffers()):
            values = values.detach()
            if math.isfinite(values.sum().item()):  # quicker than one check per element
                continue
            bad = ~torch.isfinite(values)
            if bad.any():
                head, value = int(bad.nonzero()[0, 0]), values[bad][0].item()
                raise ValueError(
                    f"{name} of head {head} of the {self.name} prior is {value}; parameters must "
                    "be finite (lower the learning rate or clip the gradients)"
                )

    def draw(self, length: int = 128, ax: "Axes | None" = None) -> "Axes":
        """Draw the prior normalised over distances 0 .. length-1, one line per head."""
        if length > LONGEST:
            raise ValueError(f"length must be at most {LONGEST:,}, not {shortened(length)}")
        axes: Any = ax
        if ax is None:
            pyplot: Any = import_module("matplotlib.pyplot")
            axes = pyplot.figure(layout="constrained").add_subplot()
        density = self.table(length).detach().softmax(dim=-1).cpu().numpy()
        for head in range(self.num_heads):
            axes.plot(density[head], label=f"head {head}")
        # Show several decades; a local head falls through hundreds.
        axes.set(yscale="log", ylim=(1e-5, 2))
        axes.set(xlabel="distance from query to key", ylabel="prior probability")
        axes.set_title(repr(self), fontsize="medium")
        axes.legend(fontsize="x-small", ncols=1 + (self.num_heads - 1) // 8)
        return axes

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"

    @property
    def _anchor(self) -> Tensor:
        """Any tensor of the module: it has the device and dtype of the prior."""
        return next(itertools.chain(self.parameters(), self.buffers()))

    @property
    def _dtype(self) -> torch.dtype:
        return torch.promote_types(self._anchor.dtype, torch.float32)


def wide(values: Tensor) -> Tensor:
    """Detached float64 copy on the CPU, for closed forms without rounding."""
    return values.detach().cpu().double()
