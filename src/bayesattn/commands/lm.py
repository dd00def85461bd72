"""`bayesattn lm train`, `lm generate` and `lm export`."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tyro.conf import Positional, Suppress, arg

from bayesattn.commands.options import JsonTarget, Pairs, RunFolder, parse_known, parse_pairs
from bayesattn.commands.outcome import show_outcome
from bayesattn.console import mistakes, write_json
from bayesattn.corpora import CorpusError
from bayesattn.errors import UserError
from bayesattn.models.exporting import export
from bayesattn.models.generation import generate
from bayesattn.models.language_config import LanguageConfig
from bayesattn.runs import Run
from bayesattn.runs.errors import TrainingError
from bayesattn.training.config import TrainConfig
from bayesattn.training.language import parse_config, steps_for, train_language
from bayesattn.training.recipes import LANGUAGE_RECIPES

HEADINGS = {
    "heldout": "held-out loss (nats/token)",
    "bits_per_byte": "bits per byte",
    "needles": "needles found",
}


@dataclass(frozen=True, kw_only=True)
class _Training(TrainConfig):
    """How to train. Text has no exact posterior and no horizon, so there is no choice of those."""

    labels: Suppress[Literal["posterior", "sampled"]] = "posterior"
    lengths: Suppress[tuple[float, ...]] = (1.0,)


@dataclass(frozen=True, kw_only=True)
class LanguageTrain:
    """Train a language model, or continue a run that was stopped.

    A recipe is a starting point, and each option changes one thing of it; defaults are those of the
    recipe, here `tiny`, or the one named before --help. The same command continues a run that was
    interrupted or killed, and so does `bayesattn lm train --resume RUN`; either way it ends as if
    nothing had happened.
    """

    words: ClassVar[tuple[str, ...]] = ()

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")] = "tiny"
    """tiny or small (passkeys and documentation on a CPU), or l6 to l24, the authors' trainings."""
    prior_options: Pairs = ()
    """Options of the prior, for example init=uniform."""
    rope_parameters: Pairs = ()
    """Options of encoding rope, for example rope_theta=10000."""
    minutes: float | None = None
    """Train for about so long: the steps are counted out first, then the run is as any other."""
    out: Annotated[Path | None, arg(metavar="RUN")] = None
    """Folder of the run, a new one or one to continue."""
    json: JsonTarget = None
    """Write the result as JSON to this file ("-": standard output) instead of a table."""

    @staticmethod
    def options_for(words: Sequence[str]) -> type:
        """The class of options for these words of the command line."""
        if parse_known(words, "--resume")["--resume"] is not None:
            return Resume
        named = bool(words) and not words[0].startswith("-")
        name = words[0] if named else "tiny"
        if name not in LANGUAGE_RECIPES:
            names = ", ".join(LANGUAGE_RECIPES)
            raise UserError(f"There is no recipe {name!r}: choose one of {names}.")
        return _options(name, words)


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Continue a run that was stopped, with everything as it was."""

    resume: Annotated[Path, arg(metavar="RUN")]
    """Folder of the run."""
    json: JsonTarget = None
    """Write the result as JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Train to the end."""
        with mistakes():
            run = Run.open(self.resume)
            language, training = parse_config(run)
        return _train(language, training, self.resume, run.config.get("command"), self.json)


class _Chosen(LanguageTrain):
    """The options of one recipe; see `_options`."""

    language: LanguageConfig
    training: TrainConfig

    def run(self) -> int:
        """Train to the end."""
        if self.out is None:
            raise UserError("Say where the run is to be written: --out RUN.")
        with mistakes():
            language = self._language()
            training = self._training(language, self.out)
        command = shlex.join(["bayesattn", "lm", "train", *self.words])
        return _train(language, training, self.out, command, self.json)

    def _language(self) -> LanguageConfig:
        """With the pairs put in; those of the recipe hold for the recipe's prior and encoding."""
        recipe, _ = LANGUAGE_RECIPES[self.recipe]()
        prior = parse_pairs("--prior-options", self.prior_options)
        if not prior and self.language.prior == recipe.prior:
            prior = recipe.prior_options
        rope = parse_pairs("--rope-parameters", self.rope_parameters)
        return replace(self.language, prior_options=prior, rope_parameters=rope)

    def _training(self, language: LanguageConfig, out: Path) -> TrainConfig:
        """With the number of steps that the minutes come to, or came to when the run began."""
        training = TrainConfig(**vars(self.training))
        if self.minutes is None:
            return training
        if training.steps != LANGUAGE_RECIPES[self.recipe]()[1].steps:
            raise UserError("Give --minutes or --steps, not both.")
        if (out / "config.json").exists():
            steps = Run.open(out).config.get("training", {}).get("steps", training.steps)
        else:
            steps = steps_for(self.minutes, language, training)
        return replace(training, steps=steps)


@dataclass(frozen=True, kw_only=True)
class LanguageGenerate:
    """Let a language model continue a text."""

    source: RunFolder
    """A run, zoo:NAME, a Hugging Face folder, or a name of the hub."""
    prompt: Annotated[Positional[str], arg(metavar="PROMPT")]
    """The text; "-" reads it from standard input."""
    tokens: int = 100
    """Tokens to add, at most."""
    temperature: float = 0.0
    """0 always takes the most probable token; 1 draws as the model believes."""
    seed: int = 0
    """Of the draws."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""
    json: JsonTarget = None
    """Write prompt and continuation as JSON to this file ("-": standard output)."""

    def run(self) -> int:
        """Print the text and what follows it."""
        prompt = sys.stdin.read() if self.prompt == "-" else self.prompt
        with mistakes():
            added = generate(
                self.source,
                prompt,
                tokens=self.tokens,
                temperature=self.temperature,
                seed=self.seed,
                step=self.step,
            )
        if self.json:
            write_json({"prompt": prompt, "continuation": added}, self.json)
        if self.json != "-":
            print(prompt + added)
        return 0


@dataclass(frozen=True, kw_only=True)
class LanguageExport:
    """Write a run's model, tokenizer and generation config as a Hugging Face folder."""

    source: RunFolder
    """The run, or zoo:NAME."""
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """A new folder."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""

    def run(self) -> int:
        """Write it."""
        with mistakes():
            print(f"Wrote {export(self.source, self.folder, self.step)}.")
        return 0


def _train(
    language: LanguageConfig,
    training: TrainConfig,
    folder: Path,
    command: str | None,
    json_target: str | None,
) -> int:
    try:
        run = train_language(language, training, folder, command=command)
    except (TrainingError, CorpusError) as error:
        raise UserError(str(error)) from error
    show_outcome(run, folder, HEADINGS, json_target)
    return 0


def _options(name: str, words: Sequence[str]) -> type:
    """`_Chosen` with the fields of model and training as options, the recipe's as defaults."""
    language, training = LANGUAGE_RECIPES[name]()
    # Dictionaries are given as KEY=VALUE, see `_language`.
    language = replace(language, prior_options={}, rope_parameters={})
    flat = arg(name="")
    parts: Iterable[tuple[str, Any, Any]] = (
        ("language", Annotated[LanguageConfig, flat], field(default=language)),
        ("training", Annotated[_Training, flat], field(default=_Training(**vars(training)))),
    )
    chosen = make_dataclass("LanguageTrain", parts, bases=(_Chosen,), kw_only=True, frozen=True)
    chosen.__doc__ = LanguageTrain.__doc__
    chosen.words = tuple(words)
    return chosen
