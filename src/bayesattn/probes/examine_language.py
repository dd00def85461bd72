"""Every measurement of one language model, beside the same network with fresh weights.

A model is observed once and can then be forgotten: the network with fresh weights takes its place
in memory and reads the same prompts.
"""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from bayesattn.probes import criteria
from bayesattn.probes.attention import REDUCTION, Depth, Rows, measure_depth, summarise
from bayesattn.probes.examination import Criterion, Examination, Finding, attempt
from bayesattn.probes.keys import (
    AS_ATTENDED,
    BEFORE_ROTATION,
    HEADS,
    WEIGHTS,
    different_tokens,
    measure_layer_keys,
    weight_cosines,
)
from bayesattn.probes.llm.capture import capture_prompts, resolve, token_keys
from bayesattn.probes.llm.prompts import PromptSet, entropy_of
from bayesattn.probes.llm.selfcheck import check_prompts
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.measured import Measured
from bayesattn.probes.selfcheck import SelfCheck
from bayesattn.probes.states import (
    DRAWS,
    KINDS,
    SHARE,
    SPEARMAN,
    TWO,
    States,
    measure_states,
)

CHECKED = 2
"""Prompts that the self-check reads."""
KEY_PROMPTS = 16
"""Prompts whose tokens' keys are compared."""
VARYING = ("free", "memory")
"""Parts of a plan that are of the machine, not of the model."""
REPORTED = {
    SHARE: "79.6% Pythia-410M, 46.4% Phi-2, 36.6% Llama-3.2-1B (mixed prompts)",
    TWO: "99.7% Pythia-410M, 60.6% Phi-2, 51.4% Llama-3.2-1B (mixed prompts)",
    SPEARMAN: "0.32 Pythia-410M, 0.34 Phi-2, 0.59 Llama-3.2-1B",
    WEIGHTS: "0.11–0.13 Pythia-410M, 0.03–0.05 Phi-2, 0.15–0.18 Llama-3.2-1B",
    REDUCTION: "82% Pythia-410M, 86% Phi-2, 31% Llama-3.2-1B",
}
"""The authors' numbers (arXiv 2512.23752) for values in the last layer."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Observations of one model on one set of prompts, reduced for the measurements."""

    bits: Tensor
    """[N] entropy of the next token."""
    states: dict[tuple[int, str], Tensor]
    """[N, heads, D] or [N, width], by layer and kind."""
    keys: list[dict[str, Tensor]]
    """Keys of every layer, by name: see `measure_layer_keys`."""
    width: int
    rows: Rows | None
    """None if attention could not be observed."""
    skipped: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class LanguageExamination(Examination):
    """Findings of a language model; measurements that failed are empty or None."""

    prompts: dict[str, Any]
    bits: list[float]
    """Entropy of the next token after each prompt."""
    control_bits: list[float] | None
    """The same with fresh weights."""
    states: list[States] = field(default_factory=list[States])
    keys: list[dict[str, Measured]] = field(default_factory=list[dict[str, Measured]])
    attention: Depth | None = None

    @property
    def title(self) -> str:
        return f"{self.name}: inside"

    @property
    def subtitle(self) -> str:
        return f"{len(self.bits)} prompts: {self.prompts['rule']}"

    @property
    def criteria(self) -> dict[str, list[Criterion]]:
        paper = criteria.paper_criteria(self.states, self.keys, self.attention)
        return {
            f"The authors' criteria: {criteria.summary(paper)}": paper,
            "The same against nulls": criteria.calibrated(self.states, self.keys, self.attention),
        }

    @property
    def findings(self) -> list[Finding]:
        theirs = criteria.last_values(self.states)
        found = [
            Finding(
                "states",
                f"L{states.layer} {states.kind}",
                what,
                measured,
                states.layer,
                REPORTED.get(what) if states is theirs else None,
            )
            for states in self.states
            for what, measured in states.measured.items()
        ]
        found += _of_layers(self.keys, self.attention)
        return _doubted(found, self.check)

    def results(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "entropy": self.bits,
            "entropy, random init": self.control_bits,
            "planes": [
                {
                    "layer": states.layer,
                    "states": states.kind,
                    "points": states.plane,
                    "points, random init": states.control_plane,
                }
                for states in self.states
            ],
        }


