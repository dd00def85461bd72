"""RULER on any language model: thirteen kinds of long prompts, greedy continuations, no network.

    score of a prompt = share of its answers that the continuation contains     (corpora/ruler)

Lengths are numbers of tokens of the prompts, without the answer. A kind whose shortest prompt is
longer than a length has no cell for it; `left_out` has the length of this prompt. Intervals are
Wilson's with one trial per prompt. For kinds with several answers they are wider than necessary,
since shares vary less than right or wrong.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch and tokenizers leave some members untyped)

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from bayesattn.checks import registered
from bayesattn.corpora.ruler import KINDS, Material, Problem, TooShort, make_problem
from bayesattn.evals.lengths import token_lengths
from bayesattn.evals.memory import MEMORY, check_length
from bayesattn.evals.passkey import KeptAnswers, identity_of
from bayesattn.evals.prefill import Reader, check_tolerance
from bayesattn.models.open import LanguageModel
from bayesattn.stats import Interval, wilson_interval

SPARE = 3
"""Smallest limit of a continuation, in multiples of its answers' tokens: bytes need many."""


@dataclass(frozen=True)
class Cell:
    """Prompts of one kind and length."""

    kind: str
    requested: str
    """The length as it was asked for."""
    shortest: int
    """Number of tokens of the shortest prompt."""
    longest: int
    score: float
    """Mean score over prompts."""
    total: int
    """Number of prompts."""

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.score * self.total, self.total)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | self.interval._asdict()


@dataclass(frozen=True)
class Ruler:
    """Result of `ruler`."""

    model: str
    trained: int
    """Tokens of a training sequence."""
    corpus: str
    seed: int
    tolerance: float | None
    cells: list[Cell]
    """Cells by length, then by kind."""
    left_out: dict[str, int]
    """Kinds that do not fit into some length, with the number of tokens that they need."""

    def at(self, kind: str, requested: str) -> Cell | None:
        return next((c for c in self.cells if (c.kind, c.requested) == (kind, requested)), None)

    def means(self) -> dict[str, tuple[float, int]]:
        """By length, the mean score over kinds and the number of kinds."""
        found: dict[str, tuple[float, int]] = {}
        for name in dict.fromkeys(cell.requested for cell in self.cells):
            scores = [cell.score for cell in self.cells if cell.requested == name]
            found[name] = sum(scores) / len(scores), len(scores)
        return found

    def to_json(self) -> dict[str, Any]:
        settings = {name: value for name, value in vars(self).items() if name != "cells"}
        means = [
            {"requested": name, "score": score, "kinds": kinds}
            for name, (score, kinds) in self.means().items()
        ]
        return {**settings, "means": means, "cells": [cell.to_json() for cell in self.cells]}


def ruler(
    language_model: LanguageModel,
    lengths: str,
    *,
    kinds: Sequence[str] = (),
    samples: int = 10,
    seed: int = 0,
    corpus: str = "pydoc",
    tolerance: float | None = None,
    memory: int = MEMORY,
    keep: Path | None = None,
    report: Callable[[Ruler, float], None] | None = None,
) -> Ruler:
    """Scores by kind and length.

    Args:
        language_model: the model.
        lengths: such as "1x,2x" of the training length, or numbers of tokens.
        kinds: names from `KINDS`; all by default. Named kinds must fit into all lengths.
        samples: number of prompts of each kind and length; needles are at as many depths.
        seed: of all random numbers.
        corpus: running text around needles.
        tolerance: largest share of the posterior that attention may skip, to be faster.
        memory: bytes that reading may take beyond the model.
        keep: file for answers; prompts with an answer in it are not read again.
        report: called repeatedly with the result so far and the finished share of the work.
    """
    if samples < 1:
        raise ValueError(f"samples must be 1 or more, not {samples}")
    for name in kinds:
        registered("kind of prompt", name, KINDS)
    check_tolerance(language_model.model, tolerance)
    wanted = token_lengths(lengths, language_model.length)
    most = max(kind.tokens for name, kind in KINDS.items() if name in (kinds or KINDS))
    check_length(language_model.model, max(wanted.values()) + most)
    sheets, left_out = _sheets(language_model, wanted, kinds, samples, seed, Material(corpus))
    about = {
        "model": language_model.name,
        "identity": identity_of(language_model.model),
        "tolerance": tolerance,
    }
    answers = KeptAnswers(about, keep)
    work = sum(problem.tokens for sheet in sheets for problem in sheet.problems)
    done = 0

    def found() -> Ruler:
        cells = [cell for sheet in sheets for cell in sheet.cells(answers)]
        name, length = language_model.name, language_model.length
        return Ruler(name, length, corpus, seed, tolerance, cells, left_out)

    for sheet in sheets:
        most, settings = KINDS[sheet.kind].tokens, {"memory": memory, "tolerance": tolerance}
        for problem in sheet.problems:
            if any(key not in answers for key in _keys(problem)):
                written = _continuation(language_model, problem, most, settings)
                right = (problem.holds(answer, written) for answer in problem.answers)
                answers.add(dict(zip(_keys(problem), right, strict=True)))
            done += problem.tokens
            if report is not None:
                report(found(), done / work)
    return found()


