"""`bayesattn probe` on small runs: what applies is shown, what does not says so."""

import json
import re
import shutil

import pytest
import torch

from bayesattn.commands.main import main
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.models.architectures import LSTM, Transformer
from bayesattn.models.open import open_tunnel
from bayesattn.probes import examination
from bayesattn.probes.ablation import errors
from bayesattn.probes.examination import Subject
from bayesattn.probes.selfcheck import SelfCheck
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import HMM, Bijection

SMALL = Transformer(layers=2, width=16, heads=2, prior="ggd")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    dynamics = TrainConfig(steps=6, batch_size=4, dynamics=True, threads=1, seed=3)
    again = Bijection(5, 6, replacement=True)
    train_tunnel(again, SMALL, dynamics, folder / "bijection", progress=False)
    train_tunnel(HMM(3, 3, 4), LSTM(width=8), dynamics, folder / "lstm", progress=False)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def command(*words):
    return main(["probe", *map(str, words), "--sequences", "64"])


def mistake(capsys, *words):
    assert main(["probe", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("bayesattn: ") and err.count("\n") == 1
    return err


def test_table_page_and_json_of_a_transformer(runs, capsys, folder):
    assert command(runs / "bijection", "--json", "p.json", "--out", "page.html") == 0
    out = capsys.readouterr().out
    assert out.endswith("Page: page.html\n")
    found = json.loads((folder / "p.json").read_text())
    assert found["skipped"].keys() == {"clusters"} and "clusters: the posterior" in out
    assert found["check"]["logits_identical"] and found["about"]["step"] == 6
    for probe in ("fidelity", "keys", "focusing", "values", "ablation", "sublayers", "drift"):
        assert re.search(rf"^{probe} ", out, re.MULTILINE), probe
    assert len(found["keys"]) == 2 * 2 * 2 and len(found["drift"]["trained"]["steps"]) > 3
    model, tunnel = open_tunnel(runs / "bijection")
    batch = tunnel.sample(64, torch.Generator().manual_seed(EVAL_SEED))
    whole = errors(model, batch)[0].mean()
    kl = found["ablation"]["kl"]["value"]
    assert kl == pytest.approx(float(whole))
    assert f"{kl:.3g}" in next(line for line in out.splitlines() if line.startswith("fidelity"))
    page = (folder / "page.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 6
    assert "http://" not in page and "https://" not in page
    assert "ties" in page and page.count("<tr>") > 30
    assert {path.name for path in folder.iterdir()} == {"p.json", "page.html"}


def test_a_folder_holds_everything_and_an_lstm_has_no_attention(runs, capsys, folder):
    assert command(runs / "lstm", "--json", "-", "--out", "look") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["skipped"].keys() == {"keys", "focusing", "sublayers", "drift"}
    assert found["skipped"]["keys"] == "an lstm has no attention"
    assert {c["layer"] for c in found["clusters"]} == {-1, 0, 1}
    assert {m["states"] for m in found["values"]} == {"residual"}
    names = {path.name for path in (folder / "look").iterdir()}
    assert names == {"index.html", "probe.json", "fidelity.svg", "manifold.svg", "ablation.svg"}
    kept = json.loads((folder / "look" / "probe.json").read_text())
    assert kept == {name: value for name, value in found.items() if name != "run"}


def test_it_is_the_trained_model_beside_its_own_start(runs):
    subject = Subject.load(Run.open(runs / "bijection"))
    first = open_tunnel(runs / "bijection", 0)[0]
    for own, start in zip(subject.initial.parameters(), first.parameters(), strict=True):
        assert torch.equal(own, start)
    earlier = Subject.load(Run.open(runs / "bijection"), 0)
    assert earlier.step == 0 and subject.step == 6


def test_a_capture_that_cannot_be_believed_ends_it(runs, monkeypatch, capsys):
    wrong = SelfCheck(logits_identical=True, value_error=0.1, attention_error=0.0)
    monkeypatch.setattr(examination, "check_capture", lambda *_: wrong)
    assert "its probes would mean nothing" in mistake(capsys, runs / "bijection")


def test_mistakes_get_one_sentence(runs, capsys, folder):
    assert "neither here nor to be had" in mistake(capsys, "nowhere", "--out", "p.html")
    assert "the zoo has" in mistake(capsys, "zoo:elephant")
    assert "no step 99" in mistake(capsys, runs / "lstm", "--step", "99")
    assert "64 or more" in mistake(capsys, runs / "lstm", "--sequences", "3")
    assert "no folder to write in" in mistake(capsys, "nowhere", "--out", "a/b.html")
    assert "no folder to write in" in mistake(capsys, "nowhere", "--json", "a/b.json")
    (folder / "note").write_text("")
    assert "ends in .html, or a folder" in mistake(capsys, "nowhere", "--out", "note")
    shutil.copytree(runs / "lstm", folder / "empty")
    shutil.rmtree(folder / "empty" / "checkpoints")
    assert "has no checkpoint yet" in mistake(capsys, "empty")
