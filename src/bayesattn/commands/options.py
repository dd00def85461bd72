"""Types of options that commands share, and how KEY=VALUE is read."""

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from tyro.conf import Positional, arg

from bayesattn.errors import UserError

JsonTarget = Annotated[str | None, arg(metavar="FILE")]
Pairs = Annotated[tuple[str, ...], arg(metavar="KEY=VALUE")]
ModelName = Annotated[Positional[str], arg(metavar="MODEL")]
RunFolder = Annotated[Positional[str], arg(metavar="RUN")]


def parse_pairs(flag: str, pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE … as a dictionary; a value is JSON if it can be, else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"{flag} takes KEY=VALUE, not {pair!r}.")
        options[key] = _parsed(value)
    return options


def parse_known(words: Sequence[str], *options: str) -> dict[str, str | None]:
    """Values of those options among the words that decide which others there are."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for option in options:
        parser.add_argument(option, dest=option, nargs="?", const="")
    return vars(parser.parse_known_args(list(words))[0])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
