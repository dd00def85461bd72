"""`bayesattn tunnel train`: the options are those of the chosen tunnel and architecture."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

from bayesattn.commands.options import JsonTarget, Pairs, parse_known, parse_pairs
from bayesattn.commands.outcome import show_outcome
from bayesattn.console import mistakes
from bayesattn.errors import UserError
from bayesattn.models.architectures import ARCHITECTURES, Architecture, build, make_architecture
from bayesattn.runs import Run
from bayesattn.runs.errors import TrainingError
from bayesattn.training.config import TrainConfig
from bayesattn.training.timing import steps_within
from bayesattn.training.tunnel import TunnelTask, longest, parse_config, train_tunnel
from bayesattn.tunnels import TUNNELS, Tunnel, make_tunnel

HEADINGS = {"mae": "mae (bits)", "kl": "kl (bits)"}


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model on a tunnel, or continue a run that was stopped.

    Each tunnel and architecture has its own options: `bayesattn tunnel train hmm --help`,
    `bayesattn tunnel train hmm --architecture lstm --help`. The same command continues a run that
    was interrupted or killed, and so does `bayesattn tunnel train --resume RUN`; either way it
    ends as if nothing had happened.
    """

    words: ClassVar[tuple[str, ...]] = ()

    name: Annotated[Positional[str], arg(metavar="TUNNEL")]
    """The task: bijection, hmm, recall, revision, sticky, hops or group."""
    architecture: Annotated[str, arg(metavar="NAME")] = "transformer"
    """The kind of model: transformer, lstm, mamba or mlp."""
    prior_options: Pairs = ()
    """Options of the prior, for example init=mixed."""
    minutes: float | None = None
    """Train for about so long: the steps are counted out first, then the run is as any other."""
    out: Annotated[Path | None, arg(metavar="RUN")] = None
    """Folder of the run, a new one or one to continue."""
    json: JsonTarget = None
    """Write the result as JSON to this file ("-": standard output) instead of a table."""

    @staticmethod
    def options_for(words: Sequence[str]) -> type:
        """The class of options for these words of the command line."""
        deciding = parse_known(words, "--resume", "--architecture")
        if deciding["--resume"] is not None:
            return Resume
        named = bool(words) and not words[0].startswith("-")
        name = words[0] if named else next(iter(TUNNELS))
        kind = deciding["--architecture"] or "transformer"
        with mistakes():
            if name not in TUNNELS:
                make_tunnel(name)
            if kind not in ARCHITECTURES:
                make_architecture(kind)
            _refuse_attention(kind, name, words)
        return _options(TUNNELS[name], ARCHITECTURES[kind], words)


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
            parts = parse_config(run)
        return _train(*parts, self.resume, run.config.get("command"), self.json)


class _Chosen(Train):
    """The options of one tunnel and one architecture; see `_options`."""

    tunnel: Tunnel
    model: Architecture
    training: TrainConfig

    def run(self) -> int:
        """Train to the end."""
        if self.name != self.tunnel.name:  # whose options would have been others
            raise UserError(f"Name the tunnel first: bayesattn tunnel train {self.name} …")
        if self.out is None:
            raise UserError("Say where the run is to be written: --out RUN.")
        with mistakes():
            model = self._model()
            config = self._config(model, self.out)
        command = shlex.join(["bayesattn", "tunnel", "train", *self.words])
        return _train(self.tunnel, model, config, self.out, command, self.json)

    def _model(self) -> Architecture:
        if not self.prior_options:
            return self.model
        options = parse_pairs("--prior-options", self.prior_options)
        return make_architecture(**{**self.model.to_dict(), "prior_options": options})

    def _config(self, model: Architecture, out: Path) -> TrainConfig:
        """With the number of steps that the minutes come to, or came to when the run began."""
        config = self.training
        if self.minutes is None:
            return config
        if config.steps != TrainConfig().steps:
            raise UserError("Give --minutes or --steps, not both.")
        if (out / "config.json").exists():
            steps = Run.open(out).config.get("training", {}).get("steps", config.steps)
            return replace(config, steps=steps)
        task = TunnelTask(self.tunnel, config.labels, config.lengths)
        built = build(model, longest(self.tunnel, config), config.seed)
        steps = steps_within(self.minutes, task, built, config)
        return replace(config, steps=steps)


def _train(
    tunnel: Tunnel,
    architecture: Architecture,
    config: TrainConfig,
    folder: Path,
    command: str | None,
    json_target: str | None,
) -> int:
    try:
        run = train_tunnel(tunnel, architecture, config, folder, command=command)
    except TrainingError as error:
        raise UserError(str(error)) from error
    show_outcome(run, folder, HEADINGS, json_target)
    return 0


def _options(tunnel: type[Tunnel], kind: type[Architecture], words: Sequence[str]) -> type:
    """`_Chosen` with the fields of this tunnel, this architecture and the training as options."""
    flat = arg(name="")
    others = {f.name for part in (kind, TrainConfig, Train) for f in fields(part)}
    clash = others.intersection(f.name for f in fields(tunnel))
    parts: Iterable[tuple[str, Any, Any]] = (
        # where a tunnel and a model both have a width, the tunnel's is --tunnel.width
        ("tunnel", Annotated[tunnel, arg(name="tunnel") if clash else flat], field()),
        ("model", Annotated[kind, flat], field()),
        ("training", Annotated[TrainConfig, flat], field()),
    )
    chosen = make_dataclass("Train", parts, bases=(_Chosen,), kw_only=True, frozen=True)
    chosen.__doc__ = Train.__doc__
    chosen.words = tuple(words)
    return chosen


def _refuse_attention(kind: str, name: str, words: Sequence[str]) -> None:
    """A prior on an architecture without attention gets that architecture's own sentence."""
    known = {f.name for part in (TUNNELS[name], TrainConfig) for f in fields(part)}
    transformer = {f.name for f in fields(ARCHITECTURES["transformer"])}
    for word in words:
        option = word.removeprefix("--").split("=")[0].replace("-", "_")
        if word.startswith("--") and option in transformer - known:
            own = {f.name for f in fields(ARCHITECTURES[kind])}
            if option not in own:
                make_architecture(kind, **{option: None})