def examine_language(
    read: Callable[[int | None], Subject],
    choose: Callable[[Subject], PromptSet],
    *,
    layers: str = "-1",
    random_init: int | None = None,
    control: bool = True,
    draws: int = DRAWS,
    tell: Callable[[str], None] = lambda _: None,
    first: Callable[[Sequence[Finding]], None] = lambda _: None,
) -> LanguageExamination:
    """Open a model, choose prompts for it, check the capture, observe and measure.

    `read` opens the model or, with a seed, the same network with fresh weights of that seed, as
    `random_init` asks for. `layers` is all, or numbers with commas. `first` is given what is known
    of keys and attention before the network with fresh weights is read.
    """
    tell("loading")
    subject = read(random_init)
    chosen = _layers(subject, layers)
    tell("choosing prompts")
    prompts = choose(subject)
    tell("checking the capture")
    check = check_prompts(subject, prompts.tokens[:CHECKED])
    check.require("logits")
    tell("reading prompts")
    observed = observe(subject, prompts.tokens, chosen, check.refused, tell)
    known = _of_layers(*_keys_and_attention(observed, None, {}, draws))
    first(_doubted(known, check))
    plan = {name: value for name, value in vars(subject.plan).items() if name not in VARYING}
    notes = [f"{what} is in doubt: {why}." for what, why in check.doubts.items()] + _notes(subject)
    skipped: dict[str, str] = {}

    def look_at_fresh() -> Observed:
        tell("the same with fresh weights")
        # never the very weights that are looked at
        own = read(1 if random_init == 0 else 0)
        return observe(
            own,
            prompts.tokens,
            chosen,
            check.refused,
            lambda what: tell(f"{what}, with fresh weights"),
        )

    del subject  # one model in memory at a time
    gc.collect()
    fresh = attempt(skipped, "the network with fresh weights", look_at_fresh) if control else None
    found = measure(observed, fresh, prompts.sources, draws=draws, tell=tell)
    found["skipped"] |= skipped
    return LanguageExamination(
        name=plan["name"],
        about=plan,
        check=check,
        notes=notes,
        prompts=prompts.about(),
        bits=observed.bits.tolist(),
        control_bits=None if fresh is None else fresh.bits.tolist(),
        **found,
    )


def observe(
    subject: Subject,
    prompts: Sequence[Sequence[int]],
    layers: Iterable[int],
    refused: Mapping[str, str] = MappingProxyType({}),
    tell: Callable[[str], None] = lambda _: None,
) -> Observed:
    """Look at `subject` reading `prompts`; states are kept of `layers` only.

    What is `refused` is left out, for the reason given by its name, as in `SelfCheck.refused`.
    """
    tell(f"reading {len(prompts)} prompts")
    names = resolve(subject.parts, None, subject.parts.mode)
    seen = capture_prompts(subject, prompts, [name for name in names if name not in refused])
    skipped = dict(refused)
    states: dict[tuple[int, str], Tensor] = {}
    for kind in KINDS:
        by_layer: list[Tensor] = getattr(seen, kind)
        if by_layer:
            states |= {(layer, kind): by_layer[layer] for layer in layers}
        else:
            skipped.setdefault(kind, str(subject.parts.reason))
    numbers = range(len(subject.parts.layers))

    def weights() -> dict[str, list[Tensor]]:
        return {WEIGHTS: [weight_cosines(subject.parts.key_weight(n)) for n in numbers]}

    # the same turn for all heads of a token leaves their cosines as they are
    keys = {HEADS: own} if (own := seen.keys or seen.turned_keys) else {}
    if "key weights" not in refused:
        keys = (attempt(skipped, "key weights", weights) or {}) | keys
    of_tokens = {"keys": BEFORE_ROTATION, "turned_keys": AS_ATTENDED}
    if kinds := {x: y for x, y in of_tokens.items() if x in names and x not in refused}:
        work = partial(_token_keys, subject, prompts, kinds)
        keys |= attempt(skipped, "token keys", work) or {}
    rows = None
    if "attention" not in refused:
        work = partial(summarise, seen.attention, seen.visible, seen.lengths)
        rows = attempt(skipped, "attention", work)
    return Observed(
        bits=entropy_of(seen.logits),
        states=states,
        keys=[{name: by_layer[n] for name, by_layer in keys.items()} for n in numbers],
        width=subject.plan.width,
        rows=rows,
        skipped=skipped,
    )


