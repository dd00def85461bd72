"""`bayesattn probe`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from bayesattn.commands.options import JsonTarget, RunFolder
from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.models.open import find, tunnel_run
from bayesattn.probes.examination import Subject, examine
from bayesattn.probes.table import rows
from bayesattn.probes.targets import check_targets


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Look into a trained model: keys, attention, states, what it needs, how it came to be.

    Every number stands beside its nulls. Probes that mean nothing for a model say so, and the
    others go on.
    """

    folder: RunFolder
    """Folder of the run, or zoo:NAME; `bayesattn tunnel zoo` lists those."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="PAGE.html|FOLDER")] = Path("probe.html")
    """Page to write; or a folder for the page, its pictures and the numbers."""
    sequences: int = 256
    """Held-out sequences behind every number."""
    step: int | None = None
    """Checkpoint to look into; the last one if not given."""
    json: JsonTarget = None
    """Write everything as JSON to this file ("-": standard output, no table)."""

    @staticmethod
    def options_for(words: Sequence[str]) -> type:
        """Those for a run of a tunnel if one is named, else those for a language model."""
        if any(map(_is_tunnel, words)):
            return Probe
        from bayesattn.commands.probe_language import ProbeModel

        return ProbeModel

    def run(self) -> int:
        """Look, print, draw."""
        with mistakes():
            check_targets(self.out, self.json)
            subject = Subject.load(tunnel_run(self.folder), self.step)
            with Console(stderr=True).status("") as status:
                found = examine(subject, sequences=self.sequences, tell=status.update)
        if self.json:
            write_json({"run": self.folder, **found.to_dict()}, self.json)
        if self.json != "-":
            print(f"{self._title(subject)}\n{self._subtitle(subject)}\n")
            show_rows(rows(found))
            for name, reason in found.skipped.items():
                print(f"\n{name}: {reason}.")
        from bayesattn.report.probe import write

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


def _is_tunnel(word: str) -> bool:
    """Whether a word of the command line is a run of a tunnel; what it is not is refused later."""
    try:
        return not word.startswith("-") and find(word).kind == "tunnel"
    except ValueError:
        return False
