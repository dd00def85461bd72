"""`bayesattn lm passkey`, `lm perplexity` and `lm harness` on folders of models."""

import json
import re

import pytest

from bayesattn.commands.lm_measure import Sofar
from bayesattn.commands.main import main
from bayesattn.evals import prefill
from bayesattn.evals.passkey import passkey
from bayesattn.models.open import open_language
from tests.evals.language import untrained


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of an untrained model with its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    made = untrained()
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def command(*words):
    return main(["lm", *map(str, words)])


def mistake(capsys, *words):
    assert command(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("bayesattn: ") and err.count("\n") == 1
    return err


def test_passkey_table_json_and_figure(model, capsys, folder):
    words = ("--lengths", "1x,2x", "--depths", 3, "--samples", 1)
    files = ("--json", "p.json", "--figure", "p.svg")
    assert command("passkey", model, *words, *files) == 0
    out = capsys.readouterr().out
    found = json.loads((folder / "p.json").read_text())
    expected = passkey(open_language(model), "1x,2x", depths=3, samples=1)
    assert found == json.loads(json.dumps(expected.to_json()))
    lines = out.splitlines()
    assert "trained at 128 tokens: passkey, teacher-forced" in lines[0]
    assert re.split(r"\s{2,}", lines[1].strip())[-3:] == ["at 0%", "at 50%", "at 100%"]
    for line, row in zip(lines[2:], found["lengths"], strict=True):
        assert line.split()[:3] == [row["requested"], str(row["length"]), f"{row['accuracy']:.2f}"]
    assert "<svg" in (folder / "p.svg").read_text()


def test_a_stopped_passkey_shows_what_it_knows_and_goes_on(model, capsys, folder, monkeypatch):
    words = ("passkey", model, "--lengths", "1x,2x", "--depths", 3, "--samples", 1)
    monkeypatch.setattr(prefill, "TOGETHER", 1)
    update = Sofar.update

    def stop(self, found, share):
        update(self, found, share)
        if len(found.cells) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Sofar, "update", stop)
        assert command(*words, "--json", "p.json") == 130
        out, err = capsys.readouterr()
        lines = out.splitlines()
        assert [line.split()[4] for line in lines[2:]] == ["3", "1"]
        assert "what was answered is in p.json.part, and the same command goes on" in err
        assert command(*words) == 130
        assert "with --json FILE the same command would go on" in capsys.readouterr().err
    assert [file.name for file in folder.glob("p.*")] == ["p.json.part"]
    assert command(*words, "--json", "p.json") == 0
    assert [file.name for file in folder.glob("p.*")] == ["p.json"]
    expected = passkey(open_language(model), "1x,2x", depths=3, samples=1)
    assert json.loads((folder / "p.json").read_text()) == json.loads(json.dumps(expected.to_json()))


def test_a_horizon_reaches_the_model(model, capsys, monkeypatch):
    kept = []

    def measure(model, *lengths, **options):
        kept.append(model.model)
        return passkey(model, *lengths, **options)

    monkeypatch.setattr("bayesattn.commands.lm_measure.passkey", measure)
    few = ("passkey", model, "--lengths", "1x", "--depths", 1, "--samples", 1)
    assert command(*few) == command(*few, "--ssmax-horizon", "1x") == 0
    capsys.readouterr()
    for found, horizon in zip(kept, (None, 128), strict=True):
        assert found.config.ssmax_horizon == horizon
        assert {layer.self_attn.ssmax.horizon for layer in found.model.layers} == {horizon}
    assert "a multiple such as 8x" in mistake(capsys, "passkey", model, "--ssmax-horizon", "1x,2x")


def test_passkey_options_reach_the_measurement(model, capsys):
    words = ("--depths", 1, "--samples", 1, "--json", "-", "--lengths", "2x")
    settings = ("--tolerance", "1e-4", "--scoring", "generated", "--seed", 5, "--needle", "noise")
    assert command("passkey", model, *words, *settings) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tolerance"] == 1e-4 and found["scoring"] == "generated"
    assert found["kind"] == "noise" and found["seed"] == 5
    essay = ("--needle", "essay", "--values", "words")
    assert command("passkey", model, *words, *essay) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "essay"


def test_perplexity_table_json_and_figure(model, capsys, folder):
    words = ("--length", "4x", "--window", "2x", "--sequences", 2)
    files = ("--json", "p.json", "--figure", "p.png")
    assert command("perplexity", model, *words, *files) == 0
    out = capsys.readouterr().out
    found = json.loads((folder / "p.json").read_text())
    assert [row["to"] for row in found["windows"]] == [256, 512]
    assert [row["to"] for row in found["lengths"]] == [128, 256, 512]
    assert len(found["positions"]) == 512 and found["sequences"] == 2
    for row in found["windows"]:
        assert f"{row['from']}-{row['to']}" in out and f"{row['perplexity']:.3f}" in out
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")


def test_perplexity_of_any_text(model, capsys, folder):
    (folder / "text.md").write_text("To be, or not to be, that is the question. " * 40)
    words = ("--text", "text.md", "--length", 200, "--whole", "--json", "-")
    assert command("perplexity", model, *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sequences"] == 1 and found["lengths"][-1]["to"] == 200


def test_mistakes_get_one_sentence(model, capsys, folder):
    assert "neither on this machine nor" in mistake(capsys, "passkey", "nowhere")
    assert "multiple such as 8x" in mistake(capsys, "passkey", model, "--lengths", "ten")
    assert "at least" in mistake(capsys, "passkey", model, "--lengths", "10")
    assert "1 or more" in mistake(capsys, "passkey", model, "--depths", 0)
    assert "share of the posterior" in mistake(capsys, "passkey", model, "--tolerance", 3)
    assert "allow more memory" in mistake(capsys, "passkey", model, "--memory", "0.01")
    for name in ("passkey", "perplexity"):
        assert "must end in" in mistake(capsys, name, model, "--figure", "a.jpg")
    assert "a multiple such as 8x" in mistake(capsys, "perplexity", model, "--length", "1x,2x")
    assert "fewer than" in mistake(capsys, "perplexity", model, "--length", "1000000x")
    assert "no corpus gone" in mistake(capsys, "perplexity", model, "--text", "gone")
    assert "1 or more" in mistake(capsys, "perplexity", model, "--sequences", 0)
    words = ("passkey", model, "--lengths", "1x", "--depths", 1, "--json", "missing/f.json")
    assert "missing" in mistake(capsys, *words)
    assert not list(folder.glob("*.*"))
