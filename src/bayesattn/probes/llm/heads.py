"""Heads in the output of a module, wherever its layout puts them.

    read    [B, T, G, D]: column[g, d] of the module's output is coordinate d of head g
    write   the same output with other heads in it

Shapes: B batch, T positions, G heads, D width of a head. A module puts out [B, T, width] ("flat"),
[B, T, heads, D] ("split") or [B, heads, T, D] ("heads first").
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from bayesattn.probes.measured import NotApplicableError

Layout = Literal["flat", "split", "heads first"]


@dataclass(frozen=True)
class Heads:
    """Where heads stand in what a module puts out."""

    module: nn.Module
    layout: Layout
    columns: Tensor
    """[G, D] coordinates of each head among the module's, on the CPU."""

    @property
    def count(self) -> int:
        return self.columns.shape[0]

    @property
    def width(self) -> int:
        return self.columns.shape[1]

    @property
    def side_by_side(self) -> bool:
        """Whether the heads are one slab in order, which takes no copy to read."""
        first = int(self.columns[0, 0])
        return torch.equal(
            self.columns.flatten(), torch.arange(first, first + self.columns.numel())
        )

    def read(self, output: Tensor) -> Tensor:
        """[B, T, G, D] heads in an output of the module."""
        features = lay_flat(output, self.layout)
        if self.side_by_side:
            first = int(self.columns[0, 0])
            found = features[..., first : first + self.columns.numel()]
        else:
            found = features.index_select(-1, self.columns.flatten().to(features.device))
        return found.unflatten(-1, (self.count, self.width))

    def read_last(self, output: Tensor) -> Tensor:
        """[B, 1, G, D] heads at the last position."""
        at = slice(-1, None)
        return self.read(output[:, :, at] if self.layout == "heads first" else output[:, at])

    def write(self, output: Tensor, heads: Tensor) -> Tensor:
        """`output` with `heads` [B, T, G, D] in the place of its own."""
        shape = output.shape if self.layout != "heads first" else output.transpose(1, 2).shape
        features = lay_flat(output, self.layout).clone()
        features[..., self.columns.flatten().to(features.device)] = heads.flatten(2)
        written = features.view(shape)
        return written.transpose(1, 2) if self.layout == "heads first" else written

    def overlaps(self, other: "Heads") -> bool:
        """Whether some columns are those of other heads, too."""
        same = self.module is other.module
        return same and bool(torch.isin(self.columns, other.columns).any())

    def weight(self) -> Tensor:
        """[G, D, width of the model] rows of the projection, one for each coordinate of a head."""
        weight = projection_weight(self.module)
        if weight is None or not weight.is_floating_point() or len(weight) <= self.columns.max():
            raise NotApplicableError("the weights of this model are packed: load it unpacked")
        rows = weight[self.columns.flatten().to(weight.device)]
        return rows.unflatten(0, (self.count, self.width))


def lay_flat(output: Tensor, layout: Layout) -> Tensor:
    """[B, T, features] of an output."""
    if layout == "flat":
        return output
    return (output.transpose(1, 2) if layout == "heads first" else output).flatten(2)


def layout_of(output: Tensor, batch: int, length: int) -> Layout | None:
    """The layout of an output, if it is one; heads must not be as many as positions."""
    if output.ndim == 3 and output.shape[:2] == (batch, length):
        return "flat"
    if output.ndim == 4 and output.shape[:2] == (batch, length):
        return "split"
    if output.ndim == 4 and output.shape[0] == batch and output.shape[2] == length:
        return "heads first"
    return None


def projects(module: nn.Module, given: int, put_out: int) -> bool:
    """Whether a module is a linear layer from `given` to `put_out` features, packed or not."""
    sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    if None not in sizes:
        return sizes == (given, put_out)
    weight = projection_weight(module)
    return weight is not None and tuple(weight.shape) == (put_out, given)


def projection_weight(module: nn.Module) -> Tensor | None:
    """[out, in] weight of a linear layer, whichever way it keeps it; None for anything else."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return None
    # transformers' Conv1D, the linear layer of GPT-2, keeps its transpose
    return weight.T if isinstance(module, Conv1D) else weight
