"""What commands share: types of options, how words are read, how an answer is given."""

import json
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, cast

from tyro.conf import Positional, arg

from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.errors import UserError


def optional(metavar: str, help: str | None = None, **more: Any) -> Any:
    """An option whose help says what happens without it, which "default: None" does not."""
    return arg(metavar=metavar, help=help, help_behavior_hint="", **more)


ModelName = Annotated[
    Positional[str],
    arg(
        metavar="MODEL",
        help="Folder of a run, zoo:NAME, folder of a Hugging Face model, .gguf or .safetensors "
        "file, installed package that carries a model, or name on the hub.",
    ),
]
RunFolder = Annotated[
    Positional[str],
    arg(metavar="RUN", help="Folder of a run, or zoo:NAME; `bayesattn tunnel zoo` lists those."),
]
Step = Annotated[int | None, optional("N", "Checkpoint of the run; the last one if not given.")]
JsonTarget = Annotated[
    str | None,
    optional(
        "FILE",
        'Write everything as JSON to this file, too ("-": to standard output, instead of tables).',
    ),
]
Count = Annotated[int | None, optional("N")]
File = Annotated[Path | None, optional("FILE")]
OutFile = Annotated[Path | None, optional("FILE", aliases=["-o", "--output"])]
PageTarget = arg(
    aliases=["-o"],
    metavar="PAGE.html|FOLDER",
    help="Page to write; or a folder for the page, its pictures and the numbers.",
)
Pairs = Annotated[tuple[str, ...], arg(metavar="KEY=VALUE")]

Rows = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Answer:
    """What a command has found."""

    data: Any
    """For programs: JSON."""
    shown: Sequence[str | Rows]
    """For people: lines and tables."""
    code: int = 0

    def give(self, target: str | None) -> int:
        """Write JSON to `target` if there is one; print the rest unless JSON was printed."""
        if target:
            write_json(self.data, target)
        if target != "-":
            for part in self.shown:
                print(part) if isinstance(part, str) else show_rows(part)
        return self.code


class Asking:
    """A command that finds something out. Its errors come from what was typed."""

    json: JsonTarget

    def typed(self, name: str) -> str:
        """The command that asks the same, without the files that it writes."""
        words: list[Any] = ["bayesattn", name]
        for field in fields(cast(Any, self)):
            value = getattr(self, field.name)
            if value == field.default or field.name in ("json", "out"):
                continue
            flag = (
                [] if field.name in ("model", "models") else [f"--{field.name.replace('_', '-')}"]
            )
            own = [] if value is True else value if isinstance(value, tuple) else [value]
            words += [*flag, *own]
        return shlex.join(map(str, words))

    def answer(self) -> Answer:
        raise NotImplementedError

    def run(self) -> int:
        with mistakes():
            return self.answer().give(self.json)


def parse_pairs(flag: str, pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE … as a dictionary; a value is JSON if it can be, else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"{flag} takes KEY=VALUE, not {pair!r}.")
        options[key] = _parsed(value)
    return options


def parse_deciding(words: Sequence[str], *options: str) -> dict[str, str | None]:
    """What decides which other options there are: these options, and the word before all options.

    Only commands whose options depend on what is asked for need this, in `options_for(words)`.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for option in options:
        names = dict.fromkeys((option, "--" + option[2:].replace("-", "_")))
        parser.add_argument(*names, dest=option, nargs="?", const="")
    known, _ = parser.parse_known_args(list(words))
    first = next(takewhile(lambda word: not word.startswith("-"), words), None)
    return {"first": first, **vars(known)}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
