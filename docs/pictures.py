"""Makes the pictures of gallery.md by the commands that stand there: `python docs/pictures.py`."""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER / "gallery.md"


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """Each command that has pictures below it, and their names."""
    text = PAGE.read_text(encoding="utf-8")
    for section in re.split(r"\n(?=\*\*|## )", text):
        typed = re.findall(r"^    (\S.*)$", section, re.MULTILINE)
        names = re.findall(r"\]\(images/(.*?)\)", section)
        if typed and names:
            yield shlex.split(typed[0]), names


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        for words, names in commands():
            first, *rest = words
            call = [sys.executable, *(["-m", "bayesattn"] if first == "bayesattn" else [])]
            call += [str(FOLDER.parent / w) if w.startswith("examples/") else w for w in rest]
            subprocess.run(call, cwd=place, check=True)
            for name in names:
                (made,) = Path(place).rglob(name)
                shutil.copy(made, FOLDER / "images" / name)
                print(FOLDER / "images" / name)


if __name__ == "__main__":
    main()
