"""`bayesattn lm train` and `bayesattn tunnel train`.

Options are the fields of what is trained and of how: a field that is added there is an option here.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from typing_extensions import Doc
from tyro.conf import Positional, Suppress, arg

from bayesattn.commands.options import (
    Answer,
    JsonTarget,
    Pairs,
    optional,
    parse_deciding,
    parse_pairs,
)
from bayesattn.commands.quick import NO_OUT
from bayesattn.console import mistakes, telling
from bayesattn.errors import UserError
from bayesattn.models.architectures import ARCHITECTURES, Architecture, make_architecture
from bayesattn.models.choices import HELP
from bayesattn.models.language_config import LanguageConfig
from bayesattn.runs import Run
from bayesattn.training import language, tunnel
from bayesattn.training.config import TrainConfig
from bayesattn.training.loop import steps_within
from bayesattn.training.machine import make_accelerator, use_device
from bayesattn.training.recipes import LANGUAGE_RECIPES
from bayesattn.tunnels import TUNNELS, Tunnel, make_tunnel

HEADINGS = {
    "heldout": "held-out loss (nats/token)",
    "bits_per_byte": "bits per byte",
    "needles": "needles found",
    "mae": "mae (bits)",
    "kl": "kl (bits)",
}
DICTIONARIES = ("prior_options", "rope_parameters")
"""Choices that are given as KEY=VALUE."""
FLAT = arg(name="")
MODULES: dict[str, Any] = {"lm": language, "tunnel": tunnel}


@dataclass(frozen=True, kw_only=True)
class _Train:
    """What both commands share."""

    noun: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = ()

    device: Annotated[str | None, optional("cpu|cuda")] = None
    """What to compute on; a GPU if there is one, if not given."""
    minutes: Annotated[float | None, optional("MINUTES")] = None
    """Train for about so long: the number of steps is measured first, and then it is fixed."""
    out: Annotated[Path | None, optional("RUN")] = None
    """Folder of the run, a new one or one to continue."""
    json: JsonTarget = None

    def chosen(self) -> tuple[Any, ...]:
        """What is trained, and how."""
        raise NotImplementedError

    def run(self) -> int:
        if self.out is None:
            raise UserError(NO_OUT)
        if self.device is not None:
            use_device(self.device)
        with mistakes():
            parts = self.chosen()
        command = shlex.join(["bayesattn", self.noun, "train", *self.words])
        return _finish(self.noun, parts, self.out, command, self.json)

    def _dictionaries(self) -> dict[str, dict[str, Any]]:
        """Those that were given."""
        options = {name: getattr(self, name, ()) for name in DICTIONARIES}
        return {
            name: parse_pairs(f"--{name.replace('_', '-')}", pairs)
            for name, pairs in options.items()
            if pairs
        }

    def _with_steps(self, training: TrainConfig, usual: int, *parts: Any) -> TrainConfig:
        """With the number of steps that the minutes come to, or came to when the run began."""
        if self.minutes is None:
            return training
        if training.steps != usual:
            raise UserError("Give --minutes or --steps, not both.")
        if self.out and (self.out / "config.json").exists():
            stored = Run.open(self.out).config.get("training", {})
            return replace(training, steps=TrainConfig(**stored).steps)
        with telling() as tell:
            tell(f"counting the steps of {self.minutes:g} minutes")
            task, model, _ = MODULES[self.noun].make(*parts, training)
        return replace(training, steps=steps_within(self.minutes, task, model, training))


@dataclass(frozen=True, kw_only=True)
class LanguageTrain(_Train):
    """Train a language model, or continue a run that was stopped.

    A recipe is a starting point, and each option changes one thing of it; defaults are those of the
    recipe, here `tiny`, or the one named before --help. A corpus that you name is read without
    needles unless you ask for them. The same command continues a run that was interrupted or
    killed, and so does `bayesattn lm train --resume RUN`; either way it ends as if nothing had
    happened.
    """

    noun: ClassVar[str] = "lm"

    recipe: Annotated[Positional[str], arg(metavar="|".join(LANGUAGE_RECIPES))] = "tiny"
    """tiny or tiny-long (passkeys and documentation on a CPU), published (tiny in the authors'
    setting), code (the installed packages, for hours), or l6 to l24, the authors' trainings."""

    @staticmethod
    def options_for(words: Sequence[str]) -> type:
        asked = ("--corpus", "--needle-share", "--needles")
        deciding = parse_deciding(words, "--resume", *asked)
        if deciding["--resume"] is not None:
            return LanguageResume
        name = deciding["first"] or "tiny"
        if name not in LANGUAGE_RECIPES:
            names = ", ".join(LANGUAGE_RECIPES)
            raise UserError(f"There is no recipe {name!r}: choose one of {names}.")
        model, training = LANGUAGE_RECIPES[name]()
        corpus, share, kind = (deciding[flag] for flag in asked)
        if corpus is not None and share is None and kind is None:
            # What is hidden belongs to the recipe's text; who brings text wants it read.
            model = replace(model, needle_share=0.0)
        # Dictionaries are given as KEY=VALUE.
        model = replace(model, **{name: {} for name in DICTIONARIES})
        parts = {
            "language": (LanguageConfig, FLAT, field(default=model)),
            "training": (_TextTraining, FLAT, field(default=_TextTraining(**vars(training)))),
        }
        return _options(_LanguageTrain, parts, words)


