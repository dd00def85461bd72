"""`bayesattn tunnel fidelity` and `tunnel show` on small runs."""

import json

import pytest

from bayesattn.commands.main import main
from bayesattn.evals.fidelity import measure
from bayesattn.models.architectures import Transformer
from bayesattn.models.open import open_tunnel
from bayesattn.probes import selfcheck
from bayesattn.probes.beliefs import measure_beliefs
from bayesattn.probes.examine_tunnel import TunnelSubject
from bayesattn.probes.measured import held_out
from bayesattn.probes.selfcheck import SelfCheck
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.tunnels import HMM, RRXOR, Bijection

ARCHITECTURE = Transformer(layers=1, width=16, heads=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of runs of a few steps, by tunnel."""
    folder = tmp_path_factory.mktemp("runs")
    config = TrainConfig(steps=3, batch_size=4, checkpoint_every=2, threads=1)
    tunnels = {"hmm": HMM(3, 3, 4), "bijection": Bijection(5, 4), "rrxor": RRXOR(6)}
    for name, tunnel in tunnels.items():
        train_tunnel(tunnel, ARCHITECTURE, config, folder / name, progress=False)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def command(*words):
    return main(["tunnel", *map(str, words)])


def mistake(capsys, *words):
    assert command(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("bayesattn: ") and err.count("\n") == 1
    return err


def test_table_and_json_say_the_same(runs, capsys):
    words = ("--length", "3x", "--sequences", "50", "--json", "f.json")
    assert command("fidelity", runs / "hmm", *words) == 0
    out = capsys.readouterr().out
    with open("f.json") as file:
        found = json.load(file)
    assert found["run"]["step"] == 3 and found["run"]["architecture"]["name"] == "transformer"
    table = [line.split() for line in out.splitlines()]
    for row in found["rows"]:
        if row["predictor"] in ("model", "bayes", "uniform"):
            start = [row["part"], row["steps"], row["predictor"], f"{row['kl']:.4f}"]
            assert start in [line[:4] for line in table]
    assert {row["steps"] for row in found["rows"]} == {"1-4", "5-12"}
    assert "Hidden states renamed" in out
    assert len(found["relabelling"]["layers"]) == 2


def test_it_is_the_trained_model_that_is_measured(runs, capsys):
    assert command("fidelity", runs / "bijection", "--sequences", "50", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    model, tunnel = open_tunnel(runs / "bijection")
    expected = json.loads(json.dumps(measure(model, tunnel, sequences=50).to_json()))
    assert {name: found[name] for name in expected} == expected
    assert "relabelling" not in found
    assert found["run"]["parameters"] == sum(p.numel() for p in model.parameters())


def test_an_earlier_checkpoint_can_be_measured(runs, capsys):
    words = ("--sequences", "50", "--step", "2", "--json", "-")
    assert command("fidelity", runs / "bijection", *words) == 0
    found = json.loads(capsys.readouterr().out)
    earlier, last = (
        measure(*open_tunnel(runs / "bijection", step), sequences=50).rows() for step in (2, 3)
    )
    assert found["rows"] == earlier != last and found["run"]["step"] == 2


def test_interval_stands_under_the_model(runs, capsys):
    command("fidelity", runs / "bijection", "--sequences", "50")
    lines = [
        line for line in capsys.readouterr().out.splitlines() if "model" in line or "…" in line
    ]
    assert "95% from…to" in lines[1] and "recall" not in lines[0]


@pytest.mark.parametrize("words", [[], ["--length", "2x", "--examples", "1", "--seed", "3"]])
def test_show_writes_a_figure(runs, capsys, folder, words):
    assert command("show", runs / "hmm", "--sequences", "50", *words) == 0
    assert capsys.readouterr().out == "fidelity.svg\n"
    assert "<svg" in (folder / "fidelity.svg").read_text()


def test_the_numbers_of_a_figure_as_json(runs, capsys, folder):
    words = ("--sequences", "50", "--out", "a.png", "--json", "-")
    assert command("show", runs / "bijection", *words) == 0
    found = json.loads(capsys.readouterr().out)
    model, tunnel = open_tunnel(runs / "bijection")
    assert found["rows"] == measure(model, tunnel, sequences=50).rows()
    assert found["image"] == "a.png" and (folder / "a.png").exists()


@pytest.mark.parametrize("name", ["hmm", "rrxor"])
def test_show_beliefs_draws_and_tells_what_is_measured(runs, capsys, folder, name):
    words = ("--beliefs", "--sequences", "64", "--json", "beliefs.json")
    assert command("show", runs / name, *words) == 0
    out = capsys.readouterr().out
    assert out.endswith("beliefs.svg\n") and "<svg" in (folder / "beliefs.svg").read_text()
    found = json.loads((folder / "beliefs.json").read_text())
    subject = TunnelSubject.load(Run.open(runs / name))
    batch = held_out(subject.tunnel, 64)
    expected = measure_beliefs(subject.model, subject.tunnel, batch, subject.initial)
    assert found["readouts"] == json.loads(json.dumps(expected.to_json()))["readouts"]
    assert found["hidden_states"] == {"hmm": 3, "rrxor": 5}[name]
    assert found["run"]["step"] == 3 and found["image"] == "beliefs.svg"
    table = {line[:22].strip(): line.split() for line in out.splitlines()}
    for one in found["readouts"]:
        assert f"{one['r_squared']['value']:.4f}" in table[one["states"]]
        assert f"{one['r_squared']['nulls']['untrained']:.4f}" in table[one["states"]]
    for null in ("next token", "function of next token", "own logits"):
        nulls = found["readouts"][-1]["r_squared"]["nulls"]
        assert f"{nulls[null]:.4f}" in table[null]


def test_nothing_is_read_from_states_that_are_not_the_models(runs, capsys, folder, monkeypatch):
    monkeypatch.setattr(selfcheck, "check_capture", lambda *_: SelfCheck({"values": 0.1}))
    sentence = mistake(capsys, "show", runs / "rrxor", "--beliefs", "--sequences", "64")
    assert "off: values by 0.1" in sentence
    assert list(folder.iterdir()) == []


def test_mistakes_get_one_sentence(runs, capsys, folder):
    assert "no run in nowhere" in mistake(capsys, "fidelity", "nowhere")
    assert "a multiple such as 8x" in mistake(capsys, "fidelity", runs / "hmm", "--length", "ten")
    assert "alphabet of 5" in mistake(capsys, "fidelity", runs / "bijection", "--length", "10x")
    assert "no step 7" in mistake(capsys, "fidelity", runs / "hmm", "--step", "7")
    assert "2 or more" in mistake(capsys, "fidelity", runs / "hmm", "--sequences", "1")
    assert "must end in" in mistake(capsys, "show", runs / "hmm", "--out", "a.jpg")
    assert "--examples" in mistake(capsys, "show", runs / "hmm", "--examples", "0")
    sentence = mistake(capsys, "show", runs / "bijection", "--beliefs")
    assert "not defined in the bijection tunnel: take one of hmm, sticky, mess3, rrxor" in sentence
    words = ("--beliefs", "--length", "2x")
    assert "leave --length out" in mistake(capsys, "show", runs / "rrxor", *words)
    words = ("--beliefs", "--sequences", "5")
    assert "sequences: 5 is too few" in mistake(capsys, "show", runs / "rrxor", *words)
    words = ("--sequences", "10", "--json", "missing/f.json")
    assert "missing" in mistake(capsys, "fidelity", runs / "hmm", *words)
    assert list(folder.iterdir()) == []
