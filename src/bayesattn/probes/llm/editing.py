"""Other values: what a model would do if a layer's values were different.

    with edited(subject, {-1: lambda v: v - (v @ u)[..., None] * u}):
        states = capture_prompts(subject, prompts)

Values [B, T, G, D] are changed at every position where they leave their projection, so that the
cache and attention get the new ones, and so does what is captured.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from bayesattn.probes.capture import hanging
from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError

Edit = Callable[[Tensor], Tensor]
"""From values [B, T, G, D] to such values."""


@contextmanager
def edited(subject: Subject, edits: Mapping[int, Edit]) -> Generator[None]:
    """While inside, the model computes with edited values.

    Args:
        subject: the model; it is whole again afterwards.
        edits: by layer; negative layers count from the last.
    """
    by_layer: dict[int, Edit] = {}
    for layer, edit in edits.items():
        number = subject.parts.resolve(layer)
        if number in by_layer:
            raise ValueError(f"layer {number} is edited twice: join its edits into one")
        by_layer[number] = edit
    with ExitStack() as hooks:
        for number, edit in by_layer.items():
            part = _value(subject, number)
            hooks.enter_context(hanging(part.module.register_forward_hook(_hook(part, edit))))
        yield


def _value(subject: Subject, number: int) -> Heads:
    layer = subject.parts.layers[number]
    if layer.value is None:
        raise NotApplicableError(f"values cannot be edited: {subject.parts.reason}")
    if layer.key is not None and layer.key.overlaps(layer.value):
        raise NotApplicableError("values cannot be edited: in this model keys are made of them")
    return layer.value


def _hook(part: Heads, edit: Edit) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def change(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        before = part.read(output)
        after = edit(before)
        if after.shape != before.shape or after.dtype != before.dtype:
            raise ValueError(
                f"an edit made {after.dtype} {tuple(after.shape)} of values that are "
                f"{before.dtype} {tuple(before.shape)}: keep shape and dtype"
            )
        return part.write(output, after)

    return change
