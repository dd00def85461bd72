"""Numbers of the first edition's ledger, to be changed by tests of claims that still judge."""

import json
from pathlib import Path

from bayesattn.claims.registry import find_study

RECORDS = json.loads((Path(__file__).parents[2] / "results" / "ledger.json").read_text("utf-8"))[
    "records"
]


def recorded_results(name):
    """What each seed of a claim measured, as its dataclass."""
    numbers = {int(seed): own for seed, own in RECORDS[name]["numbers"].items()}
    return find_study(name).read(numbers)
