"""What a language model computes at the last token of prompts, layer by layer.

    values        [N, G, D]      of the value projection
    keys          [N, G, D]      before rotation, after norms of keys
    turned_keys   [N, G, D]      as attention receives them
    outputs       [N, H, D]      of each head, before the output projection
    residual      [N, width]     after the layer
    attention     [N, H, Tmax]   row of the last query, zero beyond a prompt's length
    logits        [N, V]         of the token that would come next

N prompts, H query heads, G key/value heads, D width of a head. Prompts of one length go together
and nothing is ever padded, so every number is what the model computes for that prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesattn.probes.llm.listening import Heard, listening, resolve
from bayesattn.probes.llm.structure import Mode
from bayesattn.probes.llm.subject import Subject

BATCH_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class PromptStates:
    """States at the last token of N prompts, float32 on the CPU; lists have an entry per layer.

    What was not asked for is empty.
    """

    lengths: Tensor
    """[N] tokens of each prompt."""
    visible: list[Tensor]
    """[N] keys that the last query sees; a window limits them."""
    values: list[Tensor] = field(default_factory=list[Tensor])
    keys: list[Tensor] = field(default_factory=list[Tensor])
    turned_keys: list[Tensor] = field(default_factory=list[Tensor])
    outputs: list[Tensor] = field(default_factory=list[Tensor])
    residual: list[Tensor] = field(default_factory=list[Tensor])
    attention: list[Tensor] = field(default_factory=list[Tensor])
    logits: Tensor = field(default_factory=lambda: torch.zeros(0, 0))


@dataclass(frozen=True, kw_only=True)
class TokenKeys:
    """Keys of all M tokens of some prompts, prompt after prompt; lists have an entry per layer."""

    tokens: Tensor
    """[M]"""
    positions: Tensor
    """[M] place of each token in its prompt."""
    prompts: Tensor
    """[M] which prompt it is of."""
    keys: list[Tensor]
    """[M, G, D] before rotation."""
    turned_keys: list[Tensor]
    """[M, G, D] as attention receives them."""


def capture_prompts(
    subject: Subject,
    prompts: Sequence[Sequence[int]],
    names: Sequence[str] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    mode: Mode | None = None,
) -> PromptStates:
    """Read `prompts` and keep what `names` ask for.

    Args:
        subject: the model.
        prompts: tokens of each prompt.
        names: of the module's table; everything there is if None.
        batch_tokens: most tokens of one pass, unless a single prompt has more.
        mode: "cache" takes keys and values from the cache, without hooks; None does so only where
            hooks are impossible.
    """
    subject.check(prompts)
    mode = mode or subject.parts.mode
    wanted = resolve(subject.parts, names, mode)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    kept: Heard = {}
    with listening(subject, wanted, mode=mode) as read:
        for which, tokens in batches(prompts, batch_tokens):
            for place, x in read(tokens).items():
                if place not in kept:
                    width = int(lengths.max()) if place[0] == "attention" else x.shape[-1]
                    kept[place] = torch.zeros(len(prompts), *x.shape[1:-1], width)
                kept[place][which, ..., : x.shape[-1]] = x.cpu()
    layers = range(len(subject.parts.layers))
    visible = [kept[at][:, 0].long() if (at := ("visible", n)) in kept else lengths for n in layers]
    found: dict[str, Any] = {
        name: kept[name, 0] if name == "logits" else [kept[name, n] for n in layers]
        for name in wanted
    }
    return PromptStates(lengths=lengths, visible=visible, **found)


def token_keys(
    subject: Subject, prompts: Sequence[Sequence[int]], batch_tokens: int = BATCH_TOKENS
) -> TokenKeys:
    """Keys at every position of `prompts`, before and after rotation."""
    subject.check(prompts)
    wanted = resolve(subject.parts, ["keys", "turned_keys"], subject.parts.mode)
    pieces: dict[tuple[str, int], dict[int, Tensor]] = {}
    with listening(subject, wanted, every=True) as read:
        for which, tokens in batches(prompts, batch_tokens):
            for place, x in read(tokens).items():
                pieces.setdefault(place, {}).update(zip(which, x.cpu(), strict=False))

    def joined(name: str) -> list[Tensor]:
        numbers = range(len(subject.parts.layers))
        return [
            torch.cat([pieces[name, n][prompt] for prompt in range(len(prompts))]) for n in numbers
        ]

    lengths = torch.tensor([len(prompt) for prompt in prompts])
    return TokenKeys(
        tokens=torch.tensor([token for prompt in prompts for token in prompt]),
        positions=torch.cat([torch.arange(len(prompt)) for prompt in prompts]),
        prompts=torch.arange(len(prompts)).repeat_interleave(lengths),
        keys=joined("keys"),
        turned_keys=joined("turned_keys"),
    )


def batches(
    prompts: Sequence[Sequence[int]], batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], Tensor]]:
    """Prompts of one length together: which they are, and their tokens [B, T]."""
    by_length: dict[int, list[int]] = {}
    for number, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(number)
    for length, numbers in sorted(by_length.items()):
        size = max(1, batch_tokens // length)
        for first in range(0, len(numbers), size):
            which = numbers[first : first + size]
            yield which, torch.tensor([list(prompts[number]) for number in which])
