"""One step: the whole batch, some rows of it, or piece after piece."""

import pytest
import torch

from bayesattn.errors import TrainingError
from bayesattn.training.learner import Learner
from bayesattn.training.machine import make_accelerator
from bayesattn.tunnels import TUNNELS
from tests.training.toy import ToyTask, toy_config, toy_model, toy_train


class FirstOf:
    """Stands for one of several processes, whose gradients stay where they are."""

    def __init__(self, rank, processes):
        self.real = make_accelerator()
        self.process_index, self.num_processes = rank, processes

    def __getattr__(self, name):
        return getattr(self.real, name)


class Watching(ToyTask):
    """Remembers what it was asked and given."""

    def __init__(self):
        super().__init__()
        self.asked, self.given = [], []

    def batch(self, generator, batch_size, step):
        batch = super().batch(generator, batch_size, step)
        self.asked.append((batch_size, step, batch.x))
        return batch

    def loss(self, model, batch):
        self.given.append(batch.x)
        return super().loss(model, batch)


def test_processes_share_one_batch():
    whole = Watching()
    Learner(whole, toy_model(), toy_config(batch_size=8), make_accelerator()).advance()
    (size, step, expected) = whole.asked[0]
    assert (size, step) == (8, 0)
    for rank in (0, 1):
        part = Watching()
        Learner(part, toy_model(), toy_config(batch_size=8), FirstOf(rank, 2)).advance()
        assert torch.equal(part.asked[0][2], expected)
        assert torch.equal(part.given[0], expected[4 * rank : 4 * rank + 4])


def test_the_step_is_told():
    task = Watching()
    learner = Learner(task, toy_model(), toy_config(), make_accelerator())
    for _ in range(3):
        learner.advance()
    assert [step for _, step, _ in task.asked] == [0, 1, 2]
    assert not torch.equal(task.asked[0][2], task.asked[1][2])


def test_pieces_of_a_process_are_its_rows_in_order():
    task = Watching()
    config = toy_config(batch_size=8, accumulate=2)
    Learner(task, toy_model(), config, FirstOf(1, 2)).advance()
    assert torch.equal(torch.cat(task.given), task.asked[0][2][4:])
    assert [len(x) for x in task.given] == [2, 2]


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_pieces_make_the_same_step(tmp_path, clip):
    """Dropout would draw other noise for pieces, so there is none."""
    config = {"clip": clip, "steps": 12}
    whole, model, _ = toy_train(tmp_path / "whole", toy_config(**config), dropout=0.0)
    parts, same, _ = toy_train(tmp_path / "parts", toy_config(**config, accumulate=4), dropout=0.0)
    for weight, other in zip(model.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-4, atol=1e-6)
    for line, other in zip(whole.metrics(), parts.metrics(), strict=True):
        assert line.keys() == other.keys()
        for name in {"loss", "gradient"} & line.keys():
            assert line[name] == pytest.approx(other[name], rel=1e-4)


def test_a_batch_that_cannot_be_shared_is_refused():
    config = toy_config(batch_size=8, accumulate=4)
    with pytest.raises(
        TrainingError, match="by 3 processes in 4 pieces each: choose a multiple of 12"
    ):
        Learner(ToyTask(), toy_model(), config, FirstOf(0, 3))


def test_half_precision_reaches_the_products_but_not_the_weights():
    seen = []

    class Looking(ToyTask):
        def loss(self, model, batch):
            seen.append(model(batch.x).dtype)
            return super().loss(model, batch)

        def evaluate(self, model):
            seen.append(model(torch.eye(4)).dtype)
            return {}

    learner = Learner(Looking(), toy_model(), toy_config(precision="bf16"), make_accelerator())
    learner.advance()
    learner.evaluate()
    assert seen == [torch.bfloat16, torch.bfloat16]
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", TUNNELS)
def test_rows_of_a_tunnel(name, generator):
    batch = TUNNELS[name]().sample(6, generator)
    part = batch.rows(slice(2, 4))
    assert torch.equal(part.scored, batch.scored)
    for key in ("inputs", "posterior", "labels"):
        assert torch.equal(getattr(part, key), getattr(batch, key)[2:4])
    for key, values in batch.metadata.items():
        assert torch.equal(part.metadata[key], values[2:4])
