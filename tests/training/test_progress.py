import io

import pytest
from rich.console import Console

from bayesattn.training import reporting
from bayesattn.training.reporting import Bar


@pytest.fixture
def screen(monkeypatch):
    """What a terminal is shown, and a clock that goes on by two seconds whenever it is asked."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=200)
    monkeypatch.setattr("bayesattn.console.Console", lambda **_: console)
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: next(clock))
    return shown


def description(bar):
    return bar._progress.tasks[0].description


def test_the_news_and_the_speed_in_tokens(screen):
    with Bar(100, True, tokens=4096) as bar:
        bar.update(10, {"loss": 3.25, "lr": 0.001, "gradient": 7.0})
        assert description(bar) == "step 10/100  loss 3.25  lr 0.001"
        bar.update(20, {"heldout": 4.5, "needles": 0.75})
        expected = "step 20/100  loss 3.25  lr 0.001  heldout 4.5  needles 0.75  20,480 tokens/s"
        assert description(bar) == expected
        bar.update(20, {})  # two kinds of news of one step
        assert "tokens/s" not in description(bar)
    assert "step 20/100" in screen.getvalue()


def test_tunnels_have_no_tokens_to_count(screen):
    with Bar(100, True) as bar:
        bar.update(10, {"loss": 3.25, "mae": 0.5})
        bar.update(20, {})
        assert description(bar) == "step 20/100  loss 3.25  mae 0.5"


def test_nothing_is_shown_where_nobody_looks(screen):
    with Bar(100, False, tokens=8) as bar:
        bar.update(10, {"loss": 1.0})
        bar.update(20, {"loss": 1.0})
    assert screen.getvalue() == ""
