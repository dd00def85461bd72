"""Workers end with their parent, however it ends; two of a kind in one folder do not meet."""

import os
import signal
import time

import psutil
import pytest

from bayesattn.commands import demo
from bayesattn.commands.main import main
from bayesattn.errors import UserError
from bayesattn.files import only_one
from bayesattn.training import Run
from tests.robust.common import TORTURE, start

WAYS = ("SIGTERM", "SIGKILL", *(("SIGHUP", "SIGINT", "return") if TORTURE else ()))
PATIENCE = 1.0
"""Seconds after the parent's death when nothing may be left."""


def left_over(processes):
    """Those that still compute; a zombie is only waiting to be counted."""
    return [one for one in processes if one.is_running() and one.status() != "zombie"]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_one_second_after_the_parent(tmp_path, way):
    begun = [tmp_path / name for name in ("one", "two")]
    others = ended(tmp_path, way, "engine", begun)
    assert len(others) >= 3  # two workers and who starts them
    time.sleep(PATIENCE)
    assert left_over(others) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [way for way in WAYS if way != "return"] if TORTURE else ["SIGTERM"]
)
def test_nothing_is_left_one_second_after_a_demo(tmp_path, way):
    """What is told to stop has saved; that of a killed one is killed with it."""
    run = tmp_path / demo.FOLDER / "train"
    others = ended(tmp_path, way, "demo", [run / "metrics.jsonl"])
    assert others
    time.sleep(PATIENCE)
    assert left_over(others) == []
    if way != "SIGKILL":
        assert Run.open(run).checkpoint().step > 0


def ended(folder, way, who, begun):
    """The processes that a program had when it was ended, once these files were there."""
    words = ("-m", "tests.robust.dying", folder, way, who)
    with start(*words, start_new_session=True) as process:
        try:
            others = []
            while process.poll() is None and not all(path.exists() for path in begun):
                time.sleep(0.02)
                others = psutil.Process(process.pid).children(recursive=True) or others
            if way != "return":
                assert process.poll() is None, process.stderr.read()
                others = psutil.Process(process.pid).children(recursive=True)
                process.send_signal(getattr(signal, way))
            process.wait(30)
        finally:
            process.kill()
    return others


def test_the_second_is_told_who_has_the_folder(tmp_path):
    with only_one(tmp_path, "measuring claims"), pytest.raises(UserError) as error:
        only_one(tmp_path, "measuring claims").__enter__()
    assert str(error.value).startswith(f"Another process ({os.getpid()}, since 20")
    assert str(error.value).endswith(
        f" is measuring claims in {tmp_path}: wait for it, or choose another folder."
    )


@pytest.mark.parametrize(
    "words", [["claims", "run", "bam-size"], ["claims", "add", "measured"], ["demo"]]
)
def test_of_two_that_measure_into_one_folder_one_says_who_has_it(
    tmp_path, monkeypatch, capsys, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "bam-size-0.json").write_text("{}")
    (tmp_path / "out").mkdir()
    with only_one(tmp_path / "out", "something"):
        assert main([*words, "--out", "out"]) == 2
    said = capsys.readouterr().err
    assert f"Another process ({os.getpid()}, since 20" in said and said.count("\n") == 1
    assert not (tmp_path / "out" / "ledger.json").exists()


def test_a_lock_of_the_dead_holds_nobody_up(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".lock-by").write_text("999999 2020-01-01 00:00:00\n")
    with only_one(tmp_path, "training"):
        assert (tmp_path / ".lock-by").read_text().startswith(f"{os.getpid()} ")
    assert not (tmp_path / ".lock-by").exists()


def test_a_damaged_name_of_the_holder_is_left_out(tmp_path):
    with only_one(tmp_path, "training"):
        (tmp_path / ".lock-by").write_bytes(b"\xff<script>")
        with pytest.raises(UserError, match="^Another process is training in"):
            only_one(tmp_path, "training").__enter__()
