"""`bayesattn probe`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.probes.examination import Subject, examine
from bayesattn.probes.table import rows
from bayesattn.training import Run
from bayesattn.zoo import locate


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Look into a trained model: keys, attention, states, what it needs, how it came to be.

    Every number stands beside its nulls. Probes that mean nothing for a model say so, and the
    others go on.
    """

    folder: Annotated[Positional[str], arg(metavar="RUN")]
    """Folder of the run, or zoo:NAME; `bayesattn tunnel zoo` lists those."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="PAGE.html|FOLDER")] = Path("probe.html")
    """Page to write; or a folder for the page, its pictures and the numbers."""
    sequences: int = 256
    """Held-out sequences behind every number."""
    step: int | None = None
    """Checkpoint to look into; the last one if not given."""
    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write everything as JSON to this file ("-": standard output, no table)."""

    def run(self) -> int:
        """Look, print, draw."""
        with mistakes():
            self._check_targets()
            subject = Subject.load(Run.open(locate(self.folder)), self.step)
            with Console(stderr=True).status("") as status:
                found = examine(subject, sequences=self.sequences, tell=status.update)
        if self.json:
            write_json({"run": self.folder, **found.to_dict()}, self.json)
        if self.json != "-":
            print(f"{self._title(subject)}\n{self._subtitle(subject)}\n")
            show_rows(rows(found))
            for name, reason in found.skipped.items():
                print(f"\n{name}: {reason}.")
        from bayesattn.probes.page import write

        with mistakes():
            page = write(self.out, subject, found, self._title(subject), self._subtitle(subject))
        if self.json != "-":
            print(f"\nPage: {page}")
        return 0

    def _check_targets(self) -> None:
        """A page or a file that cannot be written is found out before the work, not after it."""
        targets = [] if self.json in (None, "-") else [Path(self.json)]
        for target in [*targets, self.out]:
            parent = target.parent
            if not parent.is_dir() or not os.access(parent, os.W_OK):
                raise ValueError(f"Cannot write {target}: {parent} is no folder to write in.")
        if self.out.suffix == ".html" and self.out.is_dir():
            raise ValueError(f"Cannot write {self.out}: it is a folder.")
        if self.out.suffix != ".html" and self.out.is_file():
            raise ValueError(f"--out is a page that ends in .html, or a folder, not {self.out}.")

    def _title(self, subject: Subject) -> str:
        kind = subject.model.architecture.name
        return f"{self.folder}: inside a model of {subject.tunnel.name} ({kind})"

    def _subtitle(self, subject: Subject) -> str:
        about = subject.about
        fields = (f"{name} {value}" for name, value in about["tunnel"].items() if name != "name")
        return (
            f"{about['parameters']:,} parameters after {about['step']:,} training steps · "
            f"{', '.join(fields)} · {self.sequences} held-out sequences"
        )
