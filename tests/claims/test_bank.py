"""The bank: what its file says is what is trained, once; who misses a model is told the command."""

import json
from dataclasses import replace

import pytest
import torch

from bayesattn.claims import bank
from bayesattn.commands.bank import Display
from bayesattn.commands.main import main
from bayesattn.errors import UserError
from bayesattn.evals.fidelity import measure
from bayesattn.ledger.engines import Here
from bayesattn.ledger.trained import rename_older_runs
from bayesattn.models.architectures import count_parameters
from bayesattn.runs import Run

TOY = """
[architectures]
small = { layers = 1, width = 16, heads = 2, encoding = "learned" }

[models.T-never]
about = "a toy"
architecture = "small"
tunnel = { name = "bijection", alphabet = 4 }
training = { steps = 4, batch_size = 8 }
aim = 2.0
seeds = 2

[models.T-again]
about = "another toy"
architecture = "small"
tunnel = { name = "bijection", alphabet = 4, replacement = true }
training = { steps = 4, batch_size = 8 }
aim = 2.0
seeds = 1
"""


@pytest.fixture(autouse=True)
def toys(tmp_path, monkeypatch):
    """A bank of tiny models, all of whose runs are below a folder of the test."""
    file = tmp_path / "toys.toml"
    file.write_text(TOY)
    monkeypatch.setattr(bank, "FILE", file)
    monkeypatch.setattr(bank, "SEQUENCES", 50)
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    return file


def test_a_model_is_trained_and_measured_once_where_its_name_says(tmp_path, monkeypatch):
    one = bank.training("T-never", 1)
    assert one.known() is None
    run = one.train()
    assert run.folder.parent == tmp_path / "runs" / "bank"
    assert run.folder.name.startswith("T-never-1-")
    known = one.found().known()
    slow = measure(one.model(), one.tunnel, sequences=50).parts["inside"]
    by_hand = slow.scores["model"].entropy_error.abs().mean().item()
    assert known.mae_tok == pytest.approx(by_hand)
    assert known.kl == pytest.approx(slow.scores["model"].kl.mean().item())
    assert known.recall is None
    assert known.seconds == Run.open(one.folder).finished["seconds"]
    monkeypatch.setattr(bank, "measure", None)  # whoever measured again would fail
    monkeypatch.setattr("bayesattn.training.loop.train", None)
    one.train()


def test_recall_is_known_where_keys_return():
    one = bank.training("T-again", 0)
    one.train()
    assert 0 <= one.known().recall <= 1


def test_another_recipe_is_another_model_and_words_for_people_are_not(toys):
    before = bank.digest("T-never"), bank.training("T-never", 0).folder
    toys.write_text(TOY.replace('"a toy"', '"a fine toy"').replace("seeds = 2", "seeds = 9"))
    bank.read_bank.cache_clear()
    assert (bank.digest("T-never"), bank.training("T-never", 0).folder) == before
    toys.write_text(TOY.replace("batch_size = 8", "batch_size = 16"))
    bank.read_bank.cache_clear()
    assert bank.digest("T-never") != before[0]
    assert bank.training("T-never", 0).folder != before[1]


def test_a_stopped_training_goes_on_and_ends_the_same(monkeypatch):
    straight = bank.training("T-never", 0)
    weights = {name: x.clone() for name, x in straight.model().state_dict().items()}
    straight.folder.rename(straight.folder.with_name("kept"))

    real = Run.log

    def kill(self, line):
        real(self, line)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "log", kill)
    stopped = replace(straight, config=replace(straight.config, log_every=2, checkpoint_every=1))
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    monkeypatch.setattr(Run, "log", real)
    assert stopped.known() is None and stopped.folder.exists()
    after = stopped.model().state_dict()
    assert all(torch.equal(weights[name], after[name]) for name in weights)


def test_a_missing_model_is_answered_with_the_command(capsys):
    with pytest.raises(UserError) as error:
        bank.training("T-never", 3).found()
    sentence = str(error.value)
    assert sentence.startswith("The bank has no T-never with seed 3: train it with `bayesattn ")
    command = sentence.split("`")[1].removeprefix("bayesattn ").split()
    assert command == ["claims", "bank", "--train", "T-never", "--seeds", "4"]


