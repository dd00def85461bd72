"""The command line. Only the chosen command is imported, and for `--help` not even that one.

A command is a dataclass, whose fields tyro turns into options, with `run() -> exit code`.
"""

import difflib
import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NamedTuple

from bayesattn import plugins
from bayesattn.commands import quick


class Command(NamedTuple):
    """In which file of this folder a command lives, and what it does in one line."""

    target: str
    help: str


COMMANDS = {
    "demo": Command("demo:Demo", "train, look inside and test, in minutes, and show it on a page"),
    "claims list": Command("claims:List", "list the claims"),
    "claims run": Command("claims:Run", "measure claims into a ledger"),
    "claims bank": Command("bank:Bank", "list or train the models that claims share"),
    "claims add": Command("claims:Add", "add seeds that were measured elsewhere"),
    "claims show": Command("claims:Show", "show a claim and its verdict"),
    "report": Command("report:Report", "write a ledger as one page"),
    "prior draw": Command("report:DrawPrior", "draw a prior to a file"),
    "tunnel train": Command("train:TunnelTrain", "train a model on a task with an exact posterior"),
    "tunnel fidelity": Command(
        "tunnel:TunnelFidelity", "measure a run against the exact posterior"
    ),
    "tunnel show": Command("tunnel:TunnelShow", "draw a run's beliefs"),
    "tunnel zoo": Command("zoo:Zoo", "list the trained models that come along"),
    "probe": Command("probe:Probe", "look into a trained model"),
    "bayes": Command("bayes:Bayes", "say whether a model is Bayesian, and where its belief lives"),
    "sula": Command("sula:Sula", "compare a language model with exact Bayes in context"),
    "extend": Command("extend:Extend", "give a language model a longer context, and prove it"),
    "lm train": Command("train:LanguageTrain", "train a language model"),
    "lm generate": Command("lm:LanguageGenerate", "let a model continue a text"),
    "lm export": Command("lm:LanguageExport", "write a model for Hugging Face"),
    "lm passkey": Command("lm_measure:LanguagePasskey", "measure retrieval by length and depth"),
    "lm ruler": Command("ruler:LanguageRuler", "measure thirteen tasks of long contexts"),
    "lm perplexity": Command("lm_measure:LanguagePerplexity", "measure perplexity by position"),
    "lm harness": Command("lm:LanguageHarness", "run tasks of lm-eval"),
    "lm priors": Command("lm:LanguagePriors", "show what each head's prior has learnt"),
    "lm zoo": Command("zoo:LanguageZoo", "list the language models that come along"),
    "check-prior": Command("check:CheckPrior", "check a prior of your own"),
    "cost": Command("cost:CostCommand", "predict what training a model needs"),
}
FORMER_GROUPS = {
    "study": ("bayesattn claims", ""),
    "bench": ("python -m benchmarks", ", from a clone of the repository"),
}
"""What groups of commands of the first edition are called now."""
_CHOICES = {
    "--window": "is now --sliding-window",
    "--kv-heads": "is now --num-key-value-heads",
    "--inner": "is now --intermediate-size",
    "--experts": "is now --num-experts",
    "--max-positions": "is now --max-position-embeddings",
    "--exempt-header": "is now `--exempt header`",
}
FORMER_OPTIONS = {
    "tunnel train": _CHOICES,
    "lm train": _CHOICES,
    "demo": {"--budget": "is gone; leave claims out with --all --skip"},
    "claims run": {"--budget": "is gone; leave claims out with --skip"},
    "sula": {
        "--cut": "is gone: `bayesattn bayes` shows what cuts do; --layer still names one",
        "--axes": "is gone: `bayesattn bayes` draws its own; --layer still names one",
    },
}
"""What has become of the first edition's options."""
HELP = ("-h", "--help", "help")
PEEKING = ("probe", "sula", "bayes", "extend")
"""Commands that load a model, which takes a while, and say first what it is."""
NO_PLACE = {errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EPERM, errno.EROFS}
"""Errors of disks that are no mistake of the program, wherever it was writing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code is 2 after a mistake in what was typed."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in HELP:
        print(_overview())
        return 0
    if words[0] == "--version":
        from bayesattn import __version__

        print(f"bayesattn {__version__}")
        return 0
    warnings.formatwarning = lambda message, *_, **__: f"{message}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may lack ✓: that is no reason to stop
            stream.reconfigure(errors="replace")
    try:
        with stopping():
            return _run(words)
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print(str(stop) or "Stopped.", file=sys.stderr)
        return 130
    except Exception as error:
        from bayesattn.errors import UserError, missing_extra

        if isinstance(error, ImportError):
            error = missing_extra(error) or error
        error = _no_room(error) or _no_name(error) or error
        if not isinstance(error, UserError) or os.environ.get("BAYESATTN_DEBUG") == "1":
            raise error
        print(f"bayesattn: {error}", file=sys.stderr)
        return 2


def _no_room(error: Exception) -> Exception | None:
    """A sentence where a disk or the memory is full, wherever that happened; None elsewhere."""
    from bayesattn.errors import UserError

    if isinstance(error, OSError) and error.errno in NO_PLACE:
        what = error.filename or "a file"
        return UserError(f"Cannot write {what} ({error.strerror}): choose another place.")
    # torch has no class of its own for the memory of a CPU
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return UserError("There is not enough memory for this: choose smaller sizes.")
    return None


def _no_name(error: Exception) -> Exception | None:
    """A sentence about words that no file can have as its name; None elsewhere."""
    from bayesattn.errors import UserError

    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        start = ascii(str(error.filename))[:40]
        return UserError(f"{start}… is longer than the name of a file can be: choose another.")
    if isinstance(error, UnicodeEncodeError):
        return UserError(f"{error.object[error.start]!a} is no character: leave it out.")
    return None


@contextmanager
def stopping() -> Iterator[None]:
    """SIGTERM, and SIGHUP unless it is ignored, stop a command as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(words: list[str]) -> int:
    depth = 1 if words[0] in COMMANDS else 2
    name = " ".join(words[:depth])
    if name not in COMMANDS:
        asks = len(words) == 1 or words[1] in HELP
        if asks and any(known.startswith(f"{words[0]} ") for known in COMMANDS):
            print(_overview(f"{words[0]} "))
            return 0
        raise _unknown(name, words[0])
    rest, files = plugins.taken(words[depth:])
    if rest in (["-h"], ["--help"]) and quick.HELP_FILE.exists():
        print(quick.pages()[name], end="")
        return 0
    plugins.announce(files)
    if quick.HELP_FILE.exists():
        quick.refuse(name, rest, FORMER_OPTIONS.get(name, {}))
        if name in PEEKING and not set(rest) & set(HELP):
            from bayesattn.commands.peek import peek

            for line in peek(quick.names(name, rest)):
                print(line, file=sys.stderr, flush=True)
    plugins.load()
    return options(name, rest).run()


