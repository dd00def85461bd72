"""`bayesattn tunnel zoo` and `bayesattn lm zoo`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bayesattn.commands.options import JsonTarget
from bayesattn.console import show_rows, write_json
from bayesattn.zoo import LANGUAGE, PREFIX, Entry, LanguageEntry, entry, language_entry, names

Known = TypeVar("Known", Entry, LanguageEntry)


@dataclass(frozen=True, kw_only=True)
class Zoo:
    """List the trained models that come with bayesattn; use zoo:NAME where a RUN is asked for."""

    json: JsonTarget = None
    """Write JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Print the models."""
        return _show([entry(name) for name in names()], _row, self.json)


@dataclass(frozen=True, kw_only=True)
class LanguageZoo:
    """List the language models that come with bayesattn; zoo:NAME names one as a MODEL."""

    json: JsonTarget = None
    """Write JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Print the models."""
        return _show([language_entry(name) for name in names(LANGUAGE)], _language_row, self.json)


def _show(
    entries: Sequence[Known], row: Callable[[Known], dict[str, str]], json: str | None
) -> int:
    if json:
        write_json([found._asdict() for found in entries], json)
    if json != "-":
        show_rows([row(found) for found in entries])
        print("\nTrained by:")
        for found in entries:
            print(f"  {PREFIX}{found.name:24} {found.command}")
    return 0


def _row(found: Entry) -> dict[str, str]:
    errors = {row["part"]: row for row in found.fidelity if row["predictor"] == "model"}
    uniform = {row["part"]: row for row in found.fidelity if row["predictor"] == "uniform"}
    return {
        "run": f"{PREFIX}{found.name}",
        "parameters": f"{found.parameters:,}",
        "mae_tok inside": f"{errors['inside']['mae_tok']:.4f}",
        "beyond": f"{errors['beyond']['mae_tok']:.4f}" if "beyond" in errors else "",
        "uniform": f"{uniform['inside']['mae_tok']:.4f}",
        "kl inside": f"{errors['inside']['kl']:.5f}",
        "seconds": f"{found.seconds:.0f}",
    }


def _language_row(found: LanguageEntry) -> dict[str, str]:
    passkeys = {
        f"found at {row['requested']}": f"{row['correct']} of {row['total']}"
        for row in found.lengths
    }
    return {
        "model": f"{PREFIX}{found.name}",
        "parameters": f"{found.parameters:,}",
        "trained at": f"{found.trained} tokens",
        **passkeys,
        "seconds": f"{found.seconds:.0f}",
    }
