"""Readers whose predictions are known: exact Bayes, who reads nothing, who sees the last draw."""

import dataclasses

import torch
from torch import nn

from bayesattn.probes.bayes.behaviour import Task
from bayesattn.probes.bayes.readers import Reader, Reading, Site
from bayesattn.probes.capture import first_tensor, with_first
from bayesattn.tunnels import Bijection


def posterior(tunnel, inputs, scored):
    """[B, S, C] exact, of inputs that may be shorter than the tunnel's."""
    pairs = isinstance(tunnel, Bijection)
    length = (inputs.shape[1] + 1) // 2 if pairs else inputs.shape[1]
    shorter = dataclasses.replace(tunnel, length=length)
    steps = scored // 2 if pairs else scored
    return shorter.exact(inputs)[:, steps]


class Exact(Reader):
    """Bayes, raised to a power: 1 is exact, 0 is uniform."""

    name = "exact"

    def __init__(self, tunnel, power=1.0):
        self.tunnel, self.power = tunnel, power

    def sites(self, kind="residual"):
        return []

    def places(self, scored):
        return scored

    def passes(self, inputs, scored):
        p = posterior(self.tunnel, inputs, scored).clamp(min=1e-12) ** self.power
        p = p / p.sum(-1, keepdim=True)
        yield Reading(p.log(), torch.ones(p.shape[:2]).double())


class LastSeen(Exact):
    """Thinks that the last draw comes again with chance 0.9."""

    def passes(self, inputs, scored):
        count = self.tunnel.outcomes
        same = torch.nn.functional.one_hot(inputs[:, scored], count).double()
        p = same * (0.9 - 0.1 / (count - 1)) + 0.1 / (count - 1)
        yield Reading(p.log(), torch.ones(p.shape[:2]).double())


class Carrier(Exact):
    """Exact Bayes over a coin whose log odds stand in the first of eight dimensions of a state."""

    def __init__(self, tunnel):
        super().__init__(tunnel)
        self.block = nn.Identity()

    def sites(self, kind="residual"):
        return [Site(self.block, first_tensor, with_first)]

    def passes(self, inputs, scored):
        p = posterior(self.tunnel, inputs, torch.arange(inputs.shape[1]))
        noise = torch.randn(*inputs.shape, 8, generator=torch.Generator().manual_seed(len(inputs)))
        states = noise.double()
        states[..., 0] = (p[..., 0] / p[..., 1]).log()
        odds = self.block(states)[:, scored, 0]
        log_probs = torch.nn.functional.logsigmoid(torch.stack([odds, -odds], -1))
        yield Reading(log_probs, torch.ones(odds.shape).double())


def task(tunnel, reader):
    return Task(tunnel.name, "a test", tunnel, lambda seed: reader)
