"""Tiny tunnels and models with known answers."""

from dataclasses import dataclass

import torch

from bayesattn.tunnels import Batch


@dataclass(frozen=True)
class Dice:
    """Step s of a sequence shows a die with random probabilities, some of them zero.

    The inputs spell the sequence's number, so that a model can look its posterior up.
    """

    outcomes: int = 5
    horizon: int = 6
    zeros: int = 2

    def sample(self, batch_size, generator):
        shape = (batch_size, self.horizon, self.outcomes)
        weights = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.01
        order = torch.rand(shape, generator=generator).argsort(-1)
        posterior = torch.where(order < self.zeros, 0.0, weights)
        posterior = posterior / posterior.sum(-1, keepdim=True)
        flat = posterior.flatten(0, 1)
        labels = torch.multinomial(flat, 1, generator=generator).view(shape[:2])
        inputs = torch.arange(batch_size)[:, None].expand(-1, 2 * self.horizon).contiguous()
        scored = torch.arange(0, 2 * self.horizon, 2)
        return Batch(inputs, scored, posterior, labels, {})

    def to_dict(self):
        return {"name": "dice", "outcomes": self.outcomes}


class Table:
    """A model of `Dice` that knows all `predictions` [N, S, C] of the batch it will see."""

    def __init__(self, predictions):
        self.logits = predictions.log().repeat_interleave(2, dim=1)
        self.batches = []

    def __call__(self, inputs):
        self.batches.append(len(inputs))
        return self.logits[inputs[:, 0]]


class Bayes:
    """The exact posterior of any tunnel as a model."""

    def __init__(self, tunnel):
        self.tunnel = tunnel

    def __call__(self, inputs, scored=None):
        return self.tunnel.exact(inputs).log()


def uniform(tunnel):
    """A model that always gives all outcomes the same probability."""
    return lambda inputs: torch.zeros(*inputs.shape[:2], tunnel.outcomes)