def test_a_damaged_record_is_told_in_one_sentence():
    one = bank.training("T-never", 0)
    one.train()
    for text in ("{", '{"kl": 1}'):
        (one.folder / bank.FIDELITY).write_text(text)
        with pytest.raises(UserError, match=r"fidelity\.json is damaged .*remove it"):
            one.known()


def test_a_damaged_file_is_told_in_one_sentence(toys):
    toys.write_text(TOY.replace("aim = 2.0", 'aim = "much"'))
    bank.read_bank.cache_clear()
    with pytest.raises(UserError, match=r"toys\.toml: models: aim: 'much' is no float"):
        bank.models()


def test_runs_of_older_versions_keep_model_and_seed_in_their_name():
    one = bank.training("T-never", 0)
    one.train()
    old = one.folder.with_name("T-never-0-0123456789ab")
    one.folder.rename(old)
    rename_older_runs()
    assert not old.exists() and one.known() is not None


def answer(capsys, *words):
    code = main(["claims", "bank", *words, "--json", "-"])
    return code, {one["name"]: one for one in json.loads(capsys.readouterr().out)}


def test_the_command_lists_and_trains_what_is_missing(capsys):
    code, listed = answer(capsys)
    assert code == 0 and list(listed) == ["T-never", "T-again"]
    assert [one["seeds"] for one in listed.values()] == [[], []]
    toy = bank.training("T-never", 0)
    assert listed["T-never"]["parameters"] == count_parameters(toy.architecture, toy.tunnel)
    code, listed = answer(capsys, "--train", "--workers", "2")
    assert code == 0
    assert [len(one["seeds"]) for one in listed.values()] == [2, 1]
    times = {path: path.stat().st_mtime_ns for path in toy.folder.parent.glob("*/finished.json")}
    code, listed = answer(capsys, "--train", "T-again", "--seeds", "2")
    assert code == 0 and [len(one["seeds"]) for one in listed.values()] == [2]
    assert all(path.stat().st_mtime_ns == when for path, when in times.items())
    assert main(["claims", "bank"]) == 0
    table = capsys.readouterr().out
    assert "2 of 2" in table and f"{listed['T-again']['parameters']:,}" in table


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["T-nevr"], "unknown model of the bank 'T-nevr' (did you mean 'T-never'?)"),
        (["--train", "--seeds", "0"], "--seeds must be 1 to 10,000, not 0."),
        (["--train", "--workers", "0"], "--workers must be 1 to 10,000, not 0."),
        (["--address", "here:1"], "pass --on ray with it"),
    ],
)
def test_bad_input_is_one_sentence(capsys, words, sentence):
    assert main(["claims", "bank", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_ray_is_asked_at_its_address(monkeypatch, capsys):
    asked = []

    def workers(address):
        asked.append(address)
        return Here()

    monkeypatch.setattr("bayesattn.commands.bank.RayWorkers", workers)
    code, listed = answer(capsys, "T-again", "--train", "--on", "ray", "--address", "host:1")
    assert (code, asked) == (0, ["host:1"])
    assert len(listed["T-again"]["seeds"]) == 1


def test_a_log_tells_how_far_trainings_are(monkeypatch, capsys):
    one = bank.training("T-never", 0)
    one.train()
    display = Display({one.folder.name: one})
    display.tell()
    assert capsys.readouterr().err == ""  # not yet
    monkeypatch.setattr("bayesattn.commands.bank.QUIET", -1.0)
    display.tell()
    said = capsys.readouterr().err
    assert said.startswith("0/1 trained after 0 min: T-never-0, ") and "step 4 of 4" in said


def test_a_failed_training_is_told_and_fails_the_command(toys, capsys):
    toys.write_text(TOY.replace("steps = 4", "steps = 4, clip = 0.001, lr = 1e30"))
    bank.read_bank.cache_clear()
    assert main(["claims", "bank", "--train", "T-again"]) == 1
    said = capsys.readouterr()
    assert "T-again-0: " in said.err and "smaller lr" in said.err
    assert "0 of 1" in said.out
