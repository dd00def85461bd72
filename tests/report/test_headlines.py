"""Sentences above pictures say what the numbers say, and no more."""

import pytest

from bayesattn.probes.attention import (
    REDUCTION_EVENNESS,
    REDUCTION_WITHOUT_SINK,
    SINK,
    Depth,
)
from bayesattn.probes.examination import measured_row, number
from bayesattn.probes.keys import RANDOM
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, SPEARMAN, States
from bayesattn.report import headlines
from bayesattn.report.strips import strips
from bayesattn.stats import Interval


def measured(value, spread=0.05, p=None, **nulls):
    nulls = {name.replace("_", " "): null for name, null in nulls.items()}
    interval = Interval(value - spread, value + spread)
    return Measured(value=value, interval=interval, nulls=nulls, p=p)


def depth(fall, others):
    return Depth(
        layers=[{SINK: measured(0.25)}, {SINK: measured(0.75)}],
        overall={REDUCTION_EVENNESS: fall, REDUCTION_WITHOUT_SINK: others},
    )


@pytest.mark.parametrize(
    ("fall", "others", "said"),
    [
        (0.3, 0.2, "attention narrows with depth: from the first layer to the last its entropy"),
        (0.3, 0.01, "attention narrows with depth, but only towards the first token: "),
        (0.3, -0.2, "attention narrows with depth, but only towards the first token: "),
        (-0.3, -0.2, "attention widens with depth: "),
        (0.01, 0.2, "attention neither clearly narrows nor widens with depth: "),
    ],
)
def test_attention(fall, others, said):
    told = headlines._focusing(depth(measured(fall, random_init=-0.06), measured(others)))
    assert told.startswith(said)
    word = "falls" if fall > 0 else "rises"
    low, high = (f"{100 * (abs(fall) + step):.0f}%" for step in (-0.05, 0.05))
    assert (
        f"{word} by {100 * abs(fall):.0f}% ({low} to {high}), with fresh weights it rises" in told
    )
    assert "The first token takes 50% of all attention" in told


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.5, 0.4, 0.05), "share a direction more than by chance in 2 of 3 layers"),
        ((0.05, 0.04, 0.5), "are more orthogonal than by chance in 2 of 3 layers"),
    ],
)
def test_keys(values, said):
    keys = [measured(value, **{RANDOM: 0.1, CONTROL: 0.2}) for value in values]
    told = headlines._keys(keys, "of different tokens")
    assert said in told and "random directions have 0.1 and fresh weights 0.2." in told


@pytest.mark.parametrize(
    ("rho", "said"),
    [
        (measured(0.5, p=0.005, random_init=0.1), " follows how uncertain the model is"),
        (measured(0.5, p=0.005, random_init=0.6), " follows, but not more than with fresh weights"),
        (measured(0.5, p=0.2, random_init=0.1), " does not clearly follow how uncertain"),
    ],
)
def test_order(rho, said):
    states = States(
        layer=3,
        kind="values",
        width=8,
        prompts=20,
        measured={SPEARMAN: rho},
        plane=[],
        control_plane=None,
    )
    told = headlines._order(states)
    assert said in told and f"is 0.5 (with fresh weights {rho.nulls[CONTROL]:.2g}, p = " in told


def test_marks_of_one_name_share_their_axis():
    rows = [
        measured_row("keys", f"L{layer}", "|cos|", measured(value, random_init=0.1, noise=0.2))
        for layer, value in enumerate((0.2, 0.8))
    ]
    one, two = strips(rows)
    places = [float(strip.split('cx="')[1].split('"')[0]) for strip in (one, two)]
    # the axis ends at 0 and at the end of the longest interval, 0.85
    assert places[1] - places[0] == pytest.approx((220 - 12) * 0.6 / 0.85, abs=0.2)
    assert f"|cos|: {number(0.2)}; 95% 0.15 to 0.25; fresh weights 0.1; noise 0.2" in one
    assert one.count('class="fresh"') == one.count('class="null"') == 1
    assert strips([{"what": "words"}]) == [""]
