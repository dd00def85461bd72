"""How numbers and verdicts are written, on the terminal, in the README and on the page alike."""

from collections.abc import Mapping, Sequence

import numpy as np

from bayesattn.ledger.ledger import Record

SYMBOLS = {"supported": "✓", "refuted": "✗", "inconclusive": "?", "error": "!"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Three significant digits, whole numbers as they are, powers of ten where they help.

    >>> [number(x) for x in (384, 0.4359, 2.7e-7, 1_140_951_040)]
    ['384', '0.436', '2.7×10⁻⁷', '1,140,951,040']
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    if 1e-3 <= abs(value) < 1e6:
        # From 999.5 on, three digits would turn to powers of ten.
        text = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
        return text.replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    power = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"{mantissa.replace('-', '−')}×10{power}"


def tell_means(values: Mapping[str, Sequence[float]], form: str = ".2f") -> str:
    """The mean of each name.

    >>> tell_means({"RoPE": [0.5, 0.7], "NoPE": [0.1, 0.2]})
    'RoPE 0.60, NoPE 0.15'
    """
    return ", ".join(f"{name} {np.mean(own):{form}}" for name, own in values.items())


def measured(record: Record) -> str:
    """What was measured, with unit and interval; a dash after a crash."""
    verdict = record.verdict
    if verdict is None:
        return "–"
    text = f"{number(verdict.measured)} {verdict.unit}"
    if verdict.interval:
        text += f" [{number(verdict.interval.low)}, {number(verdict.interval.high)}]"
    return text


def verdict(record: Record) -> str:
    """Symbol and word, so that neither colour nor font has to tell."""
    return f"{SYMBOLS[record.result]} {record.result}"