class _LanguageTrain(LanguageTrain):
    """The options of one recipe."""

    language: LanguageConfig
    training: TrainConfig

    def chosen(self) -> tuple[LanguageConfig, TrainConfig]:
        recipe, usual = LANGUAGE_RECIPES[self.recipe]()
        # The recipe's options of a prior hold for the recipe's prior.
        same = self.language.prior == recipe.prior
        options = {"prior_options": recipe.prior_options} if same else {}
        model = replace(self.language, **(options | self._dictionaries()))
        training = TrainConfig(**vars(self.training))
        return model, self._with_steps(training, usual.steps, model)


@dataclass(frozen=True, kw_only=True)
class _TextTraining(TrainConfig):
    """How to train. Text has no exact posterior and no horizon, so there is no choice of those."""

    labels: Suppress[Literal["posterior", "sampled"]] = "posterior"
    lengths: Suppress[tuple[float, ...]] = (1.0,)


@dataclass(frozen=True, kw_only=True)
class TunnelTrain(_Train):
    """Train a model on a tunnel, or continue a run that was stopped.

    Each tunnel and architecture has its own options: `bayesattn tunnel train hmm --help`,
    `bayesattn tunnel train hmm --architecture lstm --help`. The same command continues a run that
    was interrupted or killed, and so does `bayesattn tunnel train --resume RUN`; either way it
    ends as if nothing had happened.
    """

    noun: ClassVar[str] = "tunnel"

    name: Annotated[Positional[str], arg(metavar="|".join(TUNNELS))]
    """The task: bijection, hmm, recall, revision, sticky, hops, group, mess3 or rrxor."""
    architecture: Annotated[str, arg(metavar="NAME")] = "transformer"
    """The kind of model: transformer, lstm, mamba or mlp."""

    @staticmethod
    def options_for(words: Sequence[str]) -> type:
        deciding = parse_deciding(words, "--resume", "--architecture")
        if deciding["--resume"] is not None:
            return TunnelResume
        name = deciding["first"] or next(iter(TUNNELS))
        kind = deciding["--architecture"] or "transformer"
        with mistakes():
            if name not in TUNNELS:
                make_tunnel(name)
            if kind not in ARCHITECTURES:
                make_architecture(kind)
            _refuse_attention(kind, name, words)
        task, model = TUNNELS[name], ARCHITECTURES[kind]
        others = {f.name for part in (model, TrainConfig, TunnelTrain) for f in fields(part)}
        clash = others.intersection(f.name for f in fields(task))
        parts = {
            # where a tunnel and a model both have a width, the tunnel's is --tunnel.width
            "tunnel": (task, arg(name="tunnel") if clash else FLAT, field()),
            "model": (model, FLAT, field()),
            "training": (TrainConfig, FLAT, field()),
        }
        return _options(_TunnelTrain, parts, words)


