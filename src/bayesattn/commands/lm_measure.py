"""`bayesattn lm passkey` and `lm perplexity`: long contexts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import torch
from rich.console import Console
from tyro.conf import arg

from bayesattn.commands.options import (
    Answer,
    Asking,
    Count,
    File,
    JsonTarget,
    ModelName,
    Step,
    optional,
)
from bayesattn.console import make_bar
from bayesattn.corpora import CorpusError, NeedleMaker, prepare
from bayesattn.corpora.haystacks import Filler
from bayesattn.corpora.sentences import Kind, Values
from bayesattn.drawing import check_format, save_picture
from bayesattn.errors import UserError
from bayesattn.evals.lengths import one_length
from bayesattn.evals.memory import GIBIBYTE
from bayesattn.evals.passkey import Passkey, passkey
from bayesattn.evals.perplexity import Perplexity, any_text, held_out, perplexity
from bayesattn.models.open import LanguageModel, open_language, own_corpus

LENGTHS = ("8x", "4x", "2x", "1x")
"""Of sequences, where none is given: the first for which there is text."""
SHOWN = 4
"""Lengths beside the bar, the last ones."""


@dataclass(frozen=True, kw_only=True)
class Reading(Asking):
    """What both commands share: which model reads, and how."""

    source: ModelName
    tolerance: Annotated[float | None, optional("SHARE")] = None
    """Share of the posterior that attention may leave out, to be faster; exact if not given."""
    ssmax_horizon: Annotated[
        str | None,
        optional(
            "1x|TOKENS",
            "With more keys than this, SSMax counts only keys to which a head's prior gives "
            "weight: local heads stay as they were trained. The model's own horizon if not given.",
        ),
    ] = None
    memory: Annotated[float, arg(metavar="GIB")] = 2.0
    """GiB that reading may take beyond the model itself."""
    step: Step = None
    figure: File = None
    """Draw what was found to this .svg, .png or .pdf."""
    json: JsonTarget = None

    def open(self) -> LanguageModel:
        if self.figure is not None:
            check_format(self.figure)
        horizon = self.ssmax_horizon
        changes: dict[str, Any] = {} if horizon is None else {"ssmax_horizon": horizon}
        return open_language(self.source, self.step, **changes)

    @property
    def limits(self) -> dict[str, Any]:
        if not 0 < self.memory < float("inf"):
            raise UserError(f"--memory must be a number of GiB above 0, not {self.memory}.")
        return {"tolerance": self.tolerance, "memory": int(self.memory * GIBIBYTE)}


class Kept(Reading):
    """A measurement that goes on where it was stopped: answers are kept beside --json."""

    @property
    def kept(self) -> Path | None:
        """Where answers are kept until all are there."""
        return Path(f"{self.json}.part") if self.json not in (None, "-") else None

    def run(self) -> int:
        code = super().run()
        if self.kept is not None:
            self.kept.unlink()
        return code


@dataclass(frozen=True, kw_only=True)
class LanguagePasskey(Kept):
    """Hide a value in prompts of many lengths and depths, and count how often a model finds it.

    With --json FILE a measurement that was stopped goes on: type the same command again.
    """

    lengths: Annotated[str, arg(metavar="1x,2x,...|TOKENS,...")] = "1x,2x,4x,8x,16x"
    """Lengths of the prompts: multiples of the training length, or numbers of tokens."""
    depths: int = 10
    """Number of depths at which the needle is hidden, from the start of the prompt to its end."""
    samples: int = 2
    """Prompts at each length and depth."""
    seed: int = 0
    """Seed of the hidden values."""
    scoring: Literal["teacher", "generated"] = "teacher"
    """Read prompt and answer and compare the most probable tokens; or let the model write."""
    needle: Kind = "passkey"
    """The authors' prompt, or one in the manner of RULER."""
    values: Values = "numbers"
    """What is hidden."""
    haystack: Filler = "repeated"
    """What a passkey is hidden in: the authors' five sentences again and again, random words, or
    source code of sympy."""
    distractors: int = 0
    """Other keys with a number that stand beside a passkey."""
    corpus: str = "pydoc"
    """Haystack of the essay needle: the held-out text of this corpus."""
    give_up: Count = None
    """Stop after N lengths in a row without one correct answer, and leave out longer ones."""

    def answer(self) -> Answer:
        with Console(stderr=True).status("loading"):
            model = self.open()
            maker = self._maker(model)
        with Sofar(self.kept, _line, passkey_table) as sofar:
            found = passkey(
                model,
                self.lengths,
                depths=self.depths,
                samples=self.samples,
                seed=self.seed,
                scoring=self.scoring,
                maker=maker,
                give_up=self.give_up,
                keep=self.kept,
                report=sofar.update,
                **self.limits,
            )
        if self.figure is not None:
            from bayesattn.figures.language import draw_passkey

            save_picture(draw_passkey(found), self.figure)
        return Answer(found.to_json(), passkey_table(found))

    def _maker(self, model: LanguageModel) -> NeedleMaker:
        haystack = None if self.haystack == "repeated" else self.haystack
        if self.needle == "essay" and haystack is None:
            stream = prepare(self.corpus, model.tokenizer).stream("heldout")
            haystack = torch.tensor(stream.astype("int64"))
        hidden: dict[str, Any] = {"kind": self.needle, "values": self.values}
        return NeedleMaker(
            model.tokenizer, **hidden, haystack=haystack, distractors=self.distractors
        )


