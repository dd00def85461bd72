import pytest

from bayesattn.ledger import words
from bayesattn.ledger.ledger import Row
from bayesattn.stats import Interval
from bayesattn.verdicts import Outcome
from tests.ledger.toy import statement


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (384, "384"),
        (384.0, "384"),
        (0, "0"),
        (-7, "−7"),
        (1_140_951_040, "1,140,951,040"),
        (0.4359, "0.436"),
        (12.345, "12.3"),
        (-0.25, "−0.25"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1234.5, "1,234"),
        (2.66e-7, "2.7×10⁻⁷"),
        (-1.5e-12, "−1.5×10⁻¹²"),
        (1.23e300, "1.2×10³⁰⁰"),
        (1234567.5, "1.2×10⁶"),
    ],
)
def test_numbers_are_short_and_readable(value, text):
    assert words.number(value) == text


def row(**changes):
    own = {
        "registered": "0123",
        "outcome": Outcome.YES,
        "verdict": "supported",
        "value": 11.0,
        "interval": Interval(8.521, 13.47),
        "level": 0.997,
        "comparator": 0.0,
        "seeds": (0, 1, 2, 3),
        "left_out": (),
        "p": 0.01,
        "reason": "Why not.",
    }
    return Row(**{**own, **changes})


def test_a_measurement_has_its_unit_and_interval():
    assert words.measured(statement(), row()) == "11 points [8.52, 13.5]"
    assert words.measured(statement(), row(interval=None)) == "11 points"
    assert words.measured(statement(), row(value=None, interval=None)) == "–"


def test_verdicts_have_a_symbol_and_a_word_each():
    said = {Outcome.YES: "supported", Outcome.NO: "refuted", Outcome.UNDECIDED: "undecided"}
    shown = [words.verdict(row(outcome=own, verdict=word)) for own, word in said.items()]
    assert shown == ["✓ supported", "✗ refuted", "? undecided"]
    assert words.verdict(row(outcome=None, verdict=None)) == "no verdict"


def test_limits_and_seeds_are_told_in_a_few_words():
    assert words.limit(statement()) == "above 5 points"
    assert words.limit(statement(rule="within", limit=(0.5, 2.0))) == "within [0.5, 2] points"
    assert words.seeds(row(seeds=(3,))) == "1 seed"
    assert words.seeds(row(seeds=(0, 1), left_out=(2,))) == "2 seeds, 1 left out"
