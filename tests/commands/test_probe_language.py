"""`bayesattn probe MODEL` on small models: what it writes, and what it refuses."""

import json
import re

import pytest
import torch

from bayesattn.commands import probe_language as commands
from bayesattn.commands.main import main
from bayesattn.probes.llm import axes, examination
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import entropy_of
from bayesattn.probes.llm.subject import load
from bayesattn.probes.states import KINDS
from tests.probes.llm.small import save_small, small_subject

FAST = ("--length", "8", "--candidates", "30", "--each", "3", "--draws", "20")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [save_small(folder / name, seed) for seed, name in enumerate(("one", "two"))]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def command(*words):
    return main(["probe", *map(str, words)])


def mistake(capsys, *words):
    assert command(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("bayesattn: ") and err.count("\n") == 1, err
    return err


def test_table_page_and_json(models, capsys, folder):
    assert command(models[0], *FAST, "--json", "p.json") == 0
    out = capsys.readouterr().out
    plan, _, rest = out.partition("states")
    assert "query, 2 key/value" in plan and "memory" in plan
    assert "The authors' criteria: " in rest and rest.endswith("Page: probe.html\n")
    found = json.loads((folder / "p.json").read_text())
    assert found["schema"] == 1 and len(found["models"]) == 1
    (one,) = found["models"]
    assert one["check"]["good"] and one["failed"] == {} and one["prompts"]["prompts"] == 15
    assert len(one["entropy"]) == len(one["entropy, random init"]) == 15
    keys = {"probe", "where", "layer", "what", "measured", "interval", "null", "p", "reported"}
    keys |= {"times noise"}
    assert all(set(row) == keys for row in one["measurements"])
    assert {row["probe"] for row in one["measurements"]} == {"states", "keys", "attention"}
    assert {p["states"] for p in one["planes"]} == set(KINDS)
    page = (folder / "probe.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert "fresh weights" in page and one["prompts"]["texts"][0].split("\n")[0][:5] in page
    check_numbers(one, models[0])


def check_numbers(one, folder):
    """They are those of the model, and of fresh weights, on the prompts that are listed."""
    own, fresh = load(str(folder)), load(str(folder), random_init=0)
    tokens = [own.encode(text) for text in one["prompts"]["texts"]]
    expected = {}
    for name, subject in (("measured", own), ("random init", fresh)):
        seen = capture_prompts(subject, tokens)
        expected[name] = axes.point(seen.values[-1].flatten(1).double(), entropy_of(seen.logits))
    rows = {row["what"]: row for row in one["measurements"] if row["where"] == "L2 values"}
    share = rows[axes.SHARE]
    assert share["times noise"] == share["measured"] / share["null"]["noise"]
    for what, value in expected["measured"].items():
        assert rows[what]["measured"] == pytest.approx(value, abs=1e-9), what
        fresh_value = rows[what]["null"]["random init"]
        assert fresh_value == pytest.approx(expected["random init"][what], abs=1e-9), what


def test_a_folder_holds_everything_and_a_second_run_is_the_same(models, folder):
    for name in ("a", "b"):
        assert command(models[0], *FAST, "--out", name, "--seed", "1") == 0
    names = {path.name for path in (folder / "a").iterdir()}
    pictures = {
        f"{name}.{end}" for name in ("plane", "keys", "attention") for end in ("svg", "png")
    }
    assert names == {"index.html", "probe.json"} | pictures
    for name in names:
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes(), name


def test_several_models_stand_side_by_side(models, capsys):
    assert command(*models, *FAST, "--no-control", "--json", "-", "--layers", "all") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["model"]["name"] for one in found["models"]] == [str(m) for m in models]
    for one in found["models"]:
        assert one["entropy, random init"] is None
        assert {row["layer"] for row in one["measurements"] if row["probe"] == "states"} == {
            0,
            1,
            2,
        }
        assert not any("random init" in row["null"] for row in one["measurements"])


def test_fresh_weights_instead(models, capsys):
    assert command(models[0], *FAST, "--random-init", "0", "--json", "-") == 0
    (one,) = json.loads(capsys.readouterr().out)["models"]
    assert "random weights 0" in one["model"]["name"]
    # and beside other ones, not beside themselves
    assert one["entropy"] != one["entropy, random init"]


def test_prompts_of_a_file_and_those_of_the_authors(models, capsys, folder):
    (folder / "mine.txt").write_text("\n".join(f"the number is {n} and" for n in range(9)))
    assert command(models[0], "--draws", "5", "--prompts", "mine.txt", "--json", "-") == 0
    (one,) = json.loads(capsys.readouterr().out)["models"]
    assert one["prompts"]["prompts"] == 9 and one["prompts"]["rule"] == "the lines of mine.txt"
    assert command(models[0], "--draws", "5", "--domain", "authors", "--json", "-") == 0
    (one,) = json.loads(capsys.readouterr().out)["models"]
    assert one["prompts"]["prompts"] == 13 and one["failed"] == {}


def test_a_failed_measurement_does_not_lose_the_others(models, capsys, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(examination, "measure_tokens", broken)
    monkeypatch.setattr(examination, "summarise", broken)
    assert command(models[0], *FAST) == 0
    out = capsys.readouterr().out
    assert "keys could not be measured: RuntimeError: no such thing" in out
    assert "attention could not be measured: RuntimeError: no such thing" in out
    assert re.search(r"^states ", out, re.MULTILINE) and "not all measured" in out


def test_from_the_cache_alone(monkeypatch):
    subject = small_subject()
    seen = capture_prompts(subject, [[1, 2, 3]] * 2, mode="cache")
    monkeypatch.setattr(examination, "capture_prompts", lambda *_: seen)
    found = examination.observe(subject, [[1, 2, 3]] * 2, [2])
    assert {*found.states} == {(2, "values")} and {"outputs", "residual"} <= found.failed.keys()
    assert torch.equal(found.heads[1], seen.turned_keys[1])


def test_a_capture_that_cannot_be_believed_ends_it(models, capsys, monkeypatch):
    class Wrong:
        def require(self):
            raise ValueError("its probes would mean nothing")

    monkeypatch.setattr(commands, "check", lambda *_: Wrong())
    assert "would mean nothing" in mistake(capsys, models[0], *FAST)


def test_mistakes_get_one_sentence(models, capsys, folder):
    one = models[0]
    assert "no folder to write in" in mistake(capsys, one, "--out", "a/b.html")
    assert "leave out --domain" in mistake(capsys, one, "--prompts", "x", "--domain", "code")
    assert "x.txt" in mistake(capsys, one, "--prompts", "x.txt")
    assert "no layer 9" in mistake(capsys, one, *FAST, "--layers", "9")
    assert "--layers is all, or" in mistake(capsys, one, *FAST, "--layers", "some")
    assert "There is no corpus nowhere" in mistake(capsys, one, "--domain", "nowhere")
    assert "cannot be drawn from 10" in mistake(capsys, one, "--candidates", "10")
    assert "--draws must be 2" in mistake(capsys, one, "--draws", "1")
    assert "name one" in mistake(capsys, *models, "--revisions", "a,b")
    assert "no revision 'a'" in mistake(capsys, one, "--revisions", "a,b")
    assert "There is no ./nowhere" in mistake(capsys, "./nowhere")
    (folder / "long.txt").write_text("\n".join(["word " * 100] * 9))
    assert "no more than 64" in mistake(capsys, one, "--prompts", "long.txt")
