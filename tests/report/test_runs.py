"""Pages about runs, and figures once more."""

import json
import shutil
from pathlib import Path

import pytest

from bayesattn.claims import Tier
from bayesattn.claims.registry import find_study
from bayesattn.commands.main import main
from bayesattn.ledger.ledger import NAME, add_record
from bayesattn.models.architectures import LSTM, Transformer
from bayesattn.report.runs import exhibits, render_runs
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import Bijection
from tests.ledger.toy import run_study
from tests.report.test_page import Page


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    config = TrainConfig(steps=4, batch_size=4, log_every=2, evaluate_every=2)
    architectures = {"a": Transformer(layers=1, width=16, heads=2), "b": LSTM(layers=1, width=16)}
    for name, architecture in architectures.items():
        train_tunnel(Bijection(4), architecture, config, folder / name, progress=False)
    return folder


def data_of(page, name):
    (script,) = page.all("script", id=f"data-{name}")
    return json.loads(script["text"])


def test_runs_given_together_are_drawn_on_the_same_axes(runs):
    kinds = {name: [e.kind for e in exhibits(Run.open(runs / name))] for name in "ab"}
    assert kinds == {"a": ["beliefs", "manifold"], "b": []}
    page = Page(render_runs([runs / "a", runs / "b"]))
    assert [e["text"] for e in page.all("h2")] == ["How they learnt", "a", "b"]
    assert len(page.all("div", **{"class": "part"})) == 5  # mae, kl and loss of both; a's own two
    drawn = {
        data["yLabel"]: data["series"]
        for at in range(3)
        if (data := data_of(page, f"together-{at}"))
    }
    for label, key in (("KL(Bayes ‖ model), bits", "kl"), ("training loss, nats", "loss")):
        for own in drawn[label]:
            logged = [line for line in Run.open(runs / own["name"]).metrics() if key in line]
            assert own["x"] == [line["step"] for line in logged]
            assert own["y"] == [line[key] for line in logged]
        assert [own["name"] for own in drawn[label]] == ["a", "b"]
    assert [e["text"] for e in Page(render_runs([runs / "a"])).all("h2")] == ["How it learnt", "a"]


def test_runs_of_one_name_are_told_apart_by_their_folders(runs, tmp_path):
    other = tmp_path / "a"
    shutil.copytree(runs / "a", other)
    page = Page(render_runs([runs / "a", other]))
    assert [e["text"] for e in page.all("h2")][1:] == [str(runs / "a"), str(other)]


def test_runs_of_different_tasks_are_refused_in_one_sentence(runs, tmp_path, capsys):
    shutil.copytree(runs / "a", tmp_path / "text")
    config = json.loads((tmp_path / "text" / "config.json").read_text())
    del config["tunnel"], config["checksum"]
    (tmp_path / "text" / "config.json").write_text(json.dumps(config))
    words = ["report", str(runs / "b"), str(tmp_path / "text"), "-o", str(tmp_path / "x.html")]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "b is of the tunnel bijection, text is a language model" in err and err.count("\n") == 1


def test_the_command_takes_runs_or_a_ledger(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(runs / "a"), "-o", "page.html"]) == 0
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert main(["report", str(runs / "a"), "--figures", "x"]) == 2
    assert "made from a ledger" in capsys.readouterr().err
    assert main(["report", str(runs / "a"), str(runs), "-o", "page.html"]) == 2
    assert "There is no run in" in capsys.readouterr().err


def test_figures_can_be_drawn_again_for_papers(tmp_path, capsys):
    study = find_study("bam-size")
    add_record(tmp_path / NAME, run_study(study, Tier.QUICK, tmp_path))
    assert main(["report", str(tmp_path), "--figures", str(tmp_path / "png")]) == 0
    (figure,) = (tmp_path / "png").iterdir()
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert str(figure) in capsys.readouterr().out
