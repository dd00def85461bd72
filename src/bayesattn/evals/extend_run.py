"""`bayesattn extend` from the diagnosis to the recommendation, in pieces that are stored.

The folder has

    settings.json            settings of the measurement; other settings are refused
    work/NAME.safetensors    each finished piece of the work
    WAY/extension.json       every way, for `load_extension`
    extension.json           the recommended way
    report.json              all numbers
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesattn import files
from bayesattn.attention import HeadTemperature
from bayesattn.errors import UserError
from bayesattn.evals.extend import (
    PER_WINDOW,
    WINDOWS,
    Measured,
    Planted,
    Reading,
    fits,
    kept,
    needed,
    plant,
    read_text,
    recommend,
)
from bayesattn.evals.passkey import identity_of
from bayesattn.evals.perplexity import any_text
from bayesattn.models.extend import AS_IS, Extension, check_extendable, load_extension, parse_way
from bayesattn.models.extend_fit import (
    Diagnosis,
    diagnose,
    distil,
    entropy_law,
    log_temperature,
    one_log_temperature,
    targets_of,
)
from bayesattn.models.open import LanguageModel
from bayesattn.models.retrofit import prior_state_dict
from bayesattn.system import GIBIBYTE, free_memory


@dataclass(frozen=True)
class Settings:
    """Settings that determine every number."""

    to: int
    lengths: list[int]
    source: str
    """Source of the text."""
    texts: int
    """Number of texts for measuring."""
    fit_texts: int
    """Number of other texts, for diagnosis and fitting."""
    needles: int
    seed: int


Open = Callable[[], LanguageModel]
Tell = Callable[[str], None]


class Extending:
    """The extension of one model, step by step.

    Args:
        opening: opens the original model again at each call.
        settings: of the measurement.
        memory: bytes that reading may take beyond the model.
        folder: for all results; None stores nothing.
        tell: called with a description of the present work.
    """

    def __init__(
        self, opening: Open, settings: Settings, memory: int, folder: Path | None, tell: Tell
    ) -> None:
        self.opening, self.settings, self.memory = opening, settings, memory
        self.folder, self.tell = folder, tell
        tell("loading")
        opened = self.opened = opening()
        model, self.trained = opened.model, opened.length
        check_extendable(model)
        if settings.to <= self.trained:
            raise UserError(
                f"{opened.name} reads {self.trained:,} tokens as it is: choose --to beyond that, "
                "such as 2x."
            )
        self._check_room()
        tell("reading text")
        count = settings.texts + settings.fit_texts
        found = any_text(settings.source, opened.tokenizer, settings.to - 1, count)
        if len(found) < count:
            raise UserError(
                f"The text of {settings.source} gives {len(found)} pieces of {settings.to:,} "
                f"tokens, and {count} are needed: give more text, or fewer --texts."
            )
        self.to_fit = list(found[: settings.fit_texts])
        self.planted: list[Planted] = [
            plant(opened.tokenizer, text, settings.needles, settings.seed + number)
            for number, text in enumerate(found[settings.fit_texts :])
        ]
        self._work: Path | None = None
        if folder is not None:
            self._work = folder / "work"
            with files.writing(str(folder), "choose another folder"):
                self._work.mkdir(parents=True, exist_ok=True)
            self._require_same_settings(folder / "settings.json")

    def _check_room(self) -> None:
        """Refuse work that needs more memory or disk than is free."""
        model, to = self.opened.model, self.settings.to
        allowed = min(self.memory, free_memory(str(model.device)))
        if needed(model, to) > allowed:
            most = fits(model, self.trained, allowed)
            what = f"{most:,} tokens fit" if most > self.trained else "nothing beyond that fits"
            raise UserError(
                f"Reading {to:,} tokens takes {needed(model, to) / GIBIBYTE:.1f} GiB beyond the "
                f"model, and {allowed / GIBIBYTE:.1f} are free or allowed: {what}; see --memory."
            )
        if self.folder is not None:
            place = next(
                x for x in (self.folder.absolute(), *self.folder.absolute().parents) if x.exists()
            )
            vocabulary = model.config.get_text_config(decoder=True).vocab_size
            bytes_kept = 2 * WINDOWS * PER_WINDOW * vocabulary * self.settings.texts
            if (free := shutil.disk_usage(place).free) < bytes_kept:
                raise UserError(
                    f"{self.folder} needs {bytes_kept / GIBIBYTE:.1f} GiB of disk meanwhile, and "
                    f"{free / GIBIBYTE:.1f} are free: make room, or choose another folder."
                )

    def _require_same_settings(self, path: Path) -> None:
        model = self.opened.model
        settings = {**asdict(self.settings), "trained": self.trained}
        settings |= {"model": self.opened.name, "identity": identity_of(model)}
        settings |= {"dtype": str(model.dtype).removeprefix("torch.")}
        if path.exists():
            before: Any = files.read_json(path)
            other = [name for name in settings if before.get(name) != settings[name]]
            if other:
                was = ", ".join(f"{name} {before.get(name)!r}" for name in other)
                raise UserError(
                    f"{path.parent} holds a measurement with {was}: choose another --out."
                )
        with files.writing(str(path), "choose another folder"):
            files.write_json(path, settings, checked=True)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        def make() -> tuple[dict[str, Tensor], Any]:
            self.tell("looking at every head")
            found = diagnose(self.opened.model, self.to_fit, self.trained)
            tensors = {name: getattr(found, name) for name in ("rows", "entropies", "factors")}
            return tensors, found.windowed

        tensors, windowed = kept(self._work, "diagnosis", make)
        return Diagnosis(self.trained, windowed=windowed, **tensors)

    def extended(self, way: str) -> LanguageModel:
        """The model with a way, fitted if the way has a fit."""
        if way == AS_IS:
            return self.opened
        assert self.folder is not None
        opened, place = self.opening(), self.folder / way
        if (place / "extension.json").exists():
            load_extension(opened.model, place)
            return opened
        extension = Extension(way, self.trained, self.settings.to)
        if extension.fit == "log-temperature":
            factors, rows = self._factors(extension.base)
            scale = one_log_temperature(factors, rows, self.trained)
            extension = Extension(way, self.trained, self.settings.to, scale)
        extension.apply(opened.model)
        if extension.fit == "temperatures":
            fitted = log_temperature(*self._factors(extension.base), self.trained)
            modules = [m for m in opened.model.modules() if isinstance(m, HeadTemperature)]
            with torch.no_grad():
                for module, own in zip(modules, fitted, strict=True):
                    module.scale.copy_(own)
        elif extension.fit == "priors":
            self._distil(way, opened)
        extension.save(opened.model, place)
        return opened

    def _factors(self, base: str | None) -> tuple[Tensor, Tensor]:
        """Factors that give heads the entropy of their law, and their rows."""
        found = self.diagnosis
        beyond = found.rows >= self.trained
        if base is None:
            return found.factors, found.rows[beyond]
        log_n = (found.rows + 1.0).log()
        laws = entropy_law(found.entropies.mean(0), log_n, ~beyond)

        def make() -> tuple[dict[str, Tensor], Any]:
            self.tell(f"{base}: looking at every head")
            opened = self.opening()
            Extension(base, self.trained, self.settings.to).apply(opened.model)
            return {"factors": diagnose(opened.model, self.to_fit, self.trained, laws).factors}, {}

        return kept(self._work, f"factors-{base}", make)[0]["factors"], found.rows[beyond]

    def _distil(self, way: str, opened: LanguageModel) -> None:
        own = prior_state_dict(opened.model)
        for number, text in enumerate(self.to_fit):

            def target(text: Tensor = text) -> tuple[dict[str, Tensor], Any]:
                self.tell("what the model's layers give within its length")
                rows, found = targets_of(self.opened.model, text, self.trained)
                return {"rows": rows, **{str(layer): x for layer, x in enumerate(found)}}, {}

            def fit(text: Tensor = text, number: int = number) -> tuple[dict[str, Tensor], Any]:
                tensors, _ = kept(self._work, f"targets-{number}", target)
                rows = tensors.pop("rows")
                self.tell(f"{way}: distilling, text {number + 1} of {len(self.to_fit)}")
                targets = [tensors[str(layer)] for layer in range(len(tensors))]
                losses = distil(opened.model, text, rows, targets)
                return prior_state_dict(opened.model), losses

            fitted, _ = kept(self._work, f"fit-{way}-{number}", fit)
            with torch.no_grad():
                for name, value in own.items():
                    value.copy_(fitted[name])

    def measure(self, ways: Sequence[str]) -> list[Measured]:
        """Every way on every text, and the unchanged model."""
        ways = list(dict.fromkeys((AS_IS, *ways)))
        readings: dict[str, list[Reading]] = {way: [] for way in ways}
        for number in range(len(self.planted)):
            for way in ways:
                readings[way].append(self._read(way, number))
        scored = [text.scored for text in self.planted]
        lengths = self.settings.lengths
        return [Measured(way, self.trained, lengths, readings[way], scored) for way in ways]

    def _read(self, way: str, number: int) -> Reading:
        text, told = self.planted[number], f"text {number + 1} of {len(self.planted)}"

        def read(original: Tensor | None) -> tuple[Reading, Tensor]:
            opened = self.extended(way)
            self.tell(f"{way}: reading {told}")
            return read_text(opened, text, self.settings.lengths, self.memory, original)

        def original() -> tuple[dict[str, Tensor], Any]:
            self.tell(f"{AS_IS}: reading {told}")
            settings = (self.settings.lengths, self.memory)
            return {"log_p": read_text(self.opened, text, *settings)[1]}, {}

        def make() -> tuple[dict[str, Tensor], Any]:
            if way == AS_IS:
                found, log_p = read(None)
                kept(self._work, f"original-{number}", lambda: ({"log_p": log_p}, {}))
            else:
                log_p = kept(self._work, f"original-{number}", original)[0]["log_p"]
                found, _ = read(log_p)
            right = {str(length): answers for length, answers in found.right.items()}
            return {"losses": found.losses, "lost": found.lost}, right

        tensors, right = kept(self._work, f"read-{way}-{number}", make)
        return Reading({int(n): answers for n, answers in right.items()}, **tensors)

    def finish(self, measured: Sequence[Measured], more: dict[str, Any]) -> dict[str, Any]:
        """Copy the recommended way to the top of the folder, and write the report."""
        assert self.folder is not None and self._work is not None
        way, why = recommend(measured)
        report = {
            "model": self.opened.name,
            "trained": self.trained,
            **asdict(self.settings),
            "recommended": way,
            "why": why,
            "ways": [m.to_json() for m in measured],
            **more,
        }
        with files.writing(str(self.folder), "make room"):
            for name in ("extension.safetensors", "extension.json"):
                (self.folder / name).unlink(missing_ok=True)
            if way is not None:
                for name in ("extension.safetensors", "extension.json"):
                    if (self.folder / way / name).exists():
                        shutil.copy2(self.folder / way / name, self.folder / name)
            files.write_json(self.folder / "report.json", report)
            for path in self._work.glob("original-*"):
                path.unlink()
        return report


def check_ways(words: str) -> list[str]:
    ways = [word.strip() for word in words.split(",") if word.strip()]
    if not ways:
        raise ValueError("name at least one way, such as yarn,temperatures")
    for way in ways:
        parse_way(way)
    return ways