@dataclass(frozen=True)
class _PromptSet:
    """Prompts of one kind and length."""

    kind: str
    requested: str
    problems: list[Problem]

    def cells(self, answers: KeptAnswers) -> Iterator[Cell]:
        """The cell of this kind and length, if any prompt was answered."""
        known = [own for own in map(_keys, self.problems) if all(key in answers for key in own)]
        if known:
            tokens = [problem.tokens for problem in self.problems]
            score = sum(sum(answers[key] for key in own) / len(own) for own in known) / len(known)
            yield Cell(self.kind, self.requested, min(tokens), max(tokens), score, len(known))


def _sheets(
    language_model: LanguageModel,
    wanted: dict[str, int],
    kinds: Sequence[str],
    samples: int,
    seed: int,
    material: Material,
) -> tuple[list[_PromptSet], dict[str, int]]:
    """All prompts; kinds that the caller did not name may be too long for a length."""

    def count(text: str) -> int:
        return len(_tokens(language_model, text))

    sheets: list[_PromptSet] = []
    left_out: dict[str, int] = {}
    for requested, length in wanted.items():
        for kind in kinds or KINDS:
            depths = [0.5] if samples == 1 else torch.linspace(0, 1, samples).tolist()
            try:
                problems = [
                    make_problem(kind, material, count, length, depth=at, seed=seed, number=n)
                    for n, at in enumerate(depths)
                ]
            except TooShort as short:
                if kinds:
                    raise
                left_out[kind] = max(short.least, left_out.get(kind, 0))
            else:
                sheets.append(_PromptSet(kind, requested, problems))
    if not sheets:
        raise ValueError(
            f"no kind of prompt fits into {max(wanted.values())} tokens: "
            f"choose {min(left_out.values())} or more"
        )
    return sheets, left_out


def _continuation(
    opened: LanguageModel, problem: Problem, most: int, settings: dict[str, Any]
) -> str:
    """The model's greedy continuation, until the score can no longer change."""
    tokenizer = opened.tokenizer
    room = max(most, SPARE * len(_tokens(opened, " ".join(problem.answers))))
    prompt = torch.tensor([_tokens(opened, problem.prompt)])
    reader = Reader(opened.model, batch=1, tokens=prompt.shape[1] + room, **settings)
    logits = reader.logits(prompt, [prompt.shape[1] - 1])
    ends = _end_tokens(opened)
    written: list[int] = []
    while len(written) < room:
        token = int(logits[0, -1].argmax())
        if token in ends:
            break
        written.append(token)
        text = str(tokenizer.decode(written))
        if problem.score(text) == 1:
            return text
        logits = reader.logits(torch.tensor([[token]]), [0])
    return str(tokenizer.decode(written))


def _end_tokens(language_model: LanguageModel) -> set[int]:
    config: Any = getattr(language_model.model, "generation_config", None)
    ends: Any = getattr(config, "eos_token_id", None) or language_model.tokenizer.eos_token_id
    return set(ends) if isinstance(ends, list) else {ends}


def _tokens(language_model: LanguageModel, text: str) -> list[int]:
    """Tokens of a prompt, with the first token that the tokenizer adds."""
    encoded: Any = language_model.tokenizer(text, return_attention_mask=False, verbose=False)
    return encoded["input_ids"]


def _keys(problem: Problem) -> list[str]:
    """A hash for each answer of a prompt."""
    digest = sha256(problem.prompt.encode())
    return [sha256(digest.digest() + a.encode()).hexdigest()[:16] for a in problem.answers]
