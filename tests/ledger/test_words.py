import pytest

from bayesattn.claims import Tier
from bayesattn.ledger import words
from tests.ledger.toy import crash, run_study, toy


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


def test_a_measurement_has_its_unit_and_interval(tmp_path):
    record = run_study(toy(), Tier.QUICK, tmp_path)
    assert words.measured(record) == "11 points [8.52, 13.5]"
    assert words.measured(run_study(toy(), Tier.QUICK, tmp_path, count=1)) == "10 points"


def test_verdicts_have_a_symbol_and_a_word_each(tmp_path):
    studies = [toy(), toy(level=-10.0), toy(level=-1.0), toy(measure=crash)]
    records = [run_study(study, Tier.QUICK, tmp_path) for study in studies]
    assert [words.verdict(r) for r in records] == [
        "✓ supported",
        "✗ refuted",
        "? inconclusive",
        "! error",
    ]
    assert words.measured(records[-1]) == "–"
