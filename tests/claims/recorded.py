"""Results of the ledger that comes along, to be changed by tests."""

from pathlib import Path

from bayesattn.claims.registry import find_study
from bayesattn.ledger.ledger import Ledger

LEDGER = Ledger.load(Path(__file__).parents[2] / "results" / "ledger.json")


def recorded_results(name):
    """What each seed of a claim measured, as its dataclass."""
    return find_study(name).read(LEDGER.records[name].numbers)
