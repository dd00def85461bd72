"""`bayesattn tunnel zoo`."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from bayesattn.console import show_rows, write_json
from bayesattn.zoo import PREFIX, Entry, entry, names


@dataclass(frozen=True, kw_only=True)
class Zoo:
    """List the trained models that come with bayesattn; use zoo:NAME where a RUN is asked for."""

    json: Annotated[str | None, arg(metavar="FILE")] = None
    """Write JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Print the models."""
        entries = [entry(name) for name in names()]
        if self.json:
            write_json([found._asdict() for found in entries], self.json)
        if self.json != "-":
            show_rows([_row(found) for found in entries])
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