class _TunnelTrain(TunnelTrain):
    """The options of one tunnel and one architecture."""

    tunnel: Tunnel
    model: Architecture
    training: TrainConfig

    def chosen(self) -> tuple[Tunnel, Architecture, TrainConfig]:
        if self.name != self.tunnel.name:  # whose options would have been others
            raise UserError(f"Name the tunnel first: bayesattn tunnel train {self.name} …")
        model = replace(self.model, **self._dictionaries())
        usual = TrainConfig().steps
        return self.tunnel, model, self._with_steps(self.training, usual, self.tunnel, model)


@dataclass(frozen=True, kw_only=True)
class LanguageResume:
    """Continue a run that was stopped, with everything as it was."""

    noun: ClassVar[str] = "lm"

    resume: Annotated[Path, arg(metavar="RUN")]
    """Folder of the run."""
    device: Annotated[str | None, optional("cpu|cuda")] = None
    """What to compute on; a GPU if there is one, if not given."""
    json: JsonTarget = None

    def run(self) -> int:
        if self.device is not None:
            use_device(self.device)
        with mistakes():
            run = Run.open(self.resume)
            parts = MODULES[self.noun].parse_config(run)
        return _finish(self.noun, parts, self.resume, run.config.get("command"), self.json)


@dataclass(frozen=True, kw_only=True)
class TunnelResume(LanguageResume):
    """Continue a run that was stopped, with everything as it was."""

    noun: ClassVar[str] = "tunnel"


def _finish(
    noun: str,
    parts: tuple[Any, ...],
    folder: Path,
    command: str | None,
    json_target: str | None,
) -> int:
    first = make_accelerator().is_main_process
    if first and noun == "lm":
        print(_reading(parts[0]), file=sys.stderr, flush=True)
    train: Any = {"lm": language.train_language, "tunnel": tunnel.train_tunnel}[noun]
    result = train(*parts, folder, command=command).finished
    if not first:  # of several processes only the first prints
        return 0
    row = {"run": str(folder), "step": str(result["step"])}
    row |= {HEADINGS[name]: f"{value:.3g}" for name, value in result["metrics"].items()}
    row |= {"seconds": f"{result['seconds']:.0f}", "stopped": result["stopped"]}
    return Answer({"run": str(folder), **result}, [[row]]).give(json_target)


def _reading(language: LanguageConfig) -> str:
    """What a training reads, and whether anything is hidden in it."""
    if not language.needle_share:
        return f"Reads {language.corpus}, without needles (--needle-share 0.9 would hide some)."
    return (
        f"Reads {language.corpus}; {language.needle_share:.0%} of the sequences begin with a "
        f"{language.needles} prompt (--needle-share 0 trains on text alone)."
    )


def _options(command: type, parts: dict[str, tuple[type, Any, Any]], words: Sequence[str]) -> type:
    """`command` with the fields of its parts as options, and dictionaries as KEY=VALUE."""
    made = [(name, Annotated[kind, flat], default) for name, (kind, flat, default) in parts.items()]
    known = {one.name for kind, _, _ in parts.values() for one in fields(kind)}
    pairs: list[Any] = [
        (name, Annotated[Pairs, Doc(HELP[name])], ()) for name in DICTIONARIES if name in known
    ]
    chosen: Any = make_dataclass(
        command.__name__.strip("_"), [*pairs, *made], bases=(command,), kw_only=True, frozen=True
    )
    chosen.__doc__ = command.__base__.__doc__
    chosen.words = tuple(words)
    return chosen


def _refuse_attention(kind: str, name: str, words: Sequence[str]) -> None:
    """A prior on an architecture without attention gets that architecture's own sentence."""
    own = (TUNNELS[name], TrainConfig, ARCHITECTURES[kind])
    known = {one.name for part in own for one in fields(part)}
    strange = {one.name for one in fields(ARCHITECTURES["transformer"])} - known
    flags = {f"--{option.replace('_', '-')}": option for option in strange}
    given = parse_deciding(words, *flags)
    for flag, option in flags.items():
        if given[flag] is not None:
            make_architecture(kind, **{option: None})
