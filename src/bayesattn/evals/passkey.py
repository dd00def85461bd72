"""Passkey retrieval: a long prompt hides a value, and ends with a question for the value.

Teacher-forced, the authors' scoring: the model reads prompt and answer, and the answer counts if
the most probable token is right at every digit. Generated: the model writes the answer, greedily.
Lengths are numbers of tokens of the prompts, at most the requested ones. Models that were trained
on text with passkeys, as in our recipes, have an advantage over the authors' models.

A prompt of 65,536 tokens takes a minute, so a stopped measurement keeps its answers. The file of
answers has one line with the settings, then one line per answer. After a kill the last line may be
incomplete; it is dropped.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bayesattn.corpora import NeedleMaker, Prompts
from bayesattn.evals.lengths import token_lengths
from bayesattn.evals.memory import MEMORY, check_length
from bayesattn.evals.prefill import Reader, check_tolerance, read_rows, reading_work
from bayesattn.files import parse, with_checksum, write_text
from bayesattn.models.open import LanguageModel
from bayesattn.stats import Interval, wilson_interval

Scoring = Literal["teacher", "generated"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)
_SAMPLED = 256  # numbers of each tensor that identify a model


@dataclass(frozen=True)
class Cell:
    """Prompts of one length with the needle at one depth."""

    requested: str
    """The length as it was requested."""
    length: int
    """Tokens of the prompt."""
    depth: float
    """Share of the filler before the needle."""
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.total

    @property
    def interval(self) -> Interval:
        """Wilson's interval of the accuracy."""
        return wilson_interval(self.correct, self.total)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": self.accuracy} | self.interval._asdict()


@dataclass(frozen=True)
class Passkey:
    """Result of `passkey`."""

    model: str
    trained: int
    """Number of tokens of a training sequence."""
    kind: str
    """Kind of needle and of haystack."""
    scoring: Scoring
    seed: int
    tolerance: float | None
    cells: list[Cell]
    """Cells by length, then by depth."""

    def by_length(self) -> list[Cell]:
        """One cell per length, all depths together, at their mean."""
        joined: list[Cell] = []
        for name in dict.fromkeys(cell.requested for cell in self.cells):
            cells = [cell for cell in self.cells if cell.requested == name]
            depth = sum(cell.depth for cell in cells) / len(cells)
            counts = (sum(cell.correct for cell in cells), sum(cell.total for cell in cells))
            joined.append(Cell(name, cells[0].length, depth, *counts))
        return joined

    def to_json(self) -> dict[str, Any]:
        lengths = [cell.to_json() for cell in self.by_length()]
        for row in lengths:
            del row["depth"]
        settings = {name: value for name, value in vars(self).items() if name != "cells"}
        return {**settings, "lengths": lengths, "cells": [cell.to_json() for cell in self.cells]}


