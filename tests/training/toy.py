"""A task and a model so small that a step takes no time; dropout makes it depend on noise, too."""

import json
from dataclasses import dataclass

import torch
from torch import nn

from bayesattn.training import Run, TrainConfig
from bayesattn.training.loop import train

TRUTH = torch.linspace(-1, 1, 4)


@dataclass(frozen=True)
class ToyBatch:
    x: torch.Tensor
    y: torch.Tensor

    def rows(self, rows):
        return ToyBatch(self.x[rows], self.y[rows])

    def to(self, device):
        return ToyBatch(self.x.to(device), self.y.to(device))


class ToyTask:
    """Linear regression; the error can be made infinite at one step."""

    goal = "mae"
    tokens = None

    def __init__(self, bad_step=None):
        self.bad_step, self.losses = bad_step, 0

    def batch(self, generator, batch_size, step):
        x = torch.randn(batch_size, 4, generator=generator)
        return ToyBatch(x, x @ TRUTH)

    def loss(self, model, batch):
        self.losses += 1
        loss = (model(batch.x)[:, 0] - batch.y).square().mean()
        return loss * (float("nan") if self.losses == self.bad_step else 1.0)

    def evaluate(self, model):
        torch.rand(3)  # an evaluation that draws must not change the training
        x = torch.eye(4)
        return {"mae": (model(x)[:, 0] - TRUTH).abs().mean().item()}


def toy_model(dropout=0.2):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 8), nn.Linear(8, 1)
        )


def toy_config(**changes):
    settings = {"steps": 30, "batch_size": 8, "log_every": 4, "evaluate_every": 7}
    return TrainConfig(**{**settings, "checkpoint_every": 5, "threads": 1, **changes})


def toy_train(folder, config=None, *, task=None, dropout=0.2, progress=False):
    """Begin or continue a toy run; gives run, model and result."""
    config = config or toy_config()
    run = Run.create(folder, {"training": vars(config)})
    model = toy_model(dropout)
    return run, model, train(task or ToyTask(), model, config, run, progress=progress)


def timeless(lines):
    """Metrics without what the clock says."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def stored(run, step=None):
    """All tensors of a checkpoint, and its state without what the clock says."""
    checkpoint = run.checkpoint(step)
    names = [name.removesuffix(".safetensors") for name in checkpoint.state["sha256"]]
    state = {k: v for k, v in checkpoint.state.items() if k != "seconds"}
    return {name: checkpoint.tensors(name) for name in names}, json.dumps(state, sort_keys=True)


def assert_same(run, other):
    """Two runs ended alike, to the last bit."""
    (tensors, state), (others, other_state) = stored(run), stored(other)
    for name in tensors | others:
        assert tensors[name].keys() == others[name].keys()
        for key, tensor in tensors[name].items():
            assert torch.equal(tensor, others[name][key]), (name, key)
    assert state == other_state
    assert timeless(run.metrics()) == timeless(other.metrics())
    assert timeless([run.finished]) == timeless([other.finished])
