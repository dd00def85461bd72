"""`bayesattn tunnel train`, in this process."""

import json
from pathlib import Path

import pytest

from bayesattn.commands.main import main
from bayesattn.training import Run

SMALL = ["bijection", "--alphabet", "4", "--layers", "1", "--width", "8", "--heads", "2"]
SHORT = ["--steps", "4", "--batch-size", "8", "--threads", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def tunnel_train(*words):
    return main(["tunnel", "train", *words])


def mistake(capsys, *words):
    assert tunnel_train(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *plan, last = err.splitlines()  # what is about to be trained is said before
    assert last.startswith("bayesattn: ") and len(plan) in (0, 2)
    return f"{last}\n"


def test_flags_of_tunnel_model_and_training_stand_side_by_side(capsys):
    words = [*SMALL, *SHORT, "--replacement", "--prior", "ggd", "--prior-options", "init=mixed"]
    assert tunnel_train(*words, "--out", "run", "--labels", "sampled") == 0
    run = Run.open("run")
    assert run.config["tunnel"]["replacement"] is True
    assert run.config["architecture"]["prior_options"] == {"init": "mixed"}
    assert run.config["training"]["labels"] == "sampled"
    typed = "bayesattn tunnel train bijection --alphabet 4"
    assert run.config["command"].startswith(typed) and run.config["command"].endswith("sampled")
    assert run.finished["step"] == 4
    out = capsys.readouterr().out
    assert "mae (bits)" in out and "finished" in out


def test_the_command_of_a_run_makes_the_same_run(capsys):
    assert tunnel_train(*SMALL, *SHORT, "--out", "one") == 0
    words = Run.open("one").config["command"].replace("--out one", "--out two").split()[1:]
    assert main(words) == 0
    assert Run.open("two").finished["metrics"] == Run.open("one").finished["metrics"]


def test_the_result_as_json(capsys):
    assert tunnel_train(*SMALL, *SHORT, "--out", "run", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == "run" and found["step"] == 4
    assert found["metrics"] == Run.open("run").finished["metrics"]


def test_resume_takes_everything_from_the_run(capsys):
    assert tunnel_train(*SMALL, *SHORT, "--out", "run") == 0
    before = Run.open("run").finished
    Path("run/finished.json").unlink()
    assert tunnel_train("--resume", "run") == 0
    assert Run.open("run").finished["metrics"] == before["metrics"]
    assert tunnel_train("--resume=run", "--json", "-") == 0


@pytest.mark.parametrize("kind", ["lstm", "mlp", "mamba"])
def test_other_architectures_have_their_own_flags(capsys, kind):
    words = ["hmm", "--architecture", kind, "--layers", "1", "--width", "8", *SHORT]
    assert tunnel_train(*words, "--states", "2", "--symbols", "2", "--out", "run") == 0
    assert Run.open("run").config["architecture"]["name"] == kind


def test_where_names_clash_the_tunnel_says_its_own(capsys):
    words = ["sticky", "--tunnel.width", "5", "--width", "8", "--layers", "1", "--heads", "2"]
    assert tunnel_train(*words, *SHORT, "--out", "run") == 0
    run = Run.open("run")
    assert (run.config["tunnel"]["width"], run.config["architecture"]["width"]) == (5, 8)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nope"], "There is no tunnel 'nope': choose one of bijection, "),
        (["bijection", "--architecture", "gru", "--out", "run"], "unknown architecture 'gru'"),
        (
            ["bijection", "--architecture=lstm", "--prior", "ggd", "--out", "run"],
            "only the transformer has prior",
        ),
        (
            ["bijection", "--architecture", "lstm", "--exempt", "header", "--out", "run"],
            "only the transformer has",
        ),
        (["bijection", "--alphabet", "1", "--out", "run"], "alphabet must be"),
        (["bijection", "--alphabet", "5", "--length", "6", "--out", "run"], "length 6 needs more"),
        (["bijection", "--prior", "alibi", "--out", "run"], "unknown prior 'alibi'"),
        (["bijection", "--steps", "0", "--out", "run"], "steps must be 1 or more"),
        (["bijection", "--width", "9", "--out", "run"], "width 9 is not a multiple of heads 4"),
        (["bijection", "--prior-options", "init", "--out", "run"], "takes KEY=VALUE, not 'init'"),
        (
            ["bijection", "--prior", "ggd", "--prior-options", "x=1", "--out", "run"],
            "x",
        ),
        (["bijection"], "Say where the run is to be written: --out RUN"),
        (["bijection", "--minutes", "1", "--steps", "5", "--out", "run"], "--minutes or --steps"),
        (["bijection", "--minutes", "0", "--out", "run"], "minutes must be positive"),
        (["--resume", "nowhere"], "There is no run in nowhere"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(capsys, folder, words, sentence):
    assert sentence in mistake(capsys, *words)
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_taken_is_refused(capsys, folder):
    (folder / "thesis").mkdir()
    (folder / "thesis" / "text").write_text("")
    assert "thesis is not empty" in mistake(capsys, *SMALL, *SHORT, "--out", "thesis")
    assert tunnel_train(*SMALL, *SHORT, "--out", "run") == 0
    capsys.readouterr()
    other = mistake(capsys, *SMALL, *SHORT, "--seed", "1", "--out", "run")
    assert "training.seed (0 there, 1 now)" in other
    assert "Cannot write thesis/text" in mistake(capsys, *SMALL, *SHORT, "--out", "thesis/text")


def test_minutes_are_counted_out_once(capsys, monkeypatch):
    asked = []

    def steps_within(minutes, *_):
        asked.append(minutes)
        return 3

    monkeypatch.setattr("bayesattn.commands.train.steps_within", steps_within)
    words = [*SMALL, "--batch-size", "8", "--minutes", "0.5", "--out", "run"]
    assert tunnel_train(*words) == 0
    assert Run.open("run").config["training"]["steps"] == 3
    assert tunnel_train(*words) == 0  # the same command continues, without timing again
    assert asked == [0.5]


def test_a_training_that_fails_says_so_in_one_sentence(capsys):
    words = [*SMALL, *SHORT, "--lr", "1e30", "--warmup", "0", "--decay", "0", "--clip", "None"]
    sentence = mistake(capsys, *words, "--out", "run")
    assert "so training stopped; the checkpoint of step" in sentence


def test_help_without_a_tunnel_lists_them(capsys):
    assert tunnel_train("--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "bijection, hmm, recall, revision, sticky, hops, group, mess3 or rrxor" in out
    assert "transformer, lstm, mamba or mlp" in out
