"""The tutorial as a notebook: `python docs/notebook.py` writes tutorial.ipynb from tutorial.md.

A cell for each block of text, shell or Python. A test compares the two files.
"""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE, NOTEBOOK = FOLDER / "tutorial.md", FOLDER / "tutorial.ipynb"


def blocks(text: str) -> list[tuple[str, str]]:
    """Kind and content, in order: python, sh, or markdown for all that is between."""
    parts = re.split(r"```(python|sh)\n(.*?)```\n", text, flags=re.DOTALL)
    found = [("markdown", parts[0])]
    for at in range(1, len(parts), 3):
        found += [(parts[at], parts[at + 1]), ("markdown", parts[at + 2])]
    return [(kind, own.strip()) for kind, own in found if own.strip()]


def notebook(text: str) -> dict[str, Any]:
    cells: list[dict[str, Any]] = []
    for kind, own in blocks(text):
        lines = [f"!{line}" for line in own.splitlines()] if kind == "sh" else own.splitlines()
        cell: dict[str, Any] = {"id": f"cell-{len(cells)}", "metadata": {}}
        cell["source"] = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
        cell["cell_type"] = "markdown" if kind == "markdown" else "code"
        if kind != "markdown":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def written() -> str:
    made = notebook(PAGE.read_text(encoding="utf-8"))
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(written(), encoding="utf-8")
