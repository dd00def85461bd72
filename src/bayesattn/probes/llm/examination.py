"""Every measurement of one language model; one that fails says why, and the others go on.

What one model shows of a set of prompts, reduced to what the measurements need.

A model is observed once and can then be forgotten: the next one, such as the same network with
fresh weights, takes its place in memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesattn.probes.attention import Focusing, Rows, measure_depth, summarise
from bayesattn.probes.criteria import Criterion, calibrated, paper_criteria
from bayesattn.probes.keys import (
    KeyLayer,
    different_tokens,
    measure_heads,
    measure_tokens,
    measure_weights,
    weight_cosines,
)
from bayesattn.probes.llm.capture import capture_prompts, token_keys
from bayesattn.probes.llm.prompts import entropy_of
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.states import DRAWS, KINDS, PERMUTATIONS, States, measure_states

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


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found; what failed is empty, and in `failed`."""

    model: dict[str, Any]
    """Name, architecture and sizes."""
    prompts: dict[str, Any]
    """Which prompts, and by what rule."""
    check: dict[str, Any]
    """The self-check of the capture."""
    bits: list[float]
    """Entropy of the next token after each prompt."""
    control_bits: list[float] | None
    """The same with fresh weights."""
    states: list[States] = field(default_factory=list[States])
    keys: list[KeyLayer] = field(default_factory=list[KeyLayer])
    focusing: Focusing | None = None
    failed: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    """What a reader of the numbers has to know."""

    @property
    def name(self) -> str:
        """Of the model."""
        return str(self.model["name"])

    @property
    def paper(self) -> list[Criterion]:
        """The authors' criteria."""
        return paper_criteria(self.states, self.keys, self.focusing)

    @property
    def ours(self) -> list[Criterion]:
        """The same questions against nulls."""
        return calibrated(self.states, self.keys, self.focusing)


def examine(
    observed: Observed,
    control: Observed | None = None,
    *,
    model: dict[str, Any],
    prompts: dict[str, Any],
    check: dict[str, Any],
    notes: Sequence[str] = (),
    draws: int = DRAWS,
    permutations: int = PERMUTATIONS,
    tell: Callable[[str], None] = lambda _: None,
) -> Examination:
    """Measure everything that was observed.

    Args:
        observed: the model and its prompts.
        control: the same network with fresh weights, on the same prompts.
        model: what it is, for the record.
        prompts: what they are, for the record.
        check: what the self-check found, for the record.
        notes: what a reader has to know.
        draws: of every bootstrap.
        permutations: behind every p.
        tell: is told which measurement comes next.
    """
    failed = dict(observed.failed)
    states: list[States] = []
    for (layer, kind), rows in observed.states.items():
        where = f"{kind} of layer {layer}"
        tell(where)
        beside = control.states.get((layer, kind)) if control else None
        options: dict[str, Any] = {
            "layer": layer,
            "kind": kind,
            "draws": draws,
            "permutations": permutations,
            "sources": prompts.get("sources"),
            "control": None if control is None or beside is None else (beside, control.bits),
        }
        attempt(
            failed,
            where,
            lambda rows=rows, options=options: states.append(
                measure_states(rows, observed.bits, **options)
            ),
        )
    tell("keys")
    keys: list[KeyLayer] = []
    attempt(failed, "keys", lambda: keys.extend(_keys(observed, control)))
    tell("attention")
    focusing: list[Focusing] = []
    if observed.rows is not None:
        rows, beside_rows = observed.rows, control.rows if control else None
        attempt(
            failed,
            "attention",
            lambda: focusing.append(
                measure_depth(rows, beside_rows, draws=draws, permutations=permutations)
            ),
        )
    return Examination(
        model=model,
        prompts=prompts,
        check=check,
        bits=observed.bits.tolist(),
        control_bits=None if control is None else control.bits.tolist(),
        states=states,
        keys=keys,
        focusing=focusing[0] if focusing else None,
        failed=failed,
        notes=list(notes),
    )


def _keys(observed: Observed, control: Observed | None) -> list[KeyLayer]:
    found: list[KeyLayer] = []
    for layer, heads in enumerate(observed.heads):

        def own(name: str, layer: int = layer) -> Any:
            part = getattr(observed, name)
            return part[layer] if part else None

        def fresh(name: str, layer: int = layer) -> Any:
            part = getattr(control, name) if control else None
            return part[layer] if part else None

        tokens, turned, weights = own("tokens"), own("turned_tokens"), own("weights")
        found.append(
            KeyLayer(
                layer=layer,
                weights=(
                    None
                    if weights is None
                    else measure_weights(weights, observed.width, fresh("weights"))
                ),
                weights_by_head=None if weights is None else weights.tolist(),
                tokens=None if tokens is None else measure_tokens(tokens, fresh("tokens")),
                turned_tokens=(
                    None if turned is None else measure_tokens(turned, fresh("turned_tokens"))
                ),
                heads=measure_heads(heads, fresh("heads")),
            )
        )
    return found
