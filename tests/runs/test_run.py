import json
import platform

import pytest

from bayesattn.errors import RunError, WriteError
from bayesattn.training import Run
from tests.training.toy import toy_config, toy_train


def test_a_run_is_created_once_and_opened_ever_after(tmp_path):
    config = {"training": {"steps": 3, "betas": (0.9, 0.99)}, "command": "one"}
    run = Run.create(tmp_path / "deep" / "run", config)
    assert run.config["training"]["betas"] == [0.9, 0.99]
    assert Run.open(tmp_path / "deep" / "run").config == run.config
    assert Run.create(run.folder, {**config, "command": "two"}).config["command"] == "one"
    assert run.finished is None and run.metrics() == [] and run.steps() == []


def test_the_environment_has_versions_threads_and_nothing_personal(tmp_path):
    run = Run.create(tmp_path, {})
    assert run.environment["threads"] >= 1
    assert run.environment["torch"].startswith("2.")
    assert platform.node() not in json.dumps(run.environment)


def test_another_config_is_refused_by_naming_what_differs(tmp_path):
    Run.create(tmp_path, {"tunnel": {"alphabet": 10, "length": 9}, "training": {"ema": None}})
    with pytest.raises(RunError) as error:
        Run.create(tmp_path, {"tunnel": {"alphabet": 20, "length": 9}, "training": {"ema": 0.9}})
    sentence = str(error.value)
    assert "tunnel.alphabet (10 there, 20 now)" in sentence
    assert "training.ema (nothing there, 0.9 now)" in sentence
    assert "length" not in sentence


def test_a_config_with_more_or_fewer_parts_is_another(tmp_path):
    Run.create(tmp_path, {"tunnel": {"alphabet": 10}})
    with pytest.raises(RunError, match="extra"):
        Run.create(tmp_path, {"tunnel": {"alphabet": 10}, "extra": 1})
    with pytest.raises(RunError, match="tunnel"):
        Run.create(tmp_path, {})


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="not empty \\(thesis.txt is in it\\)"):
        Run.create(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_that_died_while_being_created_is_created_again(tmp_path):
    (tmp_path / ".tmp-config.json").write_text("{")
    Run.create(tmp_path, {"a": 1})
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "environment.json").write_text("{}")
    assert Run.create(tmp_path / "second", {"a": 1}).environment["threads"] >= 1


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="Cannot write .*file.* choose another folder"):
        Run.create(tmp_path / "file", {})
    with pytest.raises(WriteError, match="Cannot write"):
        Run.create(tmp_path / "file" / "run", {})


def test_no_run_and_a_damaged_one(tmp_path):
    with pytest.raises(RunError, match="There is no run in .*nothing"):
        Run.open(tmp_path / "nothing")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match="config.json in .* is damaged"):
        Run.open(tmp_path)


def test_two_trainings_may_not_share_a_run(tmp_path):
    run = Run.create(tmp_path / "run", {"training": vars(toy_config())})
    with (
        run.locked(),
        pytest.raises(RunError, match=r"Another process \(\d+, since .*\) is training in"),
    ):
        toy_train(tmp_path / "run")
    toy_train(tmp_path / "run")


def test_metrics_are_lines_and_half_a_line_is_none(tmp_path):
    run = Run.create(tmp_path, {})
    for step in (1, 2, 3):
        run.log({"step": step, "loss": 0.1 * step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    run.rewind(2)
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
    run.log({"step": 3})
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    run.rewind(-1)
    assert run.metrics() == []


def test_a_full_disk_while_logging_is_one_sentence(tmp_path):
    run = Run.create(tmp_path, {})
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(WriteError, match="metrics.jsonl .*No space left on device"):
        run.log({"step": 1})


def test_checkpoints_by_step(tmp_path):
    run, *_ = toy_train(tmp_path / "run", toy_config(dynamics=True, steps=10))
    assert run.steps() == list(range(11))
    assert run.checkpoint(3).step == 3
    assert run.checkpoint().step == 10
    with pytest.raises(RunError, match="no step 99; it has 0, 1, 2"):
        run.checkpoint(99)
    with pytest.raises(RunError, match="no checkpoint yet"):
        Run.create(tmp_path / "other", {}).checkpoint()