def passkey(
    language_model: LanguageModel,
    lengths: str,
    *,
    depths: int | Sequence[float] = 10,
    samples: int = 2,
    seed: int = 0,
    scoring: Scoring = "teacher",
    tolerance: float | None = None,
    memory: int = MEMORY,
    maker: NeedleMaker | None = None,
    give_up: int | None = None,
    keep: Path | None = None,
    report: Callable[[Passkey, float], None] | None = None,
) -> Passkey:
    """Accuracy by length and depth.

    Args:
        language_model: the model.
        lengths: such as "1x,2x,500x" of the training length, or numbers of tokens.
        depths: places of the needle as shares of the filler; or their number, at equal distances
            from the first possible place to the last.
        samples: number of prompts at each length and depth, each with a new value.
        seed: of the values.
        scoring: "teacher" or "generated".
        tolerance: largest share of the posterior that attention may skip, to be faster.
        memory: bytes that reading may take beyond the model.
        maker: of the prompts; the authors' passkey prompt by default.
        give_up: skip longer lengths after so many lengths in a row without a correct answer.
        keep: file for answers; prompts with an answer in it are not read again.
        report: called repeatedly with the result so far and the finished share of the work.
    """
    if scoring not in SCORINGS:
        raise ValueError(f"unknown scoring {scoring!r}; choose one of {', '.join(SCORINGS)}")
    places = _places(depths)
    for name, count in (("depths", len(places)), ("samples", samples), ("give_up", give_up)):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be 1 or more, not {count}")
    check_tolerance(language_model.model, tolerance)
    maker = NeedleMaker(language_model.tokenizer) if maker is None else maker
    wanted = token_lengths(lengths, language_model.length)
    # Refuse impossible lengths before the first length, not after hours.
    maker.prompts(min(wanted.values()), places[:1], 1, seed)
    check_length(language_model.model, max(wanted.values()) + maker.answer_length)
    asking = _Scoring(language_model, scoring, tolerance, memory)
    answers = KeptAnswers(asking.about(), keep)
    sheets = [
        _PromptSet(name, places, maker.prompts(tokens, places, samples, seed))
        for name, tokens in wanted.items()
    ]
    total = sum(asking.work(sheet.prompts, sheet.left(answers)) for sheet in sheets)
    done = 0.0

    def found() -> Passkey:
        about = (language_model.name, language_model.length, maker.title)
        cells = [cell for sheet in sheets for cell in sheet.cells(answers)]
        return Passkey(*about, scoring, seed, tolerance, cells)

    def tell(work: float) -> None:
        nonlocal done
        done += work
        if report is not None:
            report(found(), min(1.0, done / total))

    misses = 0
    for sheet in sheets:
        if misses == give_up:
            break
        for answered in asking.answered(sheet.prompts, sheet.left(answers), tell):
            answers.add({sheet.keys[row]: right for row, right in answered})
        misses = 0 if any(cell.correct for cell in sheet.cells(answers)) else misses + 1
    return found()


def _places(depths: int | Sequence[float]) -> list[float]:
    if not isinstance(depths, int):
        return [*depths]
    even: list[float] = torch.linspace(0, 1, max(0, depths), dtype=torch.float64).tolist()
    return [0.5] if depths == 1 else even


class _PromptSet:
    """The prompts of one length, equally many at each place."""

    def __init__(self, requested: str, places: Sequence[float], prompts: Prompts) -> None:
        self.requested, self.places, self.prompts = requested, places, prompts
        pairs = zip(prompts.tokens, prompts.answers, strict=True)
        self.keys = [_key(prompt, answer) for prompt, answer in pairs]

    def left(self, answers: Mapping[str, bool]) -> list[int]:
        return [row for row, key in enumerate(self.keys) if key not in answers]

    def cells(self, answers: Mapping[str, bool]) -> list[Cell]:
        cells: list[Cell] = []
        samples = len(self.keys) // len(self.places)
        for at, place in enumerate(self.places):
            keys = self.keys[at * samples : (at + 1) * samples]
            known = [answers[key] for key in keys if key in answers]
            if known:
                about = (self.requested, self.prompts.length, place)
                cells.append(Cell(*about, sum(known), len(known)))
        return cells


