"""What `bayesattn lm passkey` shows: a bar while it asks, then a table, also if it is stopped."""

from pathlib import Path
from typing import Self

from bayesattn.console import make_bar, show_rows
from bayesattn.evals.passkey import Passkey

SHOWN = 4
"""Lengths beside the bar, the last ones."""


class Sofar:
    """A bar for people; Ctrl-C shows what is known by then, and says how to go on."""

    def __init__(self, kept: Path | None) -> None:
        """Args: kept: where answers are kept; None if they are not."""
        self._bar = make_bar()
        self._task = self._bar.add_task("reading", total=1.0)
        self._kept, self._known = kept, None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def update(self, found: Passkey, share: float) -> None:
        """Show what is known, and how much of the work that was."""
        self._known = found
        lengths = found.by_length()[-SHOWN:]
        text = ", ".join(f"{cell.requested}: {cell.correct} of {cell.total}" for cell in lengths)
        self._bar.update(self._task, completed=share, description=text or "reading")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            if self._known is not None and self._known.cells:
                show_passkey(self._known)
            after = (
                "with --json FILE the same command would go on from here."
                if self._kept is None
                else f"what was answered is in {self._kept}, and the same command goes on."
            )
            raise KeyboardInterrupt(f"Stopped; {after}")


def show_passkey(found: Passkey) -> None:
    """Print a line per length, with a column per depth."""
    answers = "teacher-forced" if found.scoring == "teacher" else "generated"
    print(f"{found.model}, trained at {found.trained} tokens: {found.kind}, {answers} answers")
    depths = sorted({cell.depth for cell in found.cells})
    rows: list[dict[str, str]] = []
    for cell in found.by_length():
        here = {c.depth: f"{c.accuracy:.2g}" for c in found.cells if c.requested == cell.requested}
        rows.append(
            {
                "length": cell.requested,
                "tokens": f"{cell.length:,}",
                "retrieved": f"{cell.accuracy:.2f}",
                "95% from…to": f"{cell.interval.low:.2f}…{cell.interval.high:.2f}",
                "of": str(cell.total),
                **{f"at {depth:.0%}": here.get(depth, "") for depth in depths},
            }
        )
    show_rows(rows)
