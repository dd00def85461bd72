"""`bayesattn lm passkey`, `lm perplexity` and `lm harness`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from rich.console import Console
from tyro.conf import arg

from bayesattn.commands.options import JsonTarget, ModelName
from bayesattn.commands.passkey_table import Sofar, show_passkey
from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.corpora import NeedleMaker, prepare
from bayesattn.corpora.sentences import Kind, Values
from bayesattn.drawing import check_format, save_picture
from bayesattn.evals.harness import Score, harness
from bayesattn.evals.horizon import set_horizon
from bayesattn.evals.lengths import one_length
from bayesattn.evals.memory import GIBIBYTE
from bayesattn.evals.passkey import passkey
from bayesattn.evals.perplexity import Perplexity, any_text, held_out, perplexity
from bayesattn.models.open import LanguageModel, open_language

Figure = Annotated[Path | None, arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class LanguagePasskey:
    """Hide a value in prompts of many lengths and depths, and count how often a model finds it."""

    source: ModelName
    """Folder of a run, zoo:NAME, folder of a Hugging Face model, or a name on the hub."""
    lengths: Annotated[str, arg(metavar="1x,2x,...|TOKENS,...")] = "1x,2x,4x,8x,16x"
    """Lengths of the prompts: multiples of the training length, or numbers of tokens."""
    depths: int = 10
    """Places of the needle, from the beginning of the prompt to its end."""
    samples: int = 2
    """Prompts at each length and depth."""
    seed: int = 0
    """Of the hidden values."""
    scoring: Literal["teacher", "generated"] = "teacher"
    """Read prompt and answer and compare the most probable tokens; or let the model write."""
    needle: Kind = "passkey"
    """The authors' prompt, or one in the manner of RULER."""
    values: Values = "numbers"
    """What is hidden."""
    corpus: str = "pydoc"
    """Haystack of the essay needle: its held-out text."""
    tolerance: float | None = None
    """Share of the posterior that attention may leave out, to be faster; exact if not given."""
    ssmax_horizon: Annotated[str | None, arg(metavar="1x|TOKENS")] = None
    """Beyond so many keys SSMax counts only what a head's prior leaves in play, so that local heads
    stay as they were trained; as the model says if not given."""
    memory: Annotated[float, arg(metavar="GIB")] = 2.0
    """GiB that reading may take beyond the model."""
    give_up: int | None = None
    """Leave out longer lengths after so many in a row without one correct answer."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""
    figure: Figure = None
    """Draw accuracy by length and depth to this .svg, .png or .pdf."""
    json: JsonTarget = None
    """Write everything as JSON to this file ("-": standard output, no table); if it is stopped, the
    same command goes on with what was answered."""

    def run(self) -> int:
        """Measure and print."""
        with mistakes(), Console(stderr=True).status("loading"):
            if self.figure is not None:
                check_format(self.figure)
            model = _loaded(self)
            maker = self._maker(model)
        kept = Path(f"{self.json}.part") if self.json not in (None, "-") else None
        with mistakes(), Sofar(kept) as sofar:
            found = passkey(
                model,
                self.lengths,
                depths=self.depths,
                samples=self.samples,
                seed=self.seed,
                scoring=self.scoring,
                tolerance=self.tolerance,
                memory=int(self.memory * GIBIBYTE),
                maker=maker,
                give_up=self.give_up,
                keep=kept,
                report=sofar.update,
            )
        if self.figure is not None:
            from bayesattn.figures.language import draw_passkey

            with mistakes():
                save_picture(draw_passkey(found), self.figure)
        if self.json:
            write_json(found.to_json(), self.json)
        if kept is not None:
            kept.unlink()
        if self.json != "-":
            show_passkey(found)
        return 0

    def _maker(self, model: LanguageModel) -> NeedleMaker:
        haystack = None
        if self.needle == "essay":
            stream = prepare(self.corpus, model.tokenizer).stream("heldout")
            haystack = torch.tensor(stream.astype("int64"))
        return NeedleMaker(model.tokenizer, kind=self.needle, values=self.values, haystack=haystack)


@dataclass(frozen=True, kw_only=True)
class LanguagePerplexity:
    """Perplexity by position in long texts, beside that of a short context."""

    source: ModelName
    """Folder of a run, zoo:NAME, folder of a Hugging Face model, or a name on the hub."""
    length: Annotated[str, arg(metavar="32x|TOKENS")] = "8x"
    """Tokens of each sequence: a multiple of the training length, or a number."""
    window: Annotated[str, arg(metavar="1x|TOKENS")] = "1x"
    """Positions to average."""
    corpus: str = "pydoc"
    """Use the held-out documents of this corpus, which no training on it has seen."""
    text: Annotated[str | None, arg(metavar="FILE")] = None
    """Use all text of this file or folder instead."""
    whole: bool = False
    """Only documents that are long enough; else all text is joined and cut again."""
    sequences: int = 32
    """Sequences at most."""
    tolerance: float | None = None
    """Share of the posterior that attention may leave out, to be faster; exact if not given."""
    ssmax_horizon: Annotated[str | None, arg(metavar="1x|TOKENS")] = None
    """Beyond so many keys SSMax counts only what a head's prior leaves in play, so that local heads
    stay as they were trained; as the model says if not given."""
    memory: Annotated[float, arg(metavar="GIB")] = 2.0
    """GiB that reading may take beyond the model."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""
    figure: Figure = None
    """Draw the curve to this .svg, .png or .pdf."""
    json: JsonTarget = None
    """Write everything as JSON to this file ("-": standard output, no table)."""

    def run(self) -> int:
        """Measure and print."""
        with mistakes(), Console(stderr=True).status("reading"):
            if self.figure is not None:
                check_format(self.figure)
            model = _loaded(self)
            length, window = (one_length(text, model.length) for text in (self.length, self.window))
            settings: dict[str, Any] = {"most": self.sequences, "whole": self.whole}
            if self.text is None:
                tokens = held_out(self.corpus, model.tokenizer, length, **settings)
            else:
                tokens = any_text(self.text, model.tokenizer, length, **settings)
            found = perplexity(
                model,
                tokens,
                window=window,
                tolerance=self.tolerance,
                memory=int(self.memory * GIBIBYTE),
            )
            if self.figure is not None:
                from bayesattn.figures.language import draw_perplexity

                save_picture(draw_perplexity(found), self.figure)
        if self.json:
            write_json(found.to_json(), self.json)
        if self.json != "-":
            print(
                f"{found.model}, trained at {found.trained} tokens: perplexity over "
                f"{len(found.losses)} sequences"
            )
            show_rows(perplexity_rows(found))
        return 0


