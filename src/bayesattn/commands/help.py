"""Writes help.txt, which `bayesattn COMMAND --help` prints: importing a command takes seconds.

    python -m bayesattn.commands.help        after an option of a command has changed

A test compares the file with the commands.
"""

import contextlib
import io
import os
from unittest import mock

from bayesattn.commands.main import COMMANDS, options
from bayesattn.commands.quick import HELP_FILE, PAGE

WIDTH = 80


def written(name: str) -> str:
    """What a command says of itself."""
    text = io.StringIO()
    narrow = mock.patch.dict(os.environ, COLUMNS=str(WIDTH))
    with narrow, contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        options(name, ["--help"])
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


if __name__ == "__main__":
    HELP_FILE.write_text(PAGE.join(map(written, COMMANDS)), encoding="utf-8")
