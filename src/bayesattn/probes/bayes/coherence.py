"""What exact Bayes never does: let order matter, or expect its own mind to change.

    order   p(. | evidence in order π), over orders π of one sequence and over sequences
            share = E KL(p ‖ mean over orders) / E KL(p ‖ mean over orders and sequences)
    drift   z imagined by the model itself, each as likely as it says
            share = KL(E_z p(. | x, z) ‖ p(. | x)) / E_z KL(p(. | x, z) ‖ p(. | x))

Both are between 0 and 1: the divergence from a mean and that of the mean add up. Bayes has 0. What
hardly moves has a share of hardly anything, which is 0 here. All continuations are enumerated, so
drift has no sampling error.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch import Generator, Tensor

from bayesattn.bits import kl_divergence
from bayesattn.probes.bayes.readers import Reader
from bayesattn.tunnels import Bijection, Dice, Labels, Markov, Tunnel

LEAVES = 8
"""Imagined continuations of one sequence, about."""
MOST_LEAVES = 64
STILL = 0.01
"""Bits: what moves by less is taken to move by this, for a share of nothing is noise."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """The same evidence in several orders."""

    share: float
    bits: float
    """E KL(p ‖ mean over orders)."""
    single: float
    """Mean KL(Bayes ‖ p) of one order, bits."""
    averaged: float
    """Mean KL(Bayes ‖ mean over orders)."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What is expected of one's own predictions, beside what they are."""

    share: float
    bits: float
    """KL(mean over imagined ‖ now)."""


def measure_order(
    reader: Reader, tunnel: Tunnel, inputs: Tensor, orders: int, seed: int
) -> Order | None:
    """Of the last step of inputs [B, T]; None where order is evidence."""
    mixed = reordered(tunnel, inputs, orders, Generator().manual_seed(seed))
    if mixed is None:
        return None
    last = tunnel.scored[-1:]
    shape = (orders, len(inputs), -1)
    p = reader.read(mixed.flatten(0, 1), last).log_probs[:, 0].exp().view(shape)
    bayes = tunnel.exact(inputs)[:, -1]
    own, whole = p.mean(0), p.mean((0, 1))
    inside = float(kl_divergence(p, own.log().expand_as(p)).mean())
    around = float(kl_divergence(p, whole.log().expand_as(p)).mean())
    return Order(
        share=_share(inside, around),
        bits=inside,
        single=float(kl_divergence(bayes.expand_as(p), p.log()).mean()),
        averaged=float(kl_divergence(bayes, own.log()).mean()),
    )


def reordered(tunnel: Tunnel, inputs: Tensor, orders: int, generator: Generator) -> Tensor | None:
    """[orders, B, T] other orders of inputs [B, T] that leave the last posterior as it is."""
    if isinstance(tunnel, Dice | Labels):
        places = torch.rand(orders, *inputs.shape, generator=generator).argsort(-1)
        return inputs.expand(orders, -1, -1).gather(-1, places)
    if isinstance(tunnel, Bijection):
        pairs = inputs[:, :-1].unflatten(1, (-1, 2)).expand(orders, -1, -1, -1)
        places = torch.rand(pairs.shape[:3], generator=generator).argsort(-1)
        mixed = pairs.gather(2, places[..., None].expand_as(pairs)).flatten(2)
        return torch.cat([mixed, inputs[:, -1:].expand(orders, -1, -1)], dim=-1)
    if isinstance(tunnel, Markov):
        rows = [[_excursions(row, generator) for row in inputs] for _ in range(orders)]
        return torch.stack([torch.stack(one) for one in rows])
    return None


def _excursions(row: Tensor, generator: Generator) -> Tensor:
    """A path whose ways from its first state back to it come in another order.

    The same moves, as often, to the same last state (Diaconis & Freedman 1980).
    """
    starts = [*(row == row[0]).nonzero()[:, 0].tolist(), len(row)]
    *ways, rest = row.split([b - a for a, b in pairwise(starts)])
    order = torch.randperm(len(ways), generator=generator).tolist()
    return torch.cat([*(ways[at] for at in order), rest])


def measure_drift(reader: Reader, tunnel: Tunnel, inputs: Tensor) -> Drift | None:
    """From the middle of inputs [B, T]; None where the next draw depends on the present one."""
    if tunnel.outcomes > MOST_LEAVES:
        return None
    if isinstance(tunnel, Dice | Labels):
        now, weights, then = _imagine_draws(reader, tunnel.outcomes, inputs)
    elif isinstance(tunnel, Bijection) and tunnel.horizon >= 3:
        now, weights, then = _imagine_pairs(reader, tunnel, inputs)
    else:
        return None
    mean = (weights[..., None] * then).sum(1)
    bits = float(kl_divergence(mean, now.log()).mean())
    moved = float((weights * kl_divergence(then, now[:, None].log().expand_as(then))).sum(1).mean())
    return Drift(share=_share(bits, moved), bits=bits)


def _imagine_draws(reader: Reader, kinds: int, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Now [B, C], weights [B, Z] and then [B, Z, C], over all Z continuations of a few draws."""
    begun = max(1, inputs.shape[1] // 2)
    ahead = 1
    while kinds ** (ahead + 1) <= LEAVES and begun + ahead < inputs.shape[1]:
        ahead += 1
    leaves = torch.tensor(list(product(range(kinds), repeat=ahead)))
    shown = inputs[:, None, :begun].expand(-1, len(leaves), -1)
    whole = torch.cat([shown, leaves.expand(len(inputs), -1, -1)], dim=-1)
    steps = torch.arange(begun - 1, begun + ahead)
    found = reader.read(whole.flatten(0, 1), steps).log_probs
    found = found.view(len(inputs), len(leaves), ahead + 1, kinds)
    said = found[:, :, :-1].gather(-1, leaves.expand(len(inputs), -1, -1)[..., None])[..., 0]
    return found[:, 0, 0].exp(), said.sum(-1).exp(), found[:, :, -1].exp()


def _imagine_pairs(
    reader: Reader, tunnel: Bijection, inputs: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same of a key, once the model has imagined the value of another key."""
    begun, size = 2 * max(1, (tunnel.horizon - 1) // 2), tunnel.alphabet
    key, other = inputs[:, begun : begun + 1], inputs[:, begun + 2 : begun + 3]
    apart = (key != other)[:, 0]
    key, other, shown = key[apart], other[apart], inputs[apart, :begun]
    if not len(shown):
        raise ValueError("no sequence asks for another key: take more sequences")

    def ask(*parts: Tensor) -> Tensor:
        tokens = torch.cat(parts, dim=-1)
        last = torch.tensor([tokens.shape[-1] - 1])
        return reader.read(tokens.flatten(0, -2), last).log_probs[:, 0].exp()

    values = torch.arange(size, 2 * size).view(1, size, 1).expand(len(shown), -1, -1)
    ahead = [part[:, None].expand(-1, size, -1) for part in (shown, other, key)]
    then = ask(ahead[0], ahead[1], values, ahead[2]).view(len(shown), size, -1)
    return ask(shown, key), ask(shown, other), then


def _share(part: float, whole: float) -> float:
    return min(1.0, part / max(whole, STILL))
