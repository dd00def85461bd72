"""Edits of values along an axis u of length 1, at every position of a layer.

    cut     v - (1 - keep)(v·u)u      keep 0: all of the axis is gone; 1: nothing happens
    only    (v·u)u                    nothing but the axis is left
    shift   v + amount · u

Several axes at once: directions [A, d] meet a batch of A · N prompts, N for each axis in turn.
Values are [B, T, G, D]: batch, tokens, value heads, width, with d = G · D.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesattn.linear import principal_axes
from bayesattn.probes.llm.editing import Edit
from bayesattn.probes.llm.ordering import correlation

SAME = 1e-6
"""Values that differ by less than this share of their length differ by rounding."""
SPAN = 10
"""Random axes lie in the span of so many first components."""


@dataclass(frozen=True)
class Axis:
    """The first principal component of values of one layer, pointing to where entropy is larger.

    Values are centred and not standardised: else the direction that reads the axis and the one
    along which values move would differ, and a cut would remove another thing than was measured.
    """

    layer: int
    direction: Tensor
    """[d]."""
    spread: float
    """Standard deviation of v·u."""
    share: float
    """Of the variance."""
    correlation: float
    """Of v·u with the entropy: 0 or more."""


def estimate_axis(values: Tensor, bits: Tensor, layer: int) -> Axis:
    """From values [N, d] of the last tokens and entropies [N]."""
    rows = values.double()
    rows = rows - rows.mean(0)
    lengths, directions = principal_axes(values)
    if float(lengths[0]) <= SAME * float(values.double().norm()):
        raise ValueError(
            f"the values of layer {layer} are the same after every prompt, for the last token is: "
            "choose a later layer"
        )
    direction = directions[0]
    related = float(correlation((rows @ direction)[None], bits[None]))
    if related < 0:
        direction, related = -direction, -related
    return Axis(
        layer=layer,
        direction=direction,
        spread=float((rows @ direction).std(correction=0)),
        share=float(lengths[0].square() / lengths.square().sum()),
        correlation=related,
    )


def random_axes(values: Tensor, axis: Axis, count: int, generator: Generator) -> Tensor:
    """[count, d] random directions, orthogonal to the axis, among the next components.

    A component takes part by its deviation, as it does in the values [N, d] themselves: these are
    directions in which values really vary, though none can vary as much as the first component.
    """
    lengths, directions = _components(values)
    mixed = torch.randn(count, len(lengths), generator=generator, dtype=torch.float64) * lengths
    return _orthogonal(mixed @ directions, axis)


def next_components(values: Tensor, axis: Axis) -> Tensor:
    """[m, d] the components after the first."""
    return _orthogonal(_components(values)[1], axis)


def sizes_of(values: Tensor, directions: Tensor) -> Tensor:
    """[A] root mean square of v·u over values [M, d]: how far whole cuts move a value."""
    return (values.double() @ directions.double().T).square().mean(0).sqrt()


def cut(directions: Tensor, keep: float | Tensor = 0.0) -> Edit:
    """See the module; `keep` may differ by axis, [A]."""

    def edit(values: Tensor) -> Tensor:
        rows, axes, along = _along(values, directions)
        kept = torch.as_tensor(keep, dtype=rows.dtype, device=rows.device).reshape(-1, 1, 1)
        return (rows - (1 - kept) * along * axes).view_as(values)

    return edit


def only(directions: Tensor) -> Edit:
    """See the module."""

    def edit(values: Tensor) -> Tensor:
        _, axes, along = _along(values, directions)
        return (along * axes).view_as(values)

    return edit


def shift(directions: Tensor, amount: float | Tensor) -> Edit:
    """See the module; `amount` may differ by axis, [A]."""

    def edit(values: Tensor) -> Tensor:
        rows, axes, _ = _along(values, directions)
        moved = torch.as_tensor(amount, dtype=rows.dtype, device=rows.device).reshape(-1, 1, 1)
        return (rows + moved * axes).view_as(values)

    return edit


def _along(values: Tensor, directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values as [A, M, d], axes [A, 1, d], and their products [A, M, 1]."""
    axes = directions.to(values).reshape(-1, 1, directions.shape[-1])
    rows = values.reshape(len(axes), -1, axes.shape[-1])
    return rows, axes, (rows * axes).sum(-1, keepdim=True)


def _components(values: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths [m] and directions [m, d] of components 2 … SPAN of values [N, d]."""
    lengths, directions = principal_axes(values)
    return lengths[1:SPAN], directions[1:SPAN]


def _orthogonal(directions: Tensor, axis: Axis) -> Tensor:
    """Of length 1, without what rounding has left of the axis."""
    u = axis.direction.double()
    directions = directions - (directions @ u)[:, None] * u
    return directions / directions.norm(dim=-1, keepdim=True).clamp(min=1e-30)