def _doubted(findings: Sequence[Finding], check: SelfCheck) -> list[Finding]:
    """With the doubts of `check` beside what they are about."""
    doubts = check.doubts
    return [replace(one, doubt=doubts.get(one.probe)) for one in findings]


def measure(
    observed: Observed,
    control: Observed | None,
    sources: Sequence[str],
    *,
    draws: int = DRAWS,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """States, keys and attention that were observed, and why others are skipped."""
    skipped = dict(observed.skipped)
    states: list[States | None] = []
    for (layer, kind), rows in observed.states.items():
        tell(where := f"{kind} of layer {layer}")
        fresh = control and control.states.get((layer, kind))
        work = partial(
            measure_states,
            rows,
            observed.bits,
            layer=layer,
            kind=kind,
            sources=sources,
            control=None if control is None or fresh is None else (fresh, control.bits),
            draws=draws,
        )
        states.append(attempt(skipped, where, work))
    tell("keys and attention")
    keys, attention = _keys_and_attention(observed, control, skipped, draws)
    return {
        "states": [found for found in states if found is not None],
        "keys": keys,
        "attention": attention,
        "skipped": skipped,
    }


def _keys_and_attention(
    observed: Observed, control: Observed | None, skipped: dict[str, str], draws: int
) -> tuple[list[dict[str, Measured]], Depth | None]:
    def keys() -> list[dict[str, Measured]]:
        fresh = control.keys if control else [{}] * len(observed.keys)
        pairs = zip(observed.keys, fresh, strict=True)
        return [measure_layer_keys(own, other, observed.width) for own, other in pairs]

    def attention() -> Depth | None:
        if observed.rows is None:
            return None
        return measure_depth(observed.rows, control.rows if control else None, draws=draws)

    return attempt(skipped, "keys", keys) or [], attempt(skipped, "attention", attention)


def _of_layers(keys: Sequence[dict[str, Measured]], attention: Depth | None) -> list[Finding]:
    found: list[Finding] = []
    layers = attention.layers if attention else []
    for probe, by_layer in {"keys": keys, "attention": layers}.items():
        found += [
            Finding(probe, f"L{layer}", what, measured, layer, REPORTED.get(what))
            for layer, own in enumerate(by_layer)
            for what, measured in own.items()
        ]
    overall = attention.overall if attention else {}
    return found + [
        Finding("attention", "all layers", what, measured, None, REPORTED.get(what))
        for what, measured in overall.items()
    ]


def _token_keys(
    subject: Subject, prompts: Sequence[Sequence[int]], names: Mapping[str, str]
) -> dict[str, list[Tensor]]:
    keys = token_keys(subject, prompts[:KEY_PROMPTS], [*names])
    places = torch.tensor(different_tokens(prompts[:KEY_PROMPTS]))
    if len(places) < 3:
        raise ValueError("the prompts have fewer than three different tokens to compare")
    return {told: [layer[places] for layer in keys[name]] for name, told in names.items()}


def _layers(subject: Subject, layers: str) -> list[int]:
    if layers == "all":
        return list(range(len(subject.parts.layers)))
    try:
        numbers = [int(layer) for layer in layers.split(",")]
    except ValueError:
        raise ValueError(f"--layers is all, or numbers with commas, not {layers}") from None
    return sorted({subject.parts.resolve(layer) for layer in numbers})


def _notes(subject: Subject) -> list[str]:
    notes: list[str] = []
    if subject.parts.reason:
        notes.append(f"Seen from its cache alone: {subject.parts.reason}.")
    attending = [layer.index for layer in subject.parts.layers]
    if len(attending) < subject.plan.layers:
        notes.append(
            f"Of its {subject.plan.layers} layers only {', '.join(map(str, attending))} have keys "
            "and values of their own; in this order they are L0, L1, … here."
        )
    if subject.plan.quantised:
        notes.append(
            f"The weights were stored as {subject.plan.quantised}: the rounding moves |cos| "
            "between columns towards that of random directions."
        )
    return notes
