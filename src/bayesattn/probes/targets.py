"""Where results of a probe go."""

import os
from pathlib import Path


def check_targets(out: Path, json: str | None) -> None:
    """A page or a file that cannot be written is found out before the work, not after it."""
    targets = [] if json in (None, "-") else [Path(json)]
    for target in [*targets, out]:
        parent = target.parent
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ValueError(f"Cannot write {target}: {parent} is no folder to write in.")
    if out.suffix == ".html" and out.is_dir():
        raise ValueError(f"Cannot write {out}: it is a folder.")
    if out.suffix != ".html" and out.is_file():
        raise ValueError(f"--out is a page that ends in .html, or a folder, not {out}.")
