"""`bayesattn bayes` on a tiny language model and on a model of the zoo."""

import json

import pytest
import torch

from bayesattn.commands import bayes as bayes_commands
from bayesattn.commands import names
from bayesattn.commands.main import main
from bayesattn.probes.bayes import examination
from bayesattn.source import Source
from tests.probes.llm.sula_toys import subject

SMALL = ("--seeds", "4", "--sequences", "4", "--length", "6", "--fresh", "1")
ZOO = ("bayes", "zoo:bijection-10-returning", "--seeds", "4", "--sequences", "16", "--fresh", "4")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)


@pytest.fixture
def tiny(monkeypatch):
    source = Source(name="tiny", kind="folder", location="tiny")
    for module in (names, bayes_commands):
        monkeypatch.setattr(module, "find", lambda name: source)
    monkeypatch.setattr(bayes_commands, "load", lambda source, **options: subject())


def mistake(capsys, *words):
    assert main(["bayes", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("bayesattn: ") and err.count("\n") == 1
    return err


def test_a_zoo_model_on_one_page(capsys, tmp_path):
    assert main([*ZOO, "--out", "page.html", "--json", "b.json"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("zoo:bijection-10-returning, bijection: tracks exact Bayes within 0.00")
    assert "with fresh weights: no inference" in out.partition("\n")[0]
    assert "in the first 16 sequences" in err
    found = json.loads((tmp_path / "b.json").read_text())
    (task,) = found["tasks"]
    assert task["fresh verdict"] == "no inference" and len(task["seeds"]) == 4
    assert task["measured"]["share of drift"]["value"] < 0.01
    assert [one["layer"] for one in found["where"]["layers"]] == [0, 1]
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/svg+xml") == 3 and "http" not in page.split("<main>")[1]
    assert "<h1>zoo:bijection-10-returning, bijection: tracks exact Bayes" in page


def test_a_language_model_is_asked_four_things(tiny, capsys):
    assert main(["bayes", "tiny", *SMALL, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["task"] for one in found["tasks"]] == ["coin", "die", "chain", "SULA"]
    assert all(len(one["seeds"]) == 4 and len(one["fresh"]) == 1 for one in found["tasks"])
    assert "dax, lug" in found["tasks"][0]["what"]
    assert found["skipped"] == {
        "where the belief lives": "the model is not shown to infer in any task, so there is no "
        "belief"
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tiny", "--seeds", "3"), "--seeds must be 4 to 12, not 3"),
        (("tiny", "--sequences", "2"), "--sequences must be 4 or more, not 2"),
        (("tiny", "--fresh", "-1"), "--fresh must be 0 or more"),
        (("tiny", "--out", "no/where.html"), "Cannot write no/where.html"),
        (("tiny", *SMALL, "--labels", "dax", "lug", "mip", "zorb"), "'zorb' is unknown"),
        (("tiny", *SMALL[:4], "--length", "2"), "--length must be 4 or more"),
        (("tiny", *SMALL[:4], "--length", "90"), "reads no more than 64: shorten it"),
    ],
)
def test_mistakes_are_one_sentence(tiny, words, message, capsys):
    assert message in mistake(capsys, *words)


def test_options_that_mean_nothing_for_a_tunnel(capsys):
    assert "leave out --labels" in mistake(capsys, "zoo:mess3", "--labels", "A", "B")


def test_what_was_measured_is_kept_when_it_is_interrupted(tiny, capsys, monkeypatch):
    own, calls = examination.measure_seed, []

    def measure(task, seed, sequences):
        calls.append(task.name)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return own(task, seed, sequences)

    monkeypatch.setattr(examination, "measure_seed", measure)
    assert main(["bayes", "tiny", *SMALL, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(one["seeds"]) for one in found["tasks"]] == [2, 2, 1, 1]
    assert "interrupted; this is what was measured" in found["skipped"]["the rest"]


def test_out_of_memory_at_the_start_is_one_sentence(tiny, capsys, monkeypatch):
    def fail(*arguments):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(examination, "measure_seed", fail)
    assert "nothing was measured before memory ran out" in mistake(capsys, "tiny", *SMALL)
