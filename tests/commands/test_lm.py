"""`bayesattn lm train`, `lm generate` and `lm export`, in this process."""

import io
import json
from pathlib import Path

import pytest

from bayesattn.commands.main import main
from bayesattn.models.open import open_language
from bayesattn.training import Run, loop
from bayesattn.training.recipes import LANGUAGE_RECIPES
from tests.training.language_toy import STEPS

SMALL = ["--size", "nano", "--layers", "1", "--width", "16", "--heads", "2", "--length", "112"]
SHORT = ["--steps", "3", "--batch-size", "4", "--threads", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def train(corpus, *words):
    return main(["lm", "train", *words, *SMALL, *SHORT, "--corpus", str(corpus)])


def mistake(capsys, *words):
    assert main(["lm", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *before, last = err.splitlines()  # what a training reads is said before
    assert last.startswith("bayesattn: ") and all(line.startswith("Reads ") for line in before)
    return last


def test_a_recipe_is_changed_by_options(capsys, corpus):
    words = ["tiny", "--out", "run", "--no-ssmax", "--encoding", "rope", "--sliding-window", "50"]
    assert train(corpus, *words, "--rope-parameters", "rope_theta=10000", "--lr", "1e-3") == 0
    run = Run.open("run")
    chosen = run.config["language"]
    assert (chosen["ssmax"], chosen["encoding"], chosen["sliding_window"]) == (False, "rope", 50)
    assert chosen["rope_parameters"] == {"rope_theta": 10_000}
    assert chosen["global_layers"] == "last"  # the recipe's
    assert run.config["training"]["lr"] == 1e-3
    assert run.config["command"].startswith("bayesattn lm train tiny --out run --no-ssmax")
    out = capsys.readouterr().out
    for heading in ("held-out loss (nats/token)", "bits per byte", "finished"):
        assert heading in out


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--prior", "laplace"], {}),
        (["--prior", "ggd"], {}),
        (
            ["--prior-options", "init=uniform", "learn_mu=true"],
            {"init": "uniform", "learn_mu": True},
        ),
    ],
)
def test_options_of_another_prior_are_not_the_recipes(corpus, words, options):
    assert train(corpus, "--out", "run", *words) == 0
    assert Run.open("run").config["language"].get("prior_options", {}) == options


def test_the_command_of_a_run_makes_the_same_run(corpus):
    assert train(corpus, "--out", "one") == 0
    words = Run.open("one").config["command"].replace("--out one", "--out two").split()[1:]
    assert main(words) == 0
    assert Run.open("two").finished["metrics"] == Run.open("one").finished["metrics"]


def test_resume_takes_everything_from_the_run(capsys, corpus):
    assert train(corpus, "--out", "run") == 0
    before = Run.open("run").finished
    Path("run/finished.json").unlink()
    capsys.readouterr()
    assert main(["lm", "train", "--resume", "run", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == "run" and found["metrics"] == before["metrics"]


def test_minutes_are_counted_out_once(corpus, monkeypatch):
    asked = []

    def steps_within(minutes, *_):
        asked.append(minutes)
        return 2

    monkeypatch.setattr("bayesattn.commands.train.steps_within", steps_within)
    words = [*SMALL, "--batch-size", "4", "--corpus", str(corpus), "--minutes", "0.5"]
    for _ in range(2):  # the same command continues, without timing again
        assert main(["lm", "train", "tiny", *words, "--out", "run"]) == 0
    assert Run.open("run").config["training"]["steps"] == 2
    assert asked == [0.5]


def test_minutes_are_really_timed(corpus, monkeypatch):
    monkeypatch.setattr(loop, "TIMED", 3)
    words = [*SMALL, "--batch-size", "4", "--corpus", str(corpus), "--threads", "1"]
    assert main(["lm", "train", *words, "--minutes", "0.001", "--out", "run"]) == 0
    assert Run.open("run").finished["step"] >= 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tny"], "There is no recipe 'tny': did you mean 'tiny'? choose one of tiny, "),
        (["tiny"], "Say where the run is to be written: --out RUN"),
        (["tiny", "--length", "1", "--out", "run"], "length must be 2 or more"),
        (
            ["tiny", "--length", "20", "--needle-share", "0.9", "--out", "run"],
            "does not fit into 20",
        ),
        (["tiny", "--prior", "alibi", "--out", "run"], "unknown prior 'alibi'"),
        (["tiny", "--prior-options", "init", "--out", "run"], "--prior-options takes KEY=VALUE"),
        (["tiny", "--rope-parameters", "x=1", "--out", "run"], "need encoding 'rope'"),
        (["tiny", "--accumulate", "5", "--out", "run"], "cannot be cut into 5 equal pieces"),
        (["tiny", "--minutes", "1", "--steps", "5", "--out", "run"], "--minutes or --steps"),
        (["tiny", "--corpus", "nowhere.txt", "--out", "run"], "nowhere.txt"),
        (["tiny", "--tokenizer", "nowhere", "--out", "run"], "There is no tokenizer 'nowhere'"),
        (["--resume", "nowhere"], "There is no run in nowhere"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(capsys, folder, corpus, words, sentence):
    assert sentence in mistake(capsys, "train", *words)
    assert list(folder.iterdir()) == []


def test_a_tunnel_is_not_continued_as_a_language_model(capsys):
    small = ["--alphabet", "4", "--layers", "1", "--width", "8", "--heads", "2"]
    assert main(["tunnel", "train", "bijection", *small, *SHORT, "--out", "run"]) == 0
    capsys.readouterr()
    assert "is not of a language model" in mistake(capsys, "train", "--resume", "run")


def test_generate(capsys, trained, monkeypatch):
    source = str(trained.folder)
    assert main(["lm", "generate", source, "The sky is", "--tokens", "5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The sky is")
    assert main(["lm", "generate", source, "The sky is", "--tokens", "5", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt"] + found["continuation"] + "\n" == out
    monkeypatch.setattr("sys.stdin", io.StringIO("The sky is"))
    assert main(["lm", "generate", source, "-", "--tokens", "5"]) == 0
    assert capsys.readouterr().out == out


def test_generate_draws_by_seed(capsys, trained):
    def drawn(*words):
        command = ["lm", "generate", str(trained.folder), "The sky", "--temperature", "1"]
        assert main([*command, *words]) == 0
        return capsys.readouterr().out

    assert drawn("--seed", "1") == drawn("--seed", "1") != drawn("--seed", "2")


def test_generate_is_what_the_model_holds_most_probable(capsys, trained):
    """Without a cache, token by token."""
    found = open_language(trained)
    tokens = found.tokenizer("The sky is", return_tensors="pt").input_ids
    count = tokens.shape[1]
    for _ in range(5):
        best = found.model(tokens, use_cache=False).logits[:, -1].argmax(-1)
        tokens = tokens.new_tensor([[*tokens[0].tolist(), best.item()]])
    expected = found.tokenizer.decode(tokens[0, count:], skip_special_tokens=True)
    assert main(["lm", "generate", str(trained.folder), "The sky is", "--tokens", "5"]) == 0
    assert capsys.readouterr().out == f"The sky is{expected}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["RUN", ""], "The prompt is empty"),
        (["RUN", "x", "--tokens", "0"], "tokens must be 1 or more"),
        (["RUN", "x", "--temperature", "-1"], "temperature must be 0 or more"),
        (["RUN", "x", "--step", "77"], f"has no step 77; it has 6, {STEPS}"),
        (["./nowhere", "x"], "There is no ./nowhere: name the folder"),
    ],
)
def test_mistakes_of_generate(capsys, trained, words, sentence):
    words = [str(trained.folder) if word == "RUN" else word for word in words]
    assert sentence in mistake(capsys, "generate", *words)


def test_export(capsys, trained):
    assert main(["lm", "export", str(trained.folder), "model"]) == 0
    assert capsys.readouterr().out == "Wrote model.\n"
    assert open_language("model").length == 112
    assert "is there already" in mistake(capsys, "export", str(trained.folder), "model")
    assert "is neither on this machine nor on the" in mistake(capsys, "export", "nowhere", "other")


def test_help_shows_the_recipes_own_defaults(capsys):
    for name in ("tiny", "l6"):
        with pytest.raises(SystemExit):
            main(["lm", "train", name, "--help"])
        out = capsys.readouterr().out
        language, training = LANGUAGE_RECIPES[name]()
        assert f"(default: {training.steps})" in out and f"(default: {language.length})" in out
        assert "--labels" not in out and "--lengths" not in out and "--no-ssmax" in out
