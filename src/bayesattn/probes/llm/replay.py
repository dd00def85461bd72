"""The layers from one on, over states that were recorded once.

Edits of a late layer leave everything below it as it was. A model is run once and what enters the
first edited layer is kept; later passes skip the layers below. Blocks may do more than hand states
on, so a replay is trusted only if, without edits, it gives the very logits of the whole model; else
every pass is a whole one.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.capture import hanging
from bayesattn.probes.llm.capture import last_only
from bayesattn.probes.llm.interventions import Edit, edited
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import NotApplicableError


@dataclass(frozen=True)
class Replay:
    """N prompts of one length T, and how far they have been read."""

    subject: Subject
    tokens: Tensor
    """[N, T]."""
    first: int
    """The first layer that is run again."""
    states: Tensor | None
    """[N, T, width] that enter it; None if all layers are run again."""
    extras: int | None
    """Outputs of a block besides the states; None if it returns the states alone."""
    logits: Tensor
    """[N, V] at the last token, unedited, as the whole model gives them."""

    def run(self, edits: Mapping[int, Edit], repeats: int = 1) -> Tensor:
        """[repeats · N, V] logits at the last token, all prompts `repeats` times in turn."""
        resolved = {self.subject.parts.resolve(layer): edit for layer, edit in edits.items()}
        if early := [layer for layer in resolved if layer < self.first]:
            raise ValueError(f"layer {early[0]} was read already: replay begins at {self.first}")
        with evaluating(self.subject.model), ExitStack() as stack:
            if self.states is not None:
                stack.enter_context(self._skipping(self.states.repeat(repeats, 1, 1)))
            stack.enter_context(edited(self.subject, resolved))
            return last_logits(self.subject.model, self.tokens.repeat(repeats, 1))

    def values(self, layers: Sequence[int]) -> dict[int, Tensor]:
        """[N · T, d] values of `layers` at every position, heads side by side, unedited."""
        found: dict[int, Tensor] = {}

        def hear(layer: int) -> Edit:
            def keep(x: Tensor) -> Tensor:
                found[layer] = x.flatten(0, 1).flatten(1).cpu()
                return x

            return keep

        self.run({layer: hear(layer) for layer in layers})
        return found

    @contextmanager
    def _skipping(self, states: Tensor) -> Generator[None]:
        """Blocks below hand on what they get, and the first that runs gets the states."""
        blocks = blocks_of(self.subject)

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args:
                return (states, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": states}

        def hand_on(*args: Any, **kwargs: Any) -> Any:
            same = entering(args, kwargs)
            return same if self.extras is None else (same, *[None] * self.extras)

        with hanging([blocks[self.first].register_forward_pre_hook(enter, with_kwargs=True)]):
            try:
                for block in blocks[: self.first]:
                    block.forward = hand_on  # shadows the method of this one block
                yield
            finally:
                for block in blocks[: self.first]:
                    vars(block).pop("forward", None)


def record(subject: Subject, prompts: Sequence[Sequence[int]], first: int) -> Replay:
    """Read prompts of one length up to layer `first`."""
    if len({len(prompt) for prompt in prompts}) != 1:
        raise ValueError("a replay needs prompts of one length, and at least one")
    first = subject.parts.resolve(first)
    tokens = torch.tensor([list(prompt) for prompt in prompts], device=device_of(subject.model))
    heard: dict[str, Any] = {}

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard["states"] = entering(args, kwargs).clone()

    def after(_: nn.Module, __: Any, output: Any) -> None:
        heard["extras"] = len(output) - 1 if isinstance(output, tuple) else None

    block = blocks_of(subject)[first]
    with (
        evaluating(subject.model),
        hanging(
            [
                block.register_forward_pre_hook(before, with_kwargs=True),
                block.register_forward_hook(after),
            ]
        ),
    ):
        logits = last_logits(subject.model, tokens)
    whole = Replay(subject, tokens, first, None, None, logits)
    if first == 0:
        return whole
    short = replace(whole, states=heard["states"], extras=heard["extras"])
    return short if torch.equal(short.run({}), logits) else whole


def blocks_of(subject: Subject) -> list[nn.Module]:
    blocks = [layer.block for layer in subject.parts.layers]
    found = [block for block in blocks if block is not None]
    if len(found) < len(blocks):
        raise NotApplicableError(f"layers cannot be run again: {subject.parts.reason}")
    return found


def last_logits(model: nn.Module, tokens: Tensor) -> Tensor:
    """[N, V] at the last token, the only ones computed where a model can leave out the others."""
    return model(tokens, use_cache=False, **last_only(model)).logits[:, -1]


def entering(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """The states among the arguments of a block."""
    return args[0] if args else kwargs["hidden_states"]
