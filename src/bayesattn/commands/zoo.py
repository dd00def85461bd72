"""`bayesattn tunnel zoo` and `bayesattn lm zoo`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bayesattn.commands.options import Answer, Asking, JsonTarget, Rows
from bayesattn.zoo import LANGUAGE, PREFIX, Entry, LanguageEntry, entry, language_entry, names


@dataclass(frozen=True, kw_only=True)
class Zoo(Asking):
    """List the trained models that come with bayesattn; use zoo:NAME where a RUN is asked for."""

    json: JsonTarget = None

    def answer(self) -> Answer:
        entries = [entry(name) for name in names()]
        return _listed(entries, [_row(one) for one in entries])


@dataclass(frozen=True, kw_only=True)
class LanguageZoo(Asking):
    """List the language models that come with bayesattn; zoo:NAME names one as a MODEL."""

    json: JsonTarget = None

    def answer(self) -> Answer:
        entries = [language_entry(name) for name in names(LANGUAGE)]
        return _listed(entries, [_language_row(one) for one in entries])


def _listed(entries: Sequence[Entry | LanguageEntry], rows: Rows) -> Answer:
    trained = [f"  {PREFIX}{one.name:24} {one.command}" for one in entries]
    return Answer([one._asdict() for one in entries], [rows, "\nTrained by:", *trained])


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
