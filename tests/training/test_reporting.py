"""A bar for people, metrics for TensorBoard and trackio."""

import importlib.util
import io
import sys
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from bayesattn.errors import TrainingError
from bayesattn.training import TrainConfig, reporting, train_tunnel
from bayesattn.training.reporting import Bar, require_tracker, show_plan, tracking
from tests.training.test_tunnel import SMALL, TUNNEL, config
from tests.training.toy import timeless, toy_config, toy_train


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
        assert not bar.due(10)  # at 0 seconds
        bar.update(10, {"loss": 3.25, "lr": 0.001, "gradient": 7.0})
        assert description(bar) == "step 10/100  loss 3.25  lr 0.001"
        bar.update(20, {"heldout": 4.5, "needles": 0.75})  # at 4 seconds
        expected = "step 20/100  loss 3.25  lr 0.001  heldout 4.5  needles 0.75  10,240 tokens/s"
        assert description(bar) == expected
    assert "step 20/100" in screen.getvalue()


def test_without_a_terminal_there_are_lines(monkeypatch, capsys):
    """Soon at first, then more rarely, with the time that is left; the last step has one."""
    now = [0.0]
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now[0])
    with Bar(1000, True, tokens=4096) as bar:
        for step in range(1, 1001):
            now[0] = step - 1.0
            if bar.due(step):
                bar.update(step, {"loss": 1000.0 - step})
            elif step % 10 == 0 or step == 1000:
                bar.update(step, {"lr": 0.5})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "step 3/1000  loss 997  4,096 tokens/s  0:16:37 left"
    steps = [int(line.split()[1].split("/")[0]) for line in lines]
    assert steps[:6] == [3, 7, 15, 31, 61, 91] and steps[-1] == 1000
    assert lines[-1].endswith("4,096 tokens/s")


def test_news_come_before_there_is_a_line_to_log(tmp_path, monkeypatch, capsys):
    """Nothing of the result depends on them."""
    plain, *_ = toy_train(tmp_path / "plain", toy_config(log_every=1000))
    monkeypatch.setattr(reporting, "FIRST", 0.0)
    told, *_ = toy_train(tmp_path / "told", toy_config(log_every=1000), progress=True)
    lines = capsys.readouterr().err.splitlines()
    steps = toy_config().steps
    assert len(lines) > 3 and f"step 1/{steps}" in lines[0] and f"step {steps}/" in lines[-1]
    assert all("loss " in line for line in lines)
    assert timeless(told.metrics()) == timeless(plain.metrics())


@pytest.mark.parametrize("units", [True, False])
def test_the_plan(monkeypatch, capsys, units):
    monkeypatch.setattr(reporting, "has_bf16", lambda: units)
    training = TrainConfig(steps=100, batch_size=8, precision="bf16")
    show_plan(1234567, 64, training, {"train": 25600, "heldout": 3000}, "cpu")
    out, err = capsys.readouterr()
    row = " ".join(err.splitlines()[1].split())
    assert out == "" and row.startswith("1,234,567 100 51,200 25,600 2 3,000 bf16")
    assert ("--precision fp32 is quicker" in err) == ("emulated" in row) == (not units)


def test_tunnels_have_no_tokens_to_count(screen):
    with Bar(100, True) as bar:
        bar.due(1)
        bar.update(10, {"loss": 3.25, "mae": 0.5})
        bar.update(20, {})
        assert description(bar) == "step 20/100  loss 3.25  mae 0.5"


def test_nothing_is_shown_where_nobody_looks(screen):
    with Bar(100, False, tokens=8) as bar:
        bar.update(10, {"loss": 1.0})
        bar.update(20, {"loss": 1.0})
    assert screen.getvalue() == ""


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_missing_package_is_named_before_anything_is_written(tmp_path, monkeypatch, name):
    monkeypatch.setattr(reporting, "find_spec", lambda _: None)
    with pytest.raises(TrainingError, match=f"{name} is not installed: pip install 'bayesattn"):
        train_tunnel(TUNNEL, SMALL, config(track=name), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    require_tracker(None)


class Board:
    """What torch.utils.tensorboard has."""

    def __init__(self, folder):
        self.folder, self.scalars, self.closed = folder, [], False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def add_scalar(self, name, value, step):
        self.scalars.append((step, name, value))


@pytest.fixture
def board(monkeypatch):
    boards = []

    def writer(folder):
        boards.append(Board(folder))
        return boards[-1]

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return boards


def test_tensorboard_gets_every_number_of_every_line(tmp_path, board):
    run, *_ = toy_train(tmp_path / "run", toy_config(track="tensorboard"))
    (found,) = board
    assert found.folder == run.folder / "tensorboard" and found.closed
    expected = [
        (line["step"], name, value)
        for line in run.metrics()
        for name, value in line.items()
        if name != "step"
    ]
    assert found.scalars == expected


def test_trackio_gets_every_line_and_keeps_off_standard_output(tmp_path, monkeypatch, capsys):
    calls = []

    def init(**options):
        print("* Trackio project initialized")
        calls.append(("init", options))

    fake = SimpleNamespace(
        init=init,
        log=lambda numbers, step: calls.append(("log", {"step": step, **numbers})),
        finish=lambda: calls.append(("finish", {})),
    )
    monkeypatch.setitem(sys.modules, "trackio", fake)
    run, *_ = toy_train(tmp_path / "run", toy_config(track="trackio"))
    names = [name for name, _ in calls]
    assert names == ["init", *["log"] * len(run.metrics()), "finish"]
    assert calls[0][1] == {
        "project": tmp_path.name,
        "name": "run",
        "config": run.config,
        "resume": "allow",
    }
    assert [line for name, line in calls if name == "log"] == run.metrics()
    assert capsys.readouterr().out == ""


def test_tracking_changes_nothing_and_may_change(tmp_path, board):
    tracked, *_ = toy_train(tmp_path / "tracked", toy_config(track="tensorboard"))
    plain, *_ = toy_train(tmp_path / "plain")
    assert timeless(tracked.metrics()) == timeless(plain.metrics())
    tracked.require_same({**tracked.config, "training": plain.config["training"]})


def test_no_tracker_takes_lines_too(tmp_path):
    with tracking(None, SimpleNamespace(folder=tmp_path)) as track:
        track({"step": 1, "loss": 2.0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not importlib.util.find_spec("tensorboard"), reason="an extra")
def test_real_tensorboard(tmp_path):
    run, *_ = toy_train(tmp_path / "run", toy_config(track="tensorboard"))
    assert list((run.folder / "tensorboard").glob("events*"))
