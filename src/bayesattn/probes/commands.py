"""`bayesattn probe`."""

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.probes.examination import Subject, examine
from bayesattn.probes.table import rows
from bayesattn.probes.targets import check_targets
from bayesattn.training import Run
from bayesattn.zoo import PREFIX, locate


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

    @staticmethod
    def options_for(words: Sequence[str]) -> type:
        """Those for a run if one is named, else those for a language model."""
        if any(map(_is_run, words)):
            return Probe
        from bayesattn.probes.llm.commands import ProbeModel

        return ProbeModel

    def run(self) -> int:
        """Look, print, draw."""
        with mistakes():
            check_targets(self.out, self.json)
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


def _is_run(word: str) -> bool:
    """Whether a word of the command line is a run, and no model of Hugging Face."""
    if word.startswith(PREFIX):
        return True
    config = Path(word) / "config.json"
    try:
        return "model_type" not in json_format.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
