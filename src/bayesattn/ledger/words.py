"""Text of numbers and verdicts, the same on the terminal, in the README and on the page."""

from bayesattn.ledger.ledger import Row
from bayesattn.ledger.statement import Statement
from bayesattn.ledger.study import Tier
from bayesattn.verdicts import Outcome

SYMBOLS = {Outcome.YES: "✓", Outcome.NO: "✗", Outcome.UNDECIDED: "?"}
ERROR = "! error"
FIRM = "‡"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def command(name: str, tier: Tier = Tier.FULL) -> str:
    """The command that measures a claim."""
    return f"bayesattn claims run {name} --tier {tier}"


def number(value: float) -> str:
    """Three significant digits; whole numbers in full; powers of ten for very small numbers.

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


def measured(own: Statement, row: Row) -> str:
    """The measured value with unit and interval; a dash if no seed counts."""
    if row.value is None:
        return "–"
    text = f"{number(row.value)} {own.unit}".strip()
    if row.interval:
        text += f" [{number(row.interval.low)}, {number(row.interval.high)}]"
    return text


def limit(own: Statement) -> str:
    """The rule with its limit.

    >>> from types import SimpleNamespace as Own
    >>> limit(Own(rule="within", limit=(0.95, 1.05), unit="times", empirical=True))
    'within [0.95, 1.05] times'
    """
    if isinstance(own.limit, tuple):
        shown = f"[{number(own.limit[0])}, {number(own.limit[1])}]"
    else:
        shown = number(own.limit)
    return f"{own.rule if own.empirical else 'at most'} {shown} {own.unit}".strip()


def verdict(row: Row) -> str:
    """Symbol and word of a verdict, readable without colour."""
    if row.outcome is None:
        return "no verdict"
    return f"{SYMBOLS[row.outcome]} {row.verdict}"


def seeds(row: Row) -> str:
    """Number of seeds that count, and number left out.

    >>> from types import SimpleNamespace as Own
    >>> seeds(Own(seeds=(0, 1, 3), left_out=(2,)))
    '3 seeds, 1 left out'
    >>> seeds(Own(seeds=(), left_out=(0, 1)))
    'none of 2 seeds met the premise'
    """
    if row.left_out and not row.seeds:
        return f"none of {len(row.left_out)} seeds met the premise"
    text = f"{len(row.seeds)} seed{'' if len(row.seeds) == 1 else 's'}"
    return f"{text}, {len(row.left_out)} left out" if row.left_out else text
