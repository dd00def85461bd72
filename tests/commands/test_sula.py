"""`bayesattn sula` on a tiny model."""

import json

import pytest

from bayesattn.commands import names
from bayesattn.commands import sula as sula_commands
from bayesattn.commands.main import main
from bayesattn.source import Source
from tests.probes.llm.sula_toys import subject

SMALL = ("--prompts", "4", "--each", "4")


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    asked = []

    def load(name, **options):
        asked.append((name, options))
        return subject()

    monkeypatch.setattr(sula_commands, "load", load)
    monkeypatch.setattr(names, "find", lambda name: Source(name=name, kind="folder", location=name))
    return asked


def mistake(capsys, *words):
    assert main(["sula", "tiny", *SMALL, *words]) == 2
    out, err = capsys.readouterr()
    *before, last = err.splitlines()
    assert out == "" and last.startswith("bayesattn: ")
    assert not any("bayesattn: " in one for one in before)
    return last


def test_table_page_and_json(capsys, model, tmp_path):
    words = ("sula", "tiny", *SMALL, "--json", "s.json", "--out", "page.html")
    assert main(words) == 0
    out = capsys.readouterr().out
    assert model[0][0] == "tiny" and out.startswith("llama: labels in context")
    assert "labels dax and lug (remap: mip and wug)" in out and out.endswith("Page: page.html\n")
    for shown in ("calibration", "movement", "mask_labels, k = 8", "H_pred"):
        assert shown in out
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["labels"] == ["dax", "lug", "mip", "wug"] and found["layer"] == 3
    assert found["model"] == "llama"
    names = {one["condition"] for one in found["calibration"]}
    assert names == {
        *("main", "remap", "shuffled", "mask_words", "mask_labels"),
        *("fixed length", "fixed length, labels masked"),
    }
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/svg+xml") == 2 and "http" not in page.split("<main>")[1]


def test_a_seeded_rerun_is_byte_identical(tmp_path):
    for name in ("one", "two"):
        assert main(["sula", "tiny", *SMALL, "--no-controls", "--out", name]) == 0
    one, two = tmp_path / "one", tmp_path / "two"
    files = sorted(path.name for path in one.iterdir())
    pictures = [f"{name}.{end}" for name in ("entropy", "movement") for end in ("png", "svg")]
    assert files == sorted(["index.html", "sula.json", *pictures])
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes()
    found = json.loads((one / "sula.json").read_text())
    assert len({c["condition"] for c in found["calibration"]}) == 3


def test_standard_output_holds_nothing_but_json(capsys):
    assert main(["sula", "tiny", *SMALL, "--no-controls", "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--labels", "dax", "zorb"), "the label 'zorb' is unknown to this tokenizer"),
        (("--labels", "dax"), "--labels takes two labels, or four"),
        (("--layer", "9"), "there is no layer 9"),
        (("--cut", "1"), "`bayesattn bayes` shows what cuts do"),
        (("--alpha", "0.4"), "alpha must lie between 0.5 and 1"),
        (("--prompts", "0"), "1 or more prompts of each kind"),
        (("--out", "no/where.html"), "Cannot write no/where.html"),
        (("--json", "no/where.json"), "Cannot write no/where.json"),
    ],
)
def test_mistakes_are_one_sentence(words, message, capsys):
    assert message in mistake(capsys, *words)


def test_no_model_is_the_default(model, capsys):
    assert main(["sula", *SMALL, "--no-controls", "--random-init", "3"]) == 0
    options = {"device": "cpu", "dtype": None, "random_init": 3, "revision": None}
    assert model[0] == (None, options)
