"""What one model shows of a set of prompts, reduced to what the measurements need.

A model is observed once and can then be forgotten: the next one, such as the same network with
fresh weights, takes its place in memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesattn.probes.llm.attention import Rows, summarise
from bayesattn.probes.llm.capture import capture_prompts, token_keys
from bayesattn.probes.llm.keys import different_tokens, weight_cosines
from bayesattn.probes.llm.prompts import entropy_of
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.values import KINDS

KEY_PROMPTS = 16
"""Prompts whose tokens' keys are compared."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One model and one set of prompts; what could not be observed is empty or None."""

    bits: Tensor
    """[N] entropy of the next token."""
    states: dict[tuple[int, str], Tensor] = field(default_factory=dict[tuple[int, str], Tensor])
    """[N, heads, D] or [N, width], by layer and kind."""
    weights: list[Tensor] = field(default_factory=list[Tensor])
    """[G] mean |cos| between columns of W_K of each head, by layer."""
    width: int = 0
    """Of the model: the dimension those columns live in."""
    tokens: list[Tensor] = field(default_factory=list[Tensor])
    """[n, G, D] keys of different tokens before rotation, by layer."""
    turned_tokens: list[Tensor] = field(default_factory=list[Tensor])
    """The same as attention receives them."""
    heads: list[Tensor] = field(default_factory=list[Tensor])
    """[N, G, D] keys of the last token, by layer."""
    rows: Rows | None = None
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why a part could not be observed."""


def observe(subject: Subject, prompts: Sequence[Sequence[int]], layers: Iterable[int]) -> Observed:
    """Look at `subject` reading `prompts`; states are kept of `layers` only."""
    seen = capture_prompts(subject, prompts)
    failed: dict[str, str] = {}
    states: dict[tuple[int, str], Tensor] = {}
    for kind in KINDS:
        by_layer: list[Tensor] = getattr(seen, kind)
        if by_layer:
            states |= {(layer, kind): by_layer[layer] for layer in layers}
        else:
            failed[kind] = str(subject.parts.reason)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "key weights": lambda: _weights(subject),
        "token keys": lambda: _token_keys(subject, prompts[:KEY_PROMPTS]),
        "attention": lambda: {"rows": summarise(seen.attention, seen.visible, seen.lengths)},
    }
    found: dict[str, Any] = {}
    for name, part in parts.items():
        attempt(failed, name, lambda part=part: found.update(part()))
    # the same turn for all heads of a token leaves their cosines as they are
    heads = seen.keys or seen.turned_keys
    bits = entropy_of(seen.logits)
    return Observed(bits=bits, states=states, heads=heads, failed=failed, **found)


def attempt(failed: dict[str, str], name: str, work: Callable[[], object]) -> None:
    """Do it; if that is impossible, keep the reason in `failed`, for others may still be possible.

    Whatever an unknown model does, one measurement must not cost the others.
    """
    try:
        work()
    except ValueError as reason:  # a sentence of ours
        failed[name] = str(reason)
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _weights(subject: Subject) -> dict[str, Any]:
    weights = [subject.parts.key_weight(layer) for layer in range(len(subject.parts.layers))]
    return {"weights": [weight_cosines(w) for w in weights], "width": weights[0].shape[-1]}


def _token_keys(subject: Subject, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    keys = token_keys(subject, prompts)
    places = torch.tensor(different_tokens(keys.tokens, keys.positions))
    if len(places) < 3:
        raise ValueError("the prompts have fewer than three different tokens to compare")
    return {
        "tokens": [layer[places] for layer in keys.keys],
        "turned_tokens": [layer[places] for layer in keys.turned_keys],
    }
