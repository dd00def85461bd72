"""Other values: what a model would do if a layer's values were different.

    with edited(subject, {-1: torch.zeros_like}):
        states = capture_prompts(subject, prompts)

Values [B, T, G, D] (batch, tokens, value heads, width) are changed at every position where they
leave their projection, so that the cache and attention get the new ones, and so does what is
captured.
"""

from collections.abc import Callable, Mapping
from collections.abc import Generator as Yields
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from bayesattn.probes.capture import hanging
from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError

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
