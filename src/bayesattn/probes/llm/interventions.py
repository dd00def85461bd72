"""Other values: what a model would do if a layer's values were different.

    with edited(subject, {-1: cut(u)}):
        states = capture_prompts(subject, prompts)

Values [B, T, G, D] (batch, tokens, value heads, width) are changed at every position where they
leave their projection, so that the cache and attention get the new ones, and so does what is
captured. Edits along an axis u of length 1, d = G · D:

    cut     v - (1 - keep)(v·u)u      keep 0: all of the axis is gone; 1: nothing happens
    only    (v·u)u                    nothing but the axis stays
    shift   v + amount · u

Several axes at once: directions [A, d] meet a batch of A · N prompts, N for each axis in turn.
"""

from collections.abc import Callable, Mapping
from collections.abc import Generator as Yields
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesattn.linear import correlation, principal_axes
from bayesattn.probes.capture import hanging
from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError
from bayesattn.probes.readout import order_of

SAME = 1e-6
"""Values that differ by less than this share of their length differ by rounding."""
SPAN = 10
"""Random axes lie in the span of so many first components."""

Edit = Callable[[Tensor], Tensor]
"""From values [B, T, G, D] to such values."""


@contextmanager
def edited(subject: Subject, edits: Mapping[int, Edit]) -> Yields[None]:
    """While inside, the model computes with edited values; negative layers count from the last."""
    by_layer: dict[int, Edit] = {}
    for layer, edit in edits.items():
        number = subject.parts.resolve(layer)
        if number in by_layer:
            raise ValueError(f"layer {number} is edited twice: join its edits into one")
        by_layer[number] = edit
    edited = [(value_heads(subject, number), edit) for number, edit in by_layer.items()]
    with hanging(heads.module.register_forward_hook(_hook(heads, edit)) for heads, edit in edited):
        yield


def value_heads(subject: Subject, number: int) -> Heads:
    """Where values of a layer leave their projection."""
    layer = subject.parts.layers[number]
    if layer.value is None:
        raise NotApplicableError(f"values cannot be edited: {subject.parts.reason}")
    if layer.key is not None and layer.key.overlaps(layer.value):
        raise NotApplicableError("values cannot be edited: in this model keys are made of them")
    return layer.value


def _hook(heads: Heads, edit: Edit) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def change(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        before = heads.read(output)
        after = edit(before)
        if after.shape != before.shape or after.dtype != before.dtype:
            raise ValueError(
                f"an edit made {after.dtype} {tuple(after.shape)} of values that are "
                f"{before.dtype} {tuple(before.shape)}: keep shape and dtype"
            )
        return heads.write(output, after)

    return change


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The first principal component of values of one layer, pointing to where entropy is larger.

    Values are centred and not standardised: else the direction that reads the axis and the one
    along which values move would differ, and a cut would remove another thing than was measured.
    """

    layer: int
    spread: float | None
    """Standard deviation of v·u; records of the first edition do not have it."""
    share: float
    """Of the variance."""
    correlation: float
    """Of v·u with the entropy: 0 or more."""
    order: float
    """|Spearman| of the same."""


def estimate_axis(values: Tensor, bits: Tensor, layer: int) -> tuple[Tensor, Axis]:
    """Direction [d] and numbers, from values [N, d] of the last tokens and entropies [N]."""
    rows = values.double()
    rows = rows - rows.mean(0)
    lengths, directions = principal_axes(values)
    if float(lengths[0]) <= SAME * float(values.double().norm()):
        raise ValueError(
            f"the values of layer {layer} are the same after every prompt, for the last token is: "
            "choose a later layer"
        )
    direction = directions[0]
    related = float(correlation(rows @ direction, bits))
    if related < 0:
        direction, related = -direction, -related
    axis = Axis(
        layer=layer,
        spread=float((rows @ direction).std(correction=0)),
        share=float(lengths[0].square() / lengths.square().sum()),
        correlation=related,
        order=float(order_of(values[None], bits[None])),
    )
    return direction, axis


def random_axes(values: Tensor, first: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, d] random directions, orthogonal to the first, among the next components.

    A component takes part by its deviation, as it does in the values [N, d] themselves: these are
    directions in which values really vary, though none can vary as much as the first component.
    """
    lengths, directions = (x[1:SPAN] for x in principal_axes(values))
    mixed = torch.randn(count, len(lengths), generator=generator, dtype=torch.float64) * lengths
    return _orthogonal(mixed @ directions, first)


def next_components(values: Tensor, first: Tensor) -> Tensor:
    """[m, d] the components after the first."""
    return _orthogonal(principal_axes(values)[1][1:SPAN], first)


def _orthogonal(directions: Tensor, first: Tensor) -> Tensor:
    """Of length 1, without what rounding has left of the first."""
    u = first.double()
    directions = directions - (directions @ u)[:, None] * u
    return directions / directions.norm(dim=-1, keepdim=True).clamp(min=1e-30)


def mean_squares(values: Tensor, directions: Tensor) -> Tensor:
    """[A] mean of (v·u)² over values [M, d]: how far, squared, a whole cut moves a value."""
    return (values.double() @ directions.double().T).square().mean(0)


def cut(directions: Tensor, keep: float | Tensor = 0.0) -> Edit:
    """`keep` may differ by axis, [A]."""
    return _edit(
        directions, lambda rows, axes, along: rows - (1 - _by_axis(keep, rows)) * along * axes
    )


def only(directions: Tensor) -> Edit:
    return _edit(directions, lambda rows, axes, along: along * axes)


def shift(directions: Tensor, amount: float | Tensor) -> Edit:
    """`amount` may differ by axis, [A]."""
    return _edit(directions, lambda rows, axes, along: rows + _by_axis(amount, rows) * axes)


def _edit(directions: Tensor, change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Edit:
    """`change` gets values as rows [A, M, d], axes [A, 1, d] and their products [A, M, 1]."""

    def edit(values: Tensor) -> Tensor:
        axes = directions.to(values).reshape(-1, 1, directions.shape[-1])
        rows = values.reshape(len(axes), -1, axes.shape[-1])
        return change(rows, axes, (rows * axes).sum(-1, keepdim=True)).view_as(values)

    return edit


def _by_axis(number: float | Tensor, rows: Tensor) -> Tensor:
    return torch.as_tensor(number, dtype=rows.dtype, device=rows.device).reshape(-1, 1, 1)