@dataclass(frozen=True, kw_only=True)
class LanguageHarness:
    """Run tasks of lm-eval on a model."""

    source: ModelName
    """Folder of a run, zoo:NAME, folder of a Hugging Face model, or a name on the hub."""
    tasks: Annotated[str, arg(metavar="TASK,...")]
    """Names of tasks, such as arc_easy,hellaswag."""
    few_shot: int | None = None
    """Examples in the prompt; as each task says if not given."""
    limit: int | None = None
    """Use only the first so many examples of each task."""
    batch_size: int = 8
    """Sequences read together."""
    length: Annotated[str, arg(metavar="1x|TOKENS")] = "1x"
    """Longest input; of longer ones the end is kept."""
    folder: Path | None = None
    """Folder with further tasks as YAML files."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""
    json: JsonTarget = None
    """Write JSON to this file ("-": standard output, no table)."""

    def run(self) -> int:
        """Measure and print."""
        with mistakes():
            model = open_language(self.source, self.step)
            scores = harness(
                model,
                [task.strip() for task in self.tasks.split(",") if task.strip()],
                few_shot=self.few_shot,
                limit=self.limit,
                batch_size=self.batch_size,
                length=one_length(self.length, model.length),
                folder=self.folder,
            )
        if self.json:
            rows = [asdict(score) for score in scores]
            write_json({"model": model.name, "scores": rows}, self.json)
        if self.json != "-":
            show_rows([_score_row(score) for score in scores])
        return 0


def _loaded(options: LanguagePasskey | LanguagePerplexity) -> LanguageModel:
    model = open_language(options.source, options.step)
    if options.ssmax_horizon is not None:
        set_horizon(model, options.ssmax_horizon)
    return model


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


def _score_row(score: Score) -> dict[str, str]:
    return {
        "task": score.task,
        "metric": score.metric,
        "value": f"{score.value:.4f}",
        "standard error": "" if score.stderr is None else f"{score.stderr:.4f}",
    }
