"""`bayesattn lm generate`, `lm export`, `lm priors` and `lm harness`."""

import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bayesattn.commands.options import Answer, Asking, Count, JsonTarget, ModelName, Step, optional
from bayesattn.console import mistakes
from bayesattn.drawing import save_picture
from bayesattn.evals.harness import Score, harness
from bayesattn.evals.lengths import one_length
from bayesattn.evals.priors import (
    NEAR,
    REACH,
    HeadPrior,
    Priors,
    factors_on_passkey,
    measure_priors,
)
from bayesattn.models.open import LanguageModel, find, open_language
from bayesattn.runs import Run

FAR = 1e7
"""Tokens that no text has: as good as infinite, and written short."""


@dataclass(frozen=True, kw_only=True)
class LanguageGenerate(Asking):
    """Let a language model continue a text."""

    source: ModelName
    prompt: Annotated[Positional[str], arg(metavar="PROMPT")]
    """The text; "-" reads it from standard input."""
    tokens: int = 100
    """Tokens to add, at most."""
    temperature: float = 0.0
    """0 always takes the most probable token; 1 samples as the model believes."""
    seed: int = 0
    """Seed of the samples."""
    step: Step = None
    json: JsonTarget = None

    def answer(self) -> Answer:
        prompt = sys.stdin.read() if self.prompt == "-" else self.prompt
        added = open_language(self.source, self.step).generate(
            prompt, tokens=self.tokens, temperature=self.temperature, seed=self.seed
        )
        return Answer({"prompt": prompt, "continuation": added}, [prompt + added])


@dataclass(frozen=True, kw_only=True)
class LanguageExport:
    """Write a model, its tokenizer and its generation config as a Hugging Face folder."""

    source: ModelName
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A new folder."""
    step: Step = None

    def run(self) -> int:
        with mistakes():
            print(f"Wrote {open_language(self.source, self.step).export(self.folder)}.")
        return 0


@dataclass(frozen=True, kw_only=True)
class LanguageHarness(Asking):
    """Run tasks of lm-eval on a model."""

    source: ModelName
    tasks: Annotated[str, arg(metavar="TASK,...")]
    """Names of tasks, such as arc_easy,hellaswag, or offline_ruler_vt."""
    few_shot: Count = None
    """Examples in the prompt; as each task says if not given."""
    limit: Count = None
    """Use only the first N examples of each task."""
    batch_size: int = 8
    """Sequences read together."""
    length: Annotated[str, arg(metavar="1x|TOKENS")] = "1x"
    """Longest input; of longer ones the end is kept."""
    folder: Annotated[Path | None, optional("FOLDER")] = None
    """Folder with further tasks as YAML files."""
    step: Step = None
    json: JsonTarget = None

    def answer(self) -> Answer:
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
        data = {"model": model.name, "scores": [asdict(score) for score in scores]}
        return Answer(data, [[_score_row(score) for score in scores]])


@dataclass(frozen=True, kw_only=True)
class LanguagePriors(Asking):
    """Show how far each head's prior looks, its shape, and how it moved in training."""

    source: ModelName
    step: Step = None
    figures: Annotated[Path | None, optional("FOLDER")] = None
    """Draw the priors, how they moved, and the factors of attention on a passkey prompt there."""
    head: Annotated[str | None, optional("LAYER.HEAD")] = None
    """Head whose factors are drawn; the one that looks most at the passkey if not given."""
    json: JsonTarget = None

    def answer(self) -> Answer:
        run = run_of(self.source)
        model = open_language(self.source, self.step)
        priors = measure_priors(model, run)
        chosen = None if self.head is None else parse_head(self.head, priors)
        paths = [] if self.figures is None else draw(self.figures, model, priors, chosen)
        rows = [row(head) for head in priors.heads]
        return Answer(priors.to_json(), [title(priors), rows, *map(str, paths)])


def draw(
    folder: Path, model: LanguageModel, priors: Priors, chosen: tuple[int, int] | None
) -> list[Path]:
    from bayesattn.figures import priors as drawing

    factors = factors_on_passkey(model)
    pictures = [drawing.draw_curves(priors)]
    if all(head.kind for head in priors.heads):
        pictures.append(drawing.draw_shapes(priors))
    if priors.movement is not None:
        pictures.append(drawing.draw_movement(priors))
    pictures.append(drawing.draw_factors(factors, chosen or factors.strongest(), model.name))
    paths = [folder / f"{picture.name}.svg" for picture in pictures]
    for picture, path in zip(pictures, paths, strict=True):
        save_picture(picture, path)
    return paths


def run_of(source: str) -> Run | None:
    """The run of that name; None if it is something else."""
    found = find(source)
    return Run.open(found.location) if found.run else None


def parse_head(text: str, priors: Priors) -> tuple[int, int]:
    known = {f"{head.layer}.{head.head}": (head.layer, head.head) for head in priors.heads}
    if text not in known:
        last = priors.heads[-1]
        raise ValueError(
            f"There is no head {text!r}: heads are LAYER.HEAD, such as {last.layer}.{last.head}, "
            "the last one."
        )
    return known[text]


def title(priors: Priors) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in priors.counts().items())
    return (
        f"{priors.model}: {priors.prior} priors of {len(priors.heads)} heads ({counts}), for a "
        f"query that sees {priors.length:,} keys; near-uniform: at most {NEAR:g} away in total "
        f"variation; within its range a prior is at least {REACH:g} of its largest value"
    )


def row(head: HeadPrior) -> dict[str, str]:
    return {
        "layer": str(head.layer),
        "head": str(head.head),
        "looks": head.looks,
        "half within": f"{head.half:,}",
        "range": _distance(head.reach),
        "moved": _number(head.moved),
        "theta_alpha": _number(head.theta_alpha),
        "theta_beta": _number(head.theta_beta),
        "mu": _number(head.mu),
        "authors' class": head.kind or "",
        "s of SSMax": _number(head.temperature),
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _distance(tokens: float) -> str:
    if math.isinf(tokens):
        return "∞"
    return f"{tokens:,.0f}" if tokens < FAR else f"{tokens:.0e}"


def _score_row(score: Score) -> dict[str, str]:
    return {
        "task": score.task,
        "metric": score.metric,
        "value": f"{score.value:.4f}",
        "standard error": "" if score.stderr is None else f"{score.stderr:.4f}",
    }
