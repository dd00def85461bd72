"""Numbers of the first edition, to be changed by tests of claims that have no statements yet."""

import json
from pathlib import Path

from bayesattn.claims.registry import find_study

NUMBERS = json.loads(Path(__file__).with_name("first_edition.json").read_text("utf-8"))


def recorded_results(name):
    """What each seed of a claim measured, as its dataclass."""
    return find_study(name).read({int(seed): own for seed, own in NUMBERS[name].items()})
