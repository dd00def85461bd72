"""What commands of trainings read from the command line."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from bayesattn.errors import UserError


def parse_pairs(flag: str, pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE … as a dictionary; a value is JSON if it can be, else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"{flag} takes KEY=VALUE, not {pair!r}.")
        options[key] = _parsed(value)
    return options


def value_of(option: str, words: Sequence[str]) -> str | None:
    """What follows `option` among the words of a command line."""
    for index, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and index + 1 < len(words):
            return words[index + 1]
    return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