@dataclass(frozen=True, kw_only=True)
class LanguagePerplexity(Reading):
    """Measure perplexity by position in long texts, beside that of a short context."""

    length: Annotated[str | None, optional("32x|TOKENS")] = None
    """Tokens of each sequence: a multiple of the training length, or a number. 8x if not given, or
    what the text holds: 4x, 2x or 1x."""
    window: Annotated[str, arg(metavar="1x|TOKENS")] = "1x"
    """Positions to average."""
    corpus: Annotated[str | None, optional("CORPUS")] = None
    """Use the held-out documents of this corpus, which no training on it has seen. If not given,
    those of the run's own corpus; for a model that is no run, pydoc."""
    text: Annotated[str | None, optional("FILE|FOLDER")] = None
    """Use all text of this file or folder instead."""
    whole: bool = False
    """Use only documents that are long enough; else all text is joined and cut again."""
    sequences: int = 32
    """Sequences at most."""

    def answer(self) -> Answer:
        with Console(stderr=True).status("reading"):
            model = self.open()
            window = one_length(self.window, model.length)
            read, source = self._text()
            tokens = self._tokens(model, read)
            found = perplexity(model, tokens, window=window, **self.limits)
            if self.figure is not None:
                from bayesattn.figures.language import draw_perplexity

                save_picture(draw_perplexity(found), self.figure)
        title = (
            f"{found.model}, trained at {found.trained} tokens: perplexity over "
            f"{len(found.losses)} sequences of {source}"
        )
        return Answer(found.to_json() | {"text": source}, [title, perplexity_rows(found)])

    def _text(self) -> tuple[Callable[..., torch.Tensor], str]:
        """What gives sequences of a length, and what they are of."""
        if self.text is not None:
            return partial(any_text, self.text), f"all text of {self.text}"
        if self.corpus is not None:
            return partial(held_out, self.corpus), f"the held-out text of {self.corpus}"
        own = own_corpus(self.source)
        corpus, most = own or ("pydoc", None)
        whose = "the corpus of this run" if own else "as no --corpus is given"
        said = f"the held-out text of {corpus}, {whose}"
        return partial(held_out, corpus, corpus_tokens=most), said

    def _tokens(self, model: LanguageModel, read: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Sequences of the length that was asked for, or of the longest of some that there are."""
        lengths = LENGTHS if self.length is None else (self.length,)
        settings: dict[str, Any] = {"most": self.sequences, "whole": self.whole}
        for text in lengths:
            try:
                return read(model.tokenizer, one_length(text, model.length), **settings)
            except CorpusError:
                if text == lengths[-1]:
                    raise
        raise AssertionError


Found = TypeVar("Found")


class Sofar(Generic[Found]):
    """A bar for people; Ctrl-C shows what is known by then, and says how to go on.

    Args:
        kept: file of answers, if there is one.
        line: what stands beside the bar.
        table: of what is known.
    """

    def __init__(
        self,
        kept: Path | None,
        line: Callable[[Found], str],
        table: Callable[[Found], list[Any]],
    ) -> None:
        self._bar = make_bar()
        self._task = self._bar.add_task("reading", total=1.0)
        self._kept, self._line, self._table = kept, line, table
        self._known: Found | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def update(self, found: Found, share: float) -> None:
        self._known = found
        said = self._line(found) or "reading"
        self._bar.update(self._task, completed=share, description=said)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            if self._known is not None and self._line(self._known):
                Answer(None, self._table(self._known)).give(None)
            after = (
                "with --json FILE the same command would go on from here."
                if self._kept is None
                else f"what was answered is in {self._kept}, and the same command goes on."
            )
            raise KeyboardInterrupt(f"Stopped; {after}")


def _line(found: Passkey) -> str:
    lengths = found.by_length()[-SHOWN:]
    return ", ".join(f"{cell.requested}: {cell.correct} of {cell.total}" for cell in lengths)


def passkey_table(found: Passkey) -> list[Any]:
    """A title, and a row for each length with a column for each depth."""
    answers = "teacher-forced" if found.scoring == "teacher" else "generated"
    title = f"{found.model}, trained at {found.trained} tokens: {found.kind}, {answers} answers"
    depths = sorted({cell.depth for cell in found.cells})
    rows: list[dict[str, str]] = []
    for cell in found.by_length():
        here = {c.depth: f"{c.accuracy:.2g}" for c in found.cells if c.requested == cell.requested}
        rows.append(
            {
                "length": cell.requested,
                "tokens": f"{cell.length:,}",
                "retrieved": f"{cell.accuracy:.2f}",
                "95% from…to": f"{cell.interval.low:.2f}…{cell.interval.high:.2f}",
                "of": str(cell.total),
                **{f"at {depth:.0%}": here.get(depth, "") for depth in depths},
            }
        )
    return [title, rows]


def perplexity_rows(found: Perplexity) -> list[dict[str, str]]:
    """The table for people: windows of positions, then whole texts of several lengths."""
    kinds = {"window": found.by_window(), "text up to": found.by_length()}
    return [_perplexity_row(kind, row) for kind, rows in kinds.items() for row in rows]


def _perplexity_row(kind: str, row: dict[str, Any]) -> dict[str, str]:
    where = f"{row['from']:,}-{row['to']:,}" if kind == "window" else f"{row['to']:,}"
    return {
        "": kind,
        "tokens": where,
        "perplexity": f"{row['perplexity']:.3f}",
        "95% from…to": _ends(row, "perplexity"),
        "short context": f"{row['perplexity_short']:.3f}",
        "gain (nats)": f"{row['gain']:+.4f}",
        "95% of gain": _ends(row, "gain"),
    }


def _ends(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None else f"{low:.3f}…{high:.3f}"
