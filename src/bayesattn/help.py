"""What `bayesattn COMMAND --help` prints, kept in help.txt: importing a command takes seconds.

    python -m bayesattn.help        write help.txt anew, after an option has changed

A test compares it with the commands.
"""

import contextlib
import io
import os
from pathlib import Path

from bayesattn.cli import COMMANDS, options

FILE = Path(__file__).with_name("help.txt")
WIDTH = 80
PAGE = "\f\n"
"""Between two commands."""


def kept(name: str) -> str | None:
    """Help of a command, None if there is none."""
    if not FILE.exists():
        return None
    pages = FILE.read_text(encoding="utf-8").split(PAGE)
    return dict(zip(COMMANDS, pages, strict=False)).get(name)


def written(name: str) -> str:
    """The same from the command itself."""
    text = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            options(name, ["--help"])
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


if __name__ == "__main__":
    FILE.write_text(PAGE.join(map(written, COMMANDS)), encoding="utf-8")
