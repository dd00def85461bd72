"""Places that will not have it: full, read-only, strangely named, without a home or an alphabet."""

import json
import os
import resource
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

from bayesattn.commands.main import main
from bayesattn.training import Run
from tests.robust.common import ROOT, TORTURE, run, start

SMALL = ["--alphabet", "4", "--layers", "1", "--width", "8", "--heads", "2", "--batch-size", "4"]
TRAIN = ["tunnel", "train", "bijection", *SMALL, "--steps", "4"]
NAMES = (
    "with space",
    "quote'\"quote",
    "line\nbreak",
    "ünïcödé 💥",
    "-dash",
    "$(touch x)",
    "%s;ls",
    "*",
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_paths_may_have_any_name(here, name, capsys):
    folder = here / name
    assert main([*TRAIN, f"--out={folder}"]) == 0
    assert Run.open(folder).finished["step"] == 4
    assert main([*TRAIN, f"--out={folder}"]) == 0  # found again
    page = here / f"{name}.html"
    assert main(["report", "--output", str(page), "--", str(folder)]) == 0
    assert page.stat().st_size > 10_000
    text = here / name / "text.txt"
    text.write_text("some words " * 400)
    from bayesattn.corpora import load_tokenizer, prepare

    store = prepare(str(text), load_tokenizer("bytes"), here / f"{name} store")
    assert store.tokens("train") > 100
    assert sorted(path.name for path in here.iterdir()) == sorted(
        [name, f"{name}.html", f"{name} store"]
    )


def commands(folder):
    """What writes: each is told that it may write no more than some kilobytes."""
    yield [*TRAIN, "--out", folder / "run"]
    yield ["report", "zoo", "--output", folder / "page.html"]
    yield ["prior", "draw", "ggd", "--output", folder / "prior.png"]
    if TORTURE:
        language = ["lm", "train", "tiny", "--size", "nano", "--steps", "2", "--batch-size", "2"]
        yield [*language, "--out", folder / "lm"]
        yield ["claims", "run", "bam-size", "--workers", "1", "--out", folder / "out"]


@contextmanager
def full(size=2000):
    """As a full disk: files may not grow beyond so many bytes."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_full_disk_is_one_sentence_and_leaves_no_half_files(here, capsys):
    ledger = here / "zoo"
    shutil.copytree(ROOT / "results", ledger, ignore=shutil.ignore_patterns("measured"))
    for words in commands(here):
        with full():
            code = main([*map(str, words)])
        *plan, err = capsys.readouterr().err.splitlines()
        assert code == 2 and len(plan) <= 2, (words, code, plan, err)  # what it is going to do
        assert "Traceback" not in err and err.startswith("bayesattn: Cannot "), (words, err)
        assert "File too large" in err or "IoError" in err or "FileTooLarge" in err, err
    assert not [path for path in here.rglob(".tmp*") if path.is_dir()]
    assert not (here / "page.html").exists()


@pytest.mark.skipif(not TORTURE, reason="make torture")
def test_a_training_on_a_disk_that_fills_up_goes_on_after_room_was_made(here, capsys):
    words = [*TRAIN[:-1], "400", "--log-every", "1", "--checkpoint-every", "5", "--out"]
    with full(30_000):
        assert main([*words, "run"]) == 2
    err = capsys.readouterr().err
    assert "metrics.jsonl" in err and "is kept, make room" in err, err
    assert main([*words, "run"]) == main([*words, "whole"]) == 0
    one, two = (Run.open(here / name) for name in ("run", "whole"))
    assert [_timeless(line) for line in one.metrics()] == [
        _timeless(line) for line in two.metrics()
    ]
    assert one.checkpoint().state["sha256"] == two.checkpoint().state["sha256"]


def _timeless(line):
    return {name: value for name, value in line.items() if name != "seconds"}


@pytest.fixture
def read_only(tmp_path):
    """A folder that nobody can write to, root included."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(folder)]
    if mounted and subprocess.run(mount, capture_output=True).returncode == 0:
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
        return
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("nothing is read-only for this user")
    yield folder
    folder.chmod(0o700)


def test_a_read_only_folder_is_one_sentence(read_only, capsys):
    out = str(read_only / "out")
    for words in (
        [*TRAIN, "--out", out],
        ["claims", "run", "bam-size", "--out", out],
        ["claims", "run", "bam-size", "--out", str(read_only)],
        ["prior", "draw", "ggd", "--output", f"{out}.png"],
        ["report", "zoo:bijection-10", "--output", f"{out}.html"],
    ):
        assert main(words) == 2, words
        assert capsys.readouterr().err.startswith("bayesattn: "), words


HOMES = ({"HOME": None}, {"HOME": "/nonexistent"}, {"LC_ALL": "C"})
HOMES += (
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    {"TMPDIR": "/nonexistent"},
)


@pytest.mark.slow
@pytest.mark.parametrize("env", HOMES if TORTURE else HOMES[3:4], ids=str)
def test_without_a_home_or_an_alphabet(tmp_path, env):
    out = tmp_path / "prüfung"
    code, _, err = run("-m", "bayesattn", *TRAIN, "--out", out, env=env)
    assert code == 0 and "Traceback" not in err, err
    json.loads((out / "finished.json").read_text(encoding="utf-8"))
    code, told, err = run("-m", "bayesattn", "claims", "show", "bam-size", env=env)
    assert code == 0 and told and "Traceback" not in err, err


@pytest.mark.slow
def test_of_two_trainings_in_one_run_one_wins_and_the_other_says_who(tmp_path, capsys):
    words = [*TRAIN[:-1], "100000", "--out", str(tmp_path / "run")]
    with start("-m", "bayesattn", *words) as first:
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.02)
        code = main(words)
        err = capsys.readouterr().err
        first.terminate()
        assert first.wait(60) == 130
    assert code == 2
    assert f"Another process ({first.pid}, since " in err and "is training in" in err
