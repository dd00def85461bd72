"""Passkey retrieval: a value hidden somewhere in a long prompt, asked for at its end.

Teacher-forced, as the authors score: prompt and answer are read, and the answer counts if the most
probable token is right at every digit. Generated: the model writes the answer itself, greedily.
Lengths are those of the prompts in tokens, at most the requested ones. Models trained on text with
passkeys in it, as those of our recipes are, have an advantage that the authors' did not have.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from bayesattn.corpora import NeedleMaker, Prompts
from bayesattn.evals.memory import MEMORY, check_length
from bayesattn.evals.prefill import Reader, check_tolerance, read_rows
from bayesattn.evals.token_lengths import token_lengths
from bayesattn.stats import Interval, wilson_interval
from bayesattn.training.language import LanguageModel

Scoring = Literal["teacher", "generated"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


@dataclass(frozen=True)
class Cell:
    """Prompts of one length with the needle at one depth."""

    requested: str
    """The length as it was asked for."""
    length: int
    """Tokens of the prompt."""
    depth: float
    """Share of the filler that comes before the needle."""
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """Share of correct answers."""
        return self.correct / self.total

    @property
    def interval(self) -> Interval:
        """Wilson's, of the share."""
        return wilson_interval(self.correct, self.total)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "requested": self.requested,
            "length": self.length,
            "depth": self.depth,
            "correct": self.correct,
            "total": self.total,
            "accuracy": self.accuracy,
            "low": self.interval.low,
            "high": self.interval.high,
        }


@dataclass(frozen=True)
class Passkey:
    """What `passkey` found."""

    model: str
    trained: int
    """Tokens of a training sequence."""
    kind: str
    """Of the needle."""
    scoring: Scoring
    seed: int
    tolerance: float | None
    cells: list[Cell]
    """By length, and by depth for each."""

    def by_length(self) -> list[Cell]:
        """One cell per length, all depths together."""
        names = dict.fromkeys(cell.requested for cell in self.cells)
        return [_joined([c for c in self.cells if c.requested == name]) for name in names]

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        lengths = [cell.to_json() for cell in self.by_length()]
        for row in lengths:
            del row["depth"]
        return {
            "model": self.model,
            "trained": self.trained,
            "kind": self.kind,
            "scoring": self.scoring,
            "seed": self.seed,
            "tolerance": self.tolerance,
            "lengths": lengths,
            "cells": [cell.to_json() for cell in self.cells],
        }


def passkey(
    language_model: LanguageModel,
    lengths: str,
    *,
    depths: int = 10,
    samples: int = 2,
    seed: int = 0,
    scoring: Scoring = "teacher",
    tolerance: float | None = None,
    memory: int = MEMORY,
    maker: NeedleMaker | None = None,
    give_up: int | None = None,
    report: Callable[[Cell], None] | None = None,
) -> Passkey:
    """Accuracy by length and depth.

    Args:
        language_model: what to measure.
        lengths: such as "1x,2x,500x" of the training length, or numbers of tokens.
        depths: places of the needle, equally far apart from the first possible to the last.
        samples: prompts at each length and depth, each with a value of its own.
        seed: of the values.
        scoring: "teacher" or "generated".
        tolerance: share of the posterior that attention may leave out, to be faster.
        memory: bytes that reading may take beyond the model.
        maker: of the prompts; the authors' passkey prompt by default.
        give_up: leave out longer lengths after so many in a row without one correct answer.
        report: called with each length as it is done.
    """
    if scoring not in SCORINGS:
        raise ValueError(f"unknown scoring {scoring!r}; choose one of {', '.join(SCORINGS)}")
    for name, count in (("depths", depths), ("samples", samples), ("give_up", give_up)):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be 1 or more, not {count}")
    check_tolerance(language_model.model, tolerance)
    maker = NeedleMaker(language_model.tokenizer) if maker is None else maker
    wanted = token_lengths(lengths, language_model.length)
    places = [0.5] if depths == 1 else torch.linspace(0, 1, depths, dtype=torch.float64).tolist()
    # What cannot work is said before the first length, not after hours.
    maker.prompts(min(wanted.values()), places[:1], 1, seed)
    check_length(language_model.model, max(wanted.values()) + maker.answer_length)
    cells: list[Cell] = []
    misses = 0
    for name, tokens in wanted.items():
        if misses == give_up:
            break
        prompts = maker.prompts(tokens, places, samples, seed)
        right = _answered(language_model, prompts, scoring, tolerance, memory)
        by_depth = right.view(depths, samples).sum(dim=1).tolist()
        pairs = zip(places, by_depth, strict=True)
        here = [Cell(name, prompts.length, place, hits, samples) for place, hits in pairs]
        cells += here
        misses = 0 if sum(by_depth) else misses + 1
        if report is not None:
            report(_joined(here))
    about = (language_model.name, language_model.length, maker.kind)
    return Passkey(*about, scoring, seed, tolerance, cells)


def _answered(
    language_model: LanguageModel,
    prompts: Prompts,
    scoring: Scoring,
    tolerance: float | None,
    memory: int,
) -> Tensor:
    """[N] whether each prompt was answered correctly."""
    tokenizer, answers = language_model.tokenizer, prompts.answers
    last, count = prompts.length - 1, answers.shape[1]
    scored: list[int] = prompts.scored.nonzero().flatten().tolist()
    generated = scoring == "generated"
    rows = prompts.tokens if generated else torch.cat((prompts.tokens, answers[:, :-1]), dim=1)
    asked = [last] if generated else [last + at for at in scored]
    right = torch.zeros(len(answers), dtype=torch.bool)
    settings: dict[str, Any] = {"memory": memory, "tolerance": tolerance}
    for read in read_rows(language_model.model, rows, asked, extra=count, **settings):
        guessed, wanted = read.logits.argmax(-1).cpu(), answers[read.indices]
        if generated:
            written = tokenizer.batch_decode(_continued(read.reader, guessed, count))
            truth = tokenizer.batch_decode(wanted)
            same = [text.strip() == key.strip() for text, key in zip(written, truth, strict=True)]
            right[read.indices] = torch.tensor(same)
        else:
            right[read.indices] = (guessed == wanted[:, scored]).all(dim=1)
    return right


def _continued(reader: Reader, tokens: Tensor, count: int) -> Tensor:
    """[B, count] tokens, each the most probable one after those before it."""
    while tokens.shape[1] < count:
        following = reader.logits(tokens[:, -1:], [0]).argmax(-1).cpu()
        tokens = torch.cat((tokens, following), dim=1)
    return tokens


def _joined(cells: Sequence[Cell]) -> Cell:
    """All depths of a length as one cell, at their mean."""
    depth = sum(cell.depth for cell in cells) / len(cells)
    correct, total = sum(cell.correct for cell in cells), sum(cell.total for cell in cells)
    return Cell(cells[0].requested, cells[0].length, depth, correct, total)