def options(name: str, words: list[str]) -> Any:
    """The command `name` with the options in `words`."""
    import tyro

    from bayesattn.console import mistakes

    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(import_module(f"bayesattn.commands.{module}"), attribute)
    # One flag per switch: --all and --no-open, not --all/--no-all.
    config: tuple[Any, ...] = (tyro.conf.FlagCreatePairsOff,)
    if hasattr(command, "options_for"):  # some options depend on what is asked for
        command = command.options_for(words)
        config = ()  # so does what a switch is without its flag: --ssmax/--no-ssmax
    with mistakes():  # what the fields of a command refuse
        return tyro.cli(command, prog=f"bayesattn {name}", args=words, config=config)


def _unknown(name: str, first: str) -> Exception:
    from bayesattn.errors import UserError

    if first in FORMER_GROUPS:
        now, where = FORMER_GROUPS[first]
        return UserError(f"`bayesattn {name}` is now `{now}{name.removeprefix(first)}`{where}.")
    near = [*difflib.get_close_matches(name, COMMANDS), *difflib.get_close_matches(first, COMMANDS)]
    hint = f"did you mean `bayesattn {near[0]}`?" if near else "`bayesattn --help` lists them."
    return UserError(f"There is no command {name!r}: {hint}")


def _overview(group: str = "") -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [
        f"  {name:{width}}{command.help}"
        for name, command in COMMANDS.items()
        if name.startswith(group)
    ]
    return "\n".join(
        [
            f"usage: bayesattn {group}COMMAND [OPTIONS]",
            "",
            "Attention is a posterior: build it, test it against exact Bayes, look inside it.",
            "",
            "commands:",
            *lines,
            "",
            "`bayesattn COMMAND --help` explains one; `bayesattn --version` tells the version.",
            "Every command takes --import FILE.py: priors, tunnels and claims of your own.",
        ]
    )
