"""The run: one directory on disk. Training writes it, everything else reads it.

config.json        everything that decides the result, and the command that made it
environment.json   versions, machine and thread count
metrics.jsonl      one JSON object per line, each with its "step"
checkpoints/       step-000123/
finished.json      there once the run is complete: final metrics and seconds
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from filelock import FileLock, Timeout

from bayesattn import files
from bayesattn.errors import DamagedRunError, RunError
from bayesattn.runs.checkpoint import (
    Checkpoint,
    Tensors,
    checkpoint_steps_in,
    last_good_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    save_checkpoint,
)
from bayesattn.system import commit, environment

NOT_COMPARED = ("command", "training.track")
"""Parts of a config that do not decide the result."""
Reader = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Run:
    """A run directory. `Run.create` begins one, `Run.open` finds one."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.checkpoints = folder / "checkpoints"

    @classmethod
    def create(
        cls, folder: Path | str, config: Mapping[str, Any], read: Reader | None = None
    ) -> Self:
        """Begin a run in an empty or new folder; in one with the same config, continue it.

        `read` brings configs, of which one may be of an older version, into a form to compare.
        """
        folder = Path(folder)
        plain = _plain(config)
        if (folder / "config.json").exists():
            run = cls.open(folder)
            run.require_same(plain, read)
            return run
        with files.writing(str(folder), "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            ours = ("environment.json", files.TEMPORARY, ".lock")  # of a creation that was killed
            names = [path.name for path in folder.iterdir()]
            if strangers := [name for name in names if not name.startswith(ours)]:
                raise RunError(
                    f"{folder} is not empty ({strangers[0]} is in it) and holds no run: "
                    "choose another folder."
                )
            threads = {"threads": torch.get_num_threads()}
            files.write_json(
                folder / "environment.json", {**environment(), "commit": commit(), **threads}
            )
            files.write_json(folder / "config.json", plain)  # last: with it, the run exists
        return cls(folder, plain)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        folder = Path(folder)
        try:
            return cls(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")))
        except OSError as error:
            raise RunError(
                f"There is no run in {folder} ({error.strerror}): name the folder that --out named "
                "when it was trained."
            ) from None
        except ValueError:
            raise DamagedRunError(f"config.json in {folder} is damaged: it is no JSON.") from None

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
        return json.loads((self.folder / "environment.json").read_text(encoding="utf-8"))

    @property
    def finished(self) -> dict[str, Any] | None:
        """step, stopped, metrics and seconds of a complete run, or None."""
        path = self.folder / "finished.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        """What was logged, in order of steps. A line that is being written is left out."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1]]  # after the last newline: nothing, or half

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
        """Those of the model at `step` or as it is now, averaged if the run keeps averages."""
        checkpoint = self.checkpoint(step)
        average = checkpoint.tensors("ema") if checkpoint.has("ema") else {}
        return {**checkpoint.tensors("model"), **average}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who writes here, and begin by removing what a killed writer left.

        The system releases the lock however the process ends.
        """
        try:
            lock = FileLock(self.folder / ".lock").acquire(timeout=0)
        except Timeout:
            raise RunError(
                f"Another process is training in {self.folder}: "
                "wait for it, or choose another folder."
            ) from None
        with lock:
            files.clean(self.folder)
            files.clean(self.checkpoints)
            yield

    @contextmanager
    def reading(self, kind: str) -> Iterator[None]:
        """Parts of the config are read in here; `kind` says what the run should be of."""
        try:
            yield
        except KeyError as error:
            raise RunError(f"The run in {self.folder} is not of a {kind}: no {error}.") from None
        except (TypeError, ValueError) as error:  # a field that no class here has
            raise RunError(
                f"The run in {self.folder} was made by another version of bayesattn, "
                f"{self.environment.get('bayesattn', 'an unknown one')} ({error}): use that one."
            ) from None

    def rewind(self, step: int) -> None:
        """Forget what was logged after `step`."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        if kept != lines:
            with self._writing("metrics.jsonl"):
                files.write_text(path, "".join(kept))

    def log(self, line: Mapping[str, Any]) -> None:
        """Append one line, which has a "step", to metrics.jsonl."""
        text = json.dumps(line, allow_nan=False) + "\n"
        with (
            self._writing("metrics.jsonl"),
            (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file,
        ):
            file.write(text)

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensors],
        state: Mapping[str, Any],
        keep: frozenset[int] = frozenset(),
    ) -> None:
        """Write the checkpoint of `step`; then remove old ones that are not to be kept."""
        with self._writing(f"the checkpoint of step {step}"):
            if (self.folder / "metrics.jsonl").exists():
                files.sync(self.folder / "metrics.jsonl")  # a checkpoint never knows more than it
            save_checkpoint(self.checkpoints, step, tensors, state)
            prune_checkpoints(self.checkpoints, keep)

    def finish(self, result: Mapping[str, Any]) -> None:
        with self._writing("finished.json"):
            files.write_json(self.folder / "finished.json", result)

    def _writing(self, what: str):
        steps = self.steps()
        kept = f"the checkpoint of step {steps[-1]} is kept" if steps else "nothing is saved yet"
        return files.writing(
            f"{what} in {self.folder}", f"{kept}, make room and run the same command again"
        )


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
