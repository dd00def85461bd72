"""Checkpoints are whole or not there."""

import errno
import os

import pytest
import torch
from safetensors import SafetensorError

from bayesattn import files
from bayesattn.errors import DamagedCheckpointError, WriteError
from bayesattn.runs import checkpoint
from bayesattn.runs.checkpoint import (
    checkpoint_steps_in,
    last_good_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    save_checkpoint,
)
from tests.training.toy import ToyTask, assert_same, toy_config, toy_train


def save(root, step, value=0.0):
    tensors = {"model": {"w": torch.full((3,), float(value))}, "optimizer": {}}
    save_checkpoint(root, step, tensors, {"note": "hello"})


def test_what_was_saved_is_read(tmp_path):
    save(tmp_path, 12, 1.5)
    found = last_good_checkpoint(tmp_path)
    assert (found.step, found.state["note"]) == (12, "hello")
    assert found.folder == tmp_path / "step-000012"
    assert found.tensors("model")["w"].tolist() == [1.5] * 3
    assert found.has("optimizer") and not found.has("ema")
    assert {path.stat().st_mode & 0o777 for path in found.folder.iterdir()} == {0o644}


def test_saving_again_replaces(tmp_path):
    save(tmp_path, 12, 1)
    save(tmp_path, 12, 2)
    assert read_checkpoint(tmp_path, 12).tensors("model")["w"][0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["step-000012"]


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert last_good_checkpoint(tmp_path) is None
    assert checkpoint_steps_in(tmp_path / "nowhere") == []


def test_two_checkpoints_and_the_wanted_ones_are_kept(tmp_path):
    for step in range(0, 60, 10):
        save(tmp_path, step)
        prune_checkpoints(tmp_path, keep={0, 20})
    assert checkpoint_steps_in(tmp_path) == [0, 20, 40, 50]
    assert len(list(tmp_path.iterdir())) == 4


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def nonsense(path):
    path.write_text('{"step": 20}')


DAMAGES = [
    *[(damage, "model.safetensors") for damage in (truncate, flip, empty, remove)],
    *[(damage, "state.json") for damage in (truncate, empty, remove, nonsense)],
    (flip, "optimizer.safetensors"),
]


@pytest.mark.parametrize(("damage", "name"), DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path, damage, name):
    save(tmp_path, 10)
    save(tmp_path, 20)
    damage(tmp_path / "step-000020" / name)
    with pytest.raises(DamagedCheckpointError, match="step-000020 is damaged"):
        read_checkpoint(tmp_path, 20)
    with pytest.warns(UserWarning, match="step-000020 is damaged .* Going back"):
        assert last_good_checkpoint(tmp_path).step == 10


def test_a_run_goes_on_from_the_checkpoint_before_the_damaged_one(tmp_path):
    whole, *_ = toy_train(tmp_path / "whole")
    run, *_ = toy_train(tmp_path / "run")
    (run.folder / "finished.json").unlink()
    truncate(run.checkpoints / "step-000030" / "optimizer.safetensors")
    task = ToyTask()
    with pytest.warns(UserWarning, match="step-000030 is damaged"):
        again, *_ = toy_train(tmp_path / "run", task=task)
    assert task.losses == 5
    assert_same(whole, again)


def test_a_run_whose_checkpoints_are_all_damaged_begins_again(tmp_path):
    whole, *_ = toy_train(tmp_path / "whole")
    run, *_ = toy_train(tmp_path / "run")
    (run.folder / "finished.json").unlink()
    for step in run.steps():
        truncate(run.checkpoints / f"step-{step:06d}" / "state.json")
    with pytest.warns(UserWarning, match="is damaged"):
        again, *_ = toy_train(tmp_path / "run")
    assert_same(whole, again)


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_space_in_safetensors(*_, **__):
    raise SafetensorError("Error while serializing: IoError(Os { code: 28, kind: StorageFull })")


@pytest.mark.parametrize(
    ("module", "name", "failure"),
    [
        (checkpoint, "save_file", no_space_in_safetensors),
        (checkpoint, "save_file", no_space),
        (files, "sync", no_space),
        (files, "with_checksum", no_space),
    ],
)
def test_a_full_disk_costs_only_the_new_checkpoint(tmp_path, monkeypatch, module, name, failure):
    whole, *_ = toy_train(tmp_path / "whole")
    original, calls = getattr(module, name), []

    def fill_up(*arguments, **settings):
        calls.append(name)
        return (failure if len(calls) > 9 else original)(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, fill_up)
        with pytest.raises(WriteError) as error:
            toy_train(tmp_path / "run", toy_config(checkpoint_every=1))
    sentence = str(error.value)
    assert "Cannot write the checkpoint of step" in sentence and "is kept" in sentence
    assert "No space left" in sentence or "StorageFull" in sentence
    folder = tmp_path / "run" / "checkpoints"
    assert len(checkpoint_steps_in(folder)) == 2
    assert not list(folder.glob(".*"))
    assert f"step {checkpoint_steps_in(folder)[-1]} is kept" in sentence
    again, *_ = toy_train(tmp_path / "run", toy_config(checkpoint_every=1))
    assert_same(whole, again)


def test_a_disk_that_is_full_from_the_start_is_found_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "save_file", no_space)
    task = ToyTask()
    with pytest.raises(WriteError, match="checkpoint of step 0 .* nothing is saved yet"):
        toy_train(tmp_path / "run", task=task)
    assert task.losses == 0


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    run, *_ = toy_train(tmp_path / "run")
    (run.folder / "finished.json").unlink()
    (run.checkpoints / ".tmp-step-000099").mkdir()
    (run.checkpoints / ".tmp-step-000099" / "model.safetensors").write_text("half")
    (run.folder / ".tmp-finished.json").write_text("{")
    toy_train(tmp_path / "run")
    assert not list(run.folder.rglob(".tmp*"))
