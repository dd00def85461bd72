import math

import pytest
import torch
from torch import nn

from bayesattn.errors import DivergedError
from bayesattn.training import Run, loop
from bayesattn.training.loop import train
from bayesattn.training.schedule import checkpoint_steps, step_seed, warmup_stable_decay
from tests.training.toy import ToyTask, toy_config, toy_model, toy_train


def test_training_is_the_plain_loop(tmp_path):
    """The same weights as twenty lines of torch, with the data of each step."""
    config = toy_config(weight_decay=0.1)
    model, task = toy_model(), ToyTask()
    decaying = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=config.betas, fused=True)
    losses = []
    for step in range(config.steps):
        generator = torch.Generator().manual_seed(step_seed(0, step))
        torch.manual_seed(step_seed(0, step, purpose="noise"))
        for group in optimizer.param_groups:
            group["lr"] = config.lr * warmup_stable_decay(step, 30, config.warmup, config.decay)
        optimizer.zero_grad()
        loss = task.loss(model, task.batch(generator, 8, step))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    run, trained, _ = toy_train(tmp_path / "run", config)
    for weight, other in zip(trained.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=0, atol=0)
    logged = [line["loss"] for line in run.metrics() if "loss" in line]
    means = [sum(losses[i : i + 4]) / len(losses[i : i + 4]) for i in range(0, 30, 4)]
    assert logged == pytest.approx(means, rel=1e-12)


def test_what_is_logged_when(tmp_path):
    run, _, result = toy_train(tmp_path / "run")
    lines = run.metrics()
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert [line["step"] for line in lines if "mae" in line] == [7, 14, 21, 28, 30]
    assert set(lines[-1]) == {"step", "loss", "gradient", "lr", "mae", "seconds"}
    assert lines[-1]["lr"] == pytest.approx(3e-3 / 15)
    assert run.finished["metrics"] == result.metrics == {"mae": lines[-1]["mae"]}
    assert (result.step, result.stopped) == (30, "finished")


def test_the_target_ends_a_training(tmp_path):
    config = toy_config(steps=1000, lr=0.03, evaluate_every=10, target=0.2)
    run, _, result = toy_train(tmp_path / "run", config)
    assert result.stopped == "target" and result.step < 1000
    evaluated = [line["mae"] for line in run.metrics() if "mae" in line]
    assert evaluated[-1] <= 0.2 < min(evaluated[:-1])
    assert run.checkpoint().step == result.step


class BadTask(ToyTask):
    """The loss of step `bad` is not finite, and counts from a resume are right, too."""

    def __init__(self, bad, value=float("nan")):
        super().__init__()
        self.bad, self.value = bad, value

    def loss(self, model, batch):
        return super().loss(model, batch) * (self.value if self.losses == self.bad else 1.0)


@pytest.mark.parametrize("bad", [1, 4, 13, 14, 29])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_names_its_step_and_spoils_no_checkpoint(tmp_path, bad, value):
    config = toy_config(log_every=20, checkpoint_every=10, evaluate_every=20)
    with pytest.raises(DivergedError) as error:
        toy_train(tmp_path / "run", config, task=BadTask(bad, value))
    sentence = str(error.value)
    good = (bad - 1) // 10 * 10
    assert f"The loss became {value} at step {bad}, so training stopped" in sentence
    assert f"the checkpoint of step {good} is kept: try a smaller lr" in sentence
    run = Run.open(tmp_path / "run")
    checkpoint = run.checkpoint()
    assert checkpoint.step == good and run.finished is None
    assert all(tensor.isfinite().all() for tensor in checkpoint.tensors("model").values())


class Poison(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] * float("nan")


class BadGradientTask(BadTask):
    def loss(self, model, batch):
        loss = ToyTask.loss(self, model, batch)
        return Poison.apply(loss) if self.losses == self.bad else loss


@pytest.mark.parametrize(
    ("clip", "sentence"),
    [(1.0, "The gradient became nan at step 10"), (None, "ceased to be finite at step 10")],
)
def test_a_gradient_that_is_no_number_spoils_no_checkpoint(tmp_path, clip, sentence):
    config = toy_config(checkpoint_every=10, clip=clip)
    with pytest.raises(DivergedError, match=sentence):
        toy_train(tmp_path / "run", config, task=BadGradientTask(10))
    assert Run.open(tmp_path / "run").steps() == [0]


def test_an_evaluation_that_is_no_number_stops(tmp_path):
    class Broken(ToyTask):
        def evaluate(self, model):
            return {"mae": math.nan}

    with pytest.raises(DivergedError, match="The evaluated mae became nan at step 7"):
        toy_train(tmp_path / "run", task=Broken())


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock) / 1000)
    saved, save = [], Run.save

    def slow_save(self, step, *arguments):
        saved.append(step)
        save(self, step, *arguments)
        for _ in range(5):
            next(clock)

    monkeypatch.setattr(Run, "save", slow_save)
    toy_train(tmp_path / "run", toy_config(steps=600, log_every=1, checkpoint_every=None))
    assert saved[0] == 0 and saved[-1] == 600
    assert 3 < len(saved) <= 10


def test_dynamics_are_kept(tmp_path):
    run, *_ = toy_train(tmp_path / "run", toy_config(steps=60, dynamics=True, checkpoint_every=7))
    assert set(run.steps()) == {*checkpoint_steps(60), 56}


def test_the_model_is_left_on_the_last_weights(tmp_path):
    config = toy_config(ema=0.5)
    run, model, _ = toy_train(tmp_path / "run", config)
    saved = run.checkpoint()
    assert torch.equal(model[0].weight, saved.tensors("model")["0.weight"])
    assert not torch.equal(model[0].weight, saved.tensors("ema")["0.weight"])


def test_tied_and_frozen_weights(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.out = nn.Linear(4, 1).requires_grad_(False)

        def forward(self, x):
            return self.out(self.second(self.first(x)))

    config = toy_config(ema=0.9, steps=4)
    run = Run.create(tmp_path / "run", {})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Tied()
    frozen = model.out.weight.clone()
    train(ToyTask(), model, config, run, progress=False)
    assert torch.equal(model.out.weight, frozen)
    names = set(run.checkpoint().tensors("model"))
    assert "second.weight" not in names and "out.weight" in names
    fresh = Tied()
    train(ToyTask(), fresh, config, run, progress=False)
    assert torch.equal(fresh.second.weight, model.second.weight)


def test_the_weights_of_another_model_are_refused(tmp_path):
    run, *_ = toy_train(tmp_path / "run")
    with pytest.raises(ValueError, match="of another model: 0.bias is not in both"):
        train(ToyTask(), nn.Bilinear(4, 4, 1), toy_config(), run, progress=False)
