"""Pages about runs, and figures once more."""

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


def test_a_page_shows_how_runs_learnt_and_what_they_believe(runs):
    kinds = {name: [e.kind for e in exhibits(Run.open(runs / name))] for name in "ab"}
    assert kinds["a"] == ["curves", "curves", "curves", "beliefs", "manifold"]
    assert kinds["b"] == ["curves", "curves", "curves"]
    page = Page(render_runs([runs / "a", runs / "b"]))
    assert [e["text"] for e in page.all("h2")] == ["a", "b"]
    assert len(page.all("div", **{"class": "part"})) == 8


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
