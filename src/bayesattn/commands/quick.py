"""What is refused before torch is imported: options, values and names that are not there.

help.txt says what each command takes, so nothing is said twice. What depends on more than words is
refused later, by the command itself.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bayesattn import plugins
from bayesattn.commands.names import CHECKS, check_value, require_ledger
from bayesattn.errors import UserError

HELP_FILE = Path(__file__).with_name("help.txt")
"""Written by `help.py`: a page for each command."""
PAGE = "\f\n"
"""Between two pages."""
PACKAGE = Path(__file__).parent.parent
KINDS = {"INT": int, "N": int, "FLOAT": float, "GIB": float, "MINUTES": float, "SHARE": float}
"""What the value of an option must read as, by what help calls it."""
FIELDS = {"tunnel train": ("tunnels/*.py", "models/architectures/*.py")}
"""Where further options come from, which depend on what is asked for."""
RESUME = "--resume"
"""With this a command has other options."""
FORMER_RECIPES = {
    "small": "trained the tiny model for longer and is called 'tiny-long' now; sizes are --size",
}
"""Recipes of `lm train` that have another name now."""
NO_OUT = "Say where the run is to be written: --out RUN."
CHOICES = {
    "lm train": "recipe",
    "tunnel train": "tunnel",
    "prior draw": "prior",
    "cost": "size",
}
"""What the first word of a command is one of."""


class Takes(NamedTuple):
    """What a command takes, by its help."""

    options: dict[str, str]
    """What follows each option, in the words of help; nothing follows a switch."""
    names: list[tuple[str, bool]]
    """What each further word is, and whether it must be there."""


@cache
def pages() -> dict[str, str]:
    """The page of each command."""
    found: dict[str, str] = {}
    for page in HELP_FILE.read_text(encoding="utf-8").split(PAGE):
        words = page.partition("[-h]")[0].split()
        found[" ".join(words[2:])] = page
    return found


@cache
def takes(name: str) -> Takes:
    page = pages()[name]
    options: dict[str, str] = {}
    for line in re.findall(r"^  (-.*?)(?:  |$)", page, re.MULTILINE):
        for own in line.split(", "):
            flag, _, value = own.partition(" ")
            options[flag] = value
    listed = page.partition("positional arguments")[2].partition("\n options")[0]
    lines = re.findall(r"^  (\S.*?)(?:  +|\n)((?:.|\n   )*)", listed, re.MULTILINE)
    return Takes(options, [(own, "(required)" in said) for own, said in lines])


def refuse(name: str, words: Sequence[str], former: Mapping[str, str]) -> None:
    """Raise the one sentence that says what is wrong with the words of a command, if one can."""
    for word in words:
        flag = _flag(word)
        if flag in former:
            raise UserError(f"The option {flag} {former[flag]}: `bayesattn {name} --help`.")
    flags = {_flag(word) for word in words}
    if {"-h", "--help"} & flags:
        return
    if RESUME in flags:
        for word, value in pairwise([*words, ""]):
            flag, _, own = word.partition("=")
            if flag == RESUME:
                check_value(flag, "RUN", own or value)
        return
    known = takes(name)
    given, plain = _split(name, known, words)
    for flag, values in given:
        for value in values:
            takes_some = known.options.get(flag, "")
            _check_value(flag, takes_some, value)
            check_value(flag, takes_some, value)
    _check_names(name, known, plain)
    if name in ("lm train", "tunnel train") and "--out" not in flags:
        raise UserError(NO_OUT)
    if name == "demo" and "--all" not in flags and flags & {"--only", "--skip", "--seeds"}:
        raise UserError("--only, --skip and --seeds choose among claims: pass --all, too.")
    if name == "report" and not plain:
        require_ledger(Path("report"))


def names(name: str, words: Sequence[str]) -> list[str]:
    """The words of a command that belong to no option."""
    return _split(name, takes(name), words)[1]


def _flag(word: str) -> str:
    return word.partition("=")[0].replace("_", "-") if word.startswith("--") else word


def _split(
    name: str, known: Takes, words: Sequence[str]
) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Options with their values, and the other words."""
    given: list[tuple[str, list[str]]] = []
    plain: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":  # whatever follows is a name
            plain += rest
            break
        if not word.startswith("-") or word == "-" or re.fullmatch(r"-[\d.].*", word):
            plain.append(word)
            continue
        flag = _flag(word)
        if flag not in known.options and not _of_field(name, flag):
            near = difflib.get_close_matches(flag, known.options, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UserError(
                f"`bayesattn {name}` has no option {flag}: {hint}`bayesattn {name} --help` lists "
                "them."
            )
        takes_some = known.options.get(flag, "?")
        values = [word.partition("=")[2]] if "=" in word else []
        if not values and takes_some:
            several = " " in takes_some or "=" in takes_some or takes_some == "?"
            while rest and (several or not values) and not rest[0].startswith("--"):
                values.append(rest.pop(0))
            if not values and takes_some != "?" and not several:
                raise UserError(f"The option {flag} needs a value: {flag} {takes_some}.")
        given.append((flag, values))
    return given, plain


def _of_field(name: str, flag: str) -> bool:
    """Whether an option comes from a field of what the command makes."""
    field = flag.removeprefix("--no-").removeprefix("--").rpartition(".")[2].replace("-", "_")
    paths = (path for pattern in FIELDS.get(name, ()) for path in PACKAGE.glob(pattern))
    wanted = re.compile(rf"^    {re.escape(field)}: ", re.MULTILINE)
    return any(wanted.search(path.read_text(encoding="utf-8")) for path in paths)


def _check_value(flag: str, takes_some: str, value: str) -> None:
    choices = takes_some.strip("{}").replace(",", "|").split("|")
    if len(choices) > 1 and all(re.fullmatch(r"None|[a-z0-9-]+", own) for own in choices):
        if value not in choices:
            near = difflib.get_close_matches(value, choices, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            said = f"{hint}choose one of {', '.join(choices)}."
            raise UserError(f"There is no {flag.lstrip('-')} {value!r}: {said}")
    elif kind := KINDS.get(takes_some.removeprefix("{None}|")):
        try:
            kind(value)
        except ValueError:
            if value != "None":
                what = "a whole number" if kind is int else "a number"
                raise UserError(f"{flag} takes {what}, not {value!r}.") from None


def _check_names(name: str, known: Takes, plain: Sequence[str]) -> None:
    wanted = [(own, must) for own, must in known.names if own.strip("[]. ")]
    missing = [own for own, must in wanted if must][len(plain) :]
    if missing:
        raise UserError(f"`bayesattn {name}` needs {missing[0]}: `bayesattn {name} --help`.")
    several = any("..." in own or own == "MODEL" for own, _ in wanted)
    if len(plain) > len(wanted) and not several:
        raise UserError(
            f"`bayesattn {name}` does not know what {plain[len(wanted)]!r} is: "
            f"`bayesattn {name} --help`."
        )
    for at, word in enumerate(plain):
        own, _ = wanted[min(at, len(wanted) - 1)]
        kind = own.strip("[]").split(" ")[0]
        if name == "lm train" and word in FORMER_RECIPES:
            raise UserError(f"The recipe {word!r} {FORMER_RECIPES[word]}.")
        if "|" in kind and not plugins.extended():
            _check_value(CHOICES.get(name, name), kind, word)
        elif (check := CHECKS.get((name, kind), CHECKS.get(("", kind)))) is not None:
            check(word)
