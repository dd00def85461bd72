"""A curve through states, which follows a bent manifold better than a straight axis.

A chain of nodes y_1 … y_K minimises

    mean over n of ‖x_n - y(n)‖²  +  λ Σ_k ‖y_(k-1) - 2 y_k + y_(k+1)‖²

where y(n) is the node nearest to x_n. The chain is initialised as a straight line along the first
component. Assignment and nodes are updated in turn while λ falls, so the line bends gradually.
States are then projected onto the segments between nodes:

    coordinate   length of the curve up to the projection of a state
    share        1 - Σ distance² / Σ deviation², comparable with that of the first component

Judge a curve on held-out sequences, because K nodes fit more than one axis.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.linear import centred, principal_axes

NODES = 16
STIFFNESS = (2, -1)
"""Values of log10 λ at the start and at the end."""
ROUNDS = 60


class Landing(NamedTuple):
    """Projections of states on a curve."""

    coordinate: Tensor
    """[...] length of the curve up to the projection."""
    distance: Tensor
    """[...] squared distance from the state to its projection."""


class Curve(NamedTuple):
    """A chain of straight segments."""

    nodes: Tensor
    """[K, d]."""
    mean: Tensor
    """[d] of the states that it was fitted to."""

    def land(self, x: Tensor) -> Landing:
        """The nearest point of the curve for each of x [..., d]."""
        rows = x.flatten(0, -2).double()
        start, along = self.nodes[:-1], self.nodes.diff(dim=0)
        squares = along.square().sum(-1).clamp(min=1e-300)
        share = ((rows @ along.T - (start * along).sum(-1)) / squares).clamp(0, 1)
        # ‖x - s - t a‖² without the differences, which would be [n, K, d]
        away = torch.cdist(rows, start).square()
        dots = rows @ along.T - (start * along).sum(-1)
        distance = (away - 2 * share * dots + share.square() * squares).clamp(min=0)
        nearest = distance.argmin(-1, keepdim=True)
        lengths = squares.sqrt()
        passed = lengths.cumsum(0) - lengths
        place = passed[nearest] + share.gather(-1, nearest) * lengths[nearest]
        found = place, distance.gather(-1, nearest)
        return Landing(*(one[:, 0].unflatten(0, x.shape[:-1]) for one in found))

    def share(self, x: Tensor) -> float:
        """Share of the variance of x [..., d] about the mean of the fit."""
        spread = (x.double() - self.mean).square().sum()
        return float(1 - self.land(x).distance.sum() / spread.clamp(min=1e-300))


def principal_curve(x: Tensor) -> Curve:
    """The curve through states x [..., d]."""
    rows, mean = centred(x.flatten(0, -2))
    axis = principal_axes(rows)[1][0]
    scores = rows @ axis
    ends = scores.quantile(torch.tensor([0.02, 0.98], dtype=scores.dtype))
    line = torch.linspace(float(ends[0]), float(ends[1]), NODES, dtype=rows.dtype)
    chain = line[:, None] * axis
    bend = torch.eye(NODES, dtype=rows.dtype).diff(dim=0).diff(dim=0)
    for stiffness in torch.logspace(*STIFFNESS, ROUNDS, dtype=rows.dtype):
        nearest = torch.cdist(rows, chain).argmin(-1)
        counts = nearest.bincount(minlength=NODES).to(rows)
        sums = torch.zeros_like(chain).index_add_(0, nearest, rows)
        pull = torch.diag(counts / len(rows)) + stiffness * bend.T @ bend
        chain = torch.linalg.lstsq(pull, sums / len(rows)).solution
    return Curve(chain + mean, mean)