@dataclass(frozen=True)
class _Scoring:
    """Settings of reading prompts and scoring answers."""

    language_model: LanguageModel
    scoring: Scoring
    tolerance: float | None
    memory: int

    def about(self) -> dict[str, Any]:
        """The settings that affect an answer, besides the prompt."""
        model = self.language_model
        return {
            "model": model.name,
            "identity": identity_of(model.model),
            "scoring": self.scoring,
            "tolerance": self.tolerance,
        }

    def work(self, prompts: Prompts, rows: list[int]) -> float:
        return reading_work(self.language_model.model, *self._read(prompts, rows)) if rows else 0.0

    def answered(
        self, prompts: Prompts, rows: list[int], tell: Callable[[float], None]
    ) -> Iterator[list[tuple[int, bool]]]:
        """Yields each prompt after it was read, and whether its answer is right."""
        if not rows:
            return
        model, tokenizer = self.language_model.model, self.language_model.tokenizer
        tokens, asked = self._read(prompts, rows)
        count, scored = prompts.answers.shape[1], prompts.scored
        settings: dict[str, Any] = {"memory": self.memory, "tolerance": self.tolerance}
        for read in read_rows(model, tokens, asked, extra=count, tell=tell, **settings):
            here = [rows[index] for index in read.indices]
            guessed, wanted = read.logits.argmax(-1).cpu(), prompts.answers[here]
            if self.scoring == "generated":
                written = tokenizer.batch_decode(_continued(read.reader, guessed, count))
                truth = tokenizer.batch_decode(wanted)
                pairs = zip(written, truth, strict=True)
                right = [text.strip() == key.strip() for text, key in pairs]
            else:
                right = (guessed == wanted[:, scored]).all(dim=1).tolist()
            yield list(zip(here, right, strict=True))

    def _read(self, prompts: Prompts, rows: list[int]) -> tuple[Tensor, list[int]]:
        """Tokens to read, and the indices after which logits are needed."""
        tokens, last = prompts.tokens[rows], prompts.length - 1
        if self.scoring == "generated":
            return tokens, [last]
        scored: list[int] = prompts.scored.nonzero().flatten().tolist()
        forced = torch.cat((tokens, prompts.answers[rows, :-1]), dim=1)
        return forced, [last + at for at in scored]


def _continued(reader: Reader, tokens: Tensor, count: int) -> Tensor:
    """[B, count] tokens by greedy decoding."""
    while tokens.shape[1] < count:
        following = reader.logits(tokens[:, -1:], [0]).argmax(-1).cpu()
        tokens = torch.cat((tokens, following), dim=1)
    return tokens


class KeptAnswers(dict[str, bool]):
    """Whether answers were right, by a hash of the prompt; in memory, and in a `file` if given.

    A file of answers with settings other than `about` is refused.
    """

    def __init__(self, about: Mapping[str, Any], file: Path | None = None) -> None:
        super().__init__()
        self.file = file
        if file is None:
            return
        heading, *lines = _whole_lines(file) or [_line(about)]
        before = _parsed(heading)
        if not isinstance(before, dict):
            raise ValueError(f"{file} is damaged, or holds no answers: remove it.")
        other = [name for name in about if about[name] != before.get(name)]
        if other:
            was = ", ".join(f"{name} {before.get(name)!r}" for name in other)
            raise ValueError(
                f"{file} holds answers with {was}: remove it, or write to another file."
            )
        for line in lines:
            match _parsed(line):
                # older files without checksums have lists
                case {"prompt": str(key), "right": bool(right)} | [str(key), bool(right)]:
                    self[key] = right
                case _:
                    continue
        if damaged := len(lines) - len(self):
            again = f"{damaged} lines of {file} are damaged or there twice"
            warnings.warn(f"{again}: what is missing is asked again.", stacklevel=2)
        # drops incomplete lines; and fails now if the file cannot be written
        write_text(file, "".join([_line(about), *map(_answered, self.items())]))

    def add(self, answers: Mapping[str, bool]) -> None:
        self.update(answers)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write("".join(map(_answered, answers.items())))


def _key(prompt: Tensor, answer: Tensor) -> str:
    """A hash of the tokens of a prompt and of its right answer."""
    tokens = torch.cat((prompt, answer)).long().cpu()
    return sha256(tokens.numpy().tobytes()).hexdigest()[:16]


def identity_of(model: PreTrainedModel) -> str:
    """A hash of the settings of a model, and of some numbers of every tensor."""
    settings = {**model.config.to_dict(), "_name_or_path": None}
    digest = sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        step = max(1, tensor.numel() // _SAMPLED)
        digest.update(tensor.detach().flatten()[::step].cpu().double().numpy().tobytes())
    return digest.hexdigest()[:16]


def _line(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"


def _answered(answer: tuple[str, bool]) -> str:
    key, right = answer
    return with_checksum(json.dumps({"prompt": key, "right": right})) + "\n"


def _parsed(line: str) -> Any:
    try:
        return parse(line)
    except ValueError:
        return None


def _whole_lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    return file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
