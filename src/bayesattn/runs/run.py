"""The run: one directory on disk. Training writes it, all other code reads it.

config.json        all settings that determine the result, and the command
environment.json   versions, machine and thread count
metrics.jsonl      one JSON object per line, each with its "step"
tokenizer/         the tokenizer, if it was trained for this run
checkpoints/       step-000123/
finished.json      final metrics and seconds, once the run is complete
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import torch

from bayesattn import files, plugins
from bayesattn.errors import BusyRunError, DamagedCheckpointError, DamagedRunError, RunError
from bayesattn.runs.checkpoint import (
    Checkpoint,
    Tensors,
    checkpoint_steps_in,
    last_good_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    read_state,
    save_checkpoint,
)
from bayesattn.runs.metrics import Metrics, written
from bayesattn.system import commit, environment

NOT_COMPARED = ("command", "training.track")
"""Parts of a config that do not affect the result."""
# a run from someone else must not make us read or write other files through links
FILES = ("config.json", "environment.json", "finished.json", "metrics.jsonl")
TOKENIZER = "tokenizer"
Reader = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Run:
    """A run directory. `Run.create` makes one, `Run.open` opens an existing one."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.checkpoints = folder / "checkpoints"
        self._logged: int | None = None  # lines of metrics.jsonl

    @classmethod
    def create(
        cls, folder: Path | str, config: Mapping[str, Any], read: Reader | None = None
    ) -> Self:
        """Create a run in an empty or new folder; continue a run with the same config.

        `read` converts configs, also of older versions, into a comparable form.
        """
        folder = Path(folder)
        plain = _plain(config)
        if (folder / "config.json").exists():
            run = cls.open(folder)
            run.require_same(plain, read)
            return run
        with files.writing(str(folder), "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            ours = ("environment.json", files.TEMPORARY, ".lock")  # from a killed creation
            names = [path.name for path in folder.iterdir()]
            if strangers := [name for name in names if not name.startswith(ours)]:
                raise RunError(
                    f"{folder} is not empty ({strangers[0]} is in it) and holds no run: "
                    "choose another folder."
                )
            threads = {"threads": torch.get_num_threads()}
            about = {**environment(), "commit": commit(), **threads}
            about |= {"imports": plugins.names()} if plugins.names() else {}
            files.write_json(folder / "environment.json", about, checked=True)
            # written last: now the run exists
            files.write_json(folder / "config.json", plain, checked=True)
        return cls(folder, plain)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        folder = Path(folder)
        try:
            for name in FILES:
                if (folder / name).is_symlink() and files.inside(folder, name) is None:
                    raise RunError(
                        f"{folder / name} is a link to a file outside the run: put that file there."
                    )
            return cls(folder, _read(folder / "config.json"))
        except OSError as error:
            raise RunError(
                f"There is no run in {folder} ({error.strerror}): name the folder that --out named "
                "when it was trained."
            ) from None
        except ValueError as error:
            raise DamagedRunError(
                f"config.json in {folder} is damaged ({error}): get it back from a copy, or train "
                "in another folder. If you changed it on purpose, remove its checksum."
            ) from None

    def require_same(self, config: Mapping[str, Any], read: Reader | None = None) -> None:
        """Refuse a config that differs from this run's, naming the fields that do."""
        read = read or dict
        differing = [
            f"{name} ({_shown(one)} there, {_shown(other)} now)"
            for name, one, other in _differences(_plain(read(self.config)), _plain(read(config)))
            if name not in NOT_COMPARED
        ]
        if differing:
            raise RunError(
                f"The run in {self.folder} has another config: {', '.join(differing)}; "
                "use the same or choose another folder."
            )

    @property
    def environment(self) -> dict[str, Any]:
        """Versions and machine, for the record; empty with a warning if the file is damaged."""
        return self._optional_file("environment.json") or {}

    @property
    def finished(self) -> dict[str, Any] | None:
        """step, stopped, metrics and seconds of a complete run, or None."""
        return self._optional_file("finished.json")

    def _optional_file(self, name: str) -> dict[str, Any] | None:
        """The content of a file that training does not need; None if it is missing or damaged."""
        try:
            return _read(self.folder / name)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(name, f"({error}) and not read")
            return None

    def lines(self) -> Metrics:
        """The logged lines, as a stream."""
        logged = 0
        with suppress(DamagedCheckpointError, IndexError):  # the newest checkpoint has their number
            logged = read_state(self.checkpoints, self.steps()[-1]).get("lines", 0)
        return Metrics(self.folder / "metrics.jsonl", logged)

    def metrics(self) -> list[dict[str, Any]]:
        """The logged lines in order of steps; damaged lines are skipped with a warning."""
        lines = self.lines()
        found = list(lines)
        if lines.problem:
            warnings.warn(f"{lines.problem} in {self.folder}, and left out.", stacklevel=2)
        return found

    def steps(self) -> list[int]:
        return checkpoint_steps_in(self.checkpoints)

    def checkpoint(self, step: int | None = None) -> Checkpoint:
        """The checkpoint of `step`, or the newest good one."""
        if step is None:
            found = last_good_checkpoint(self.checkpoints)
            if found is None:
                raise RunError(f"The run in {self.folder} has no checkpoint yet.")
            return found
        if step not in self.steps():
            steps = ", ".join(map(str, self.steps()))
            raise RunError(f"The run in {self.folder} has no step {step}; it has {steps}.")
        return read_checkpoint(self.checkpoints, step)

    def weights(self, step: int | None = None) -> Tensors:
        """The model's weights at `step`, or the newest; averaged if the run keeps averages."""
        checkpoint = self.checkpoint(step)
        average = checkpoint.tensors("ema") if checkpoint.has("ema") else {}
        return {**checkpoint.tensors("model"), **average}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for writing, and remove files of a killed writer.

        The system releases the lock when the process ends in any way.
        """
        with files.only_one(self.folder, "training", BusyRunError):
            files.clean(self.folder)
            files.clean(self.checkpoints)
            self._set_aside()
            yield

    def _set_aside(self) -> None:
        """Rename damaged files that training does not need."""
        for name in ("environment.json", "finished.json"):
            try:
                _read(self.folder / name)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self._warn(name, f"({error}): set aside as {files.aside(self.folder / name).name}")

    @contextmanager
    def reading(self, kind: str) -> Iterator[None]:
        """Context for reading parts of the config; `kind` is the expected kind of run."""
        try:
            yield
        except KeyError as error:
            raise RunError(f"The run in {self.folder} is not of a {kind}: no {error}.") from None
        except (TypeError, ValueError) as error:  # a field of another version
            for name in self.environment.get("imports", ()):
                if name not in plugins.names():
                    raise RunError(
                        f"The run in {self.folder} needs {name}, with which it was made: pass "
                        f"{plugins.OPTION} {name}, too."
                    ) from None
            raise RunError(
                f"The run in {self.folder} was made by another version of bayesattn, "
                f"{self.environment.get('bayesattn', 'an unknown one')} ({error}): use that one."
            ) from None

    def rewind(self, step: int, logged: int = 0) -> None:
        """Remove lines after `step`; up to `step`, `logged` lines were written."""
        path = self.folder / "metrics.jsonl"
        lines = Metrics(path, logged)
        kept = path.with_name(f"{files.TEMPORARY}{path.name}")
        with self._writing("metrics.jsonl"):
            with kept.open("w", encoding="utf-8") as file:
                count = sum(bool(file.write(written(one))) for one in lines if one["step"] <= step)
            if lines.problem and step >= 0:
                aside = files.aside(path).name if path.exists() else "nothing"
                said = f"{lines.problem}: the file is kept as {aside}, and what is whole goes on"
                warnings.warn(f"{self.folder}: {said}.", stacklevel=2)
            kept.replace(path)
        self._logged = max(count, logged)

    def log(self, line: Mapping[str, Any]) -> None:
        """Append one line, which has a "step", to metrics.jsonl."""
        with (
            self._writing("metrics.jsonl"),
            (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file,
        ):
            file.write(written(line))
        if self._logged is not None:
            self._logged += 1

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensors],
        state: Mapping[str, Any],
        keep: frozenset[int] = frozenset(),
    ) -> None:
        """Write the checkpoint of `step`, then remove old checkpoints that are not kept."""
        with self._writing(f"the checkpoint of step {step}"):
            if (self.folder / "metrics.jsonl").exists():
                files.sync(self.folder / "metrics.jsonl")  # the log is never behind a checkpoint
            lines = {} if self._logged is None else {"lines": self._logged}
            save_checkpoint(self.checkpoints, step, tensors, {**state, **lines})
            prune_checkpoints(self.checkpoints, keep)

    def finish(self, result: Mapping[str, Any]) -> None:
        with self._writing("finished.json"):
            files.write_json(self.folder / "finished.json", result, checked=True)

    def _warn(self, name: str, text: str) -> None:
        warnings.warn(f"{name} in {self.folder} is damaged {text}.", stacklevel=3)

    def _writing(self, what: str):
        steps = self.steps()
        kept = f"the checkpoint of step {steps[-1]} is kept" if steps else "nothing is saved yet"
        return files.writing(
            f"{what} in {self.folder}", f"{kept}, make room and run the same command again"
        )


def _read(path: Path) -> dict[str, Any]:
    """One of the run's JSON files; ValueError if it is damaged."""
    found = files.read_json(path)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    if path.name == "finished.json":
        kinds = {"step": int, "stopped": str, "metrics": dict, "seconds": (int, float)}
        for name, kind in kinds.items():
            if not isinstance(found.get(name), kind):
                raise ValueError(f"its {name} is missing or of another kind")
    return found


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(config, allow_nan=False))


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differences(one, other, f"{prefix}{name}.")
        elif one != other:
            yield f"{prefix}{name}", one, other


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
