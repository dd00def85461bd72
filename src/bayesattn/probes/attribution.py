"""Attribution: logits decomposed into the contributions of the sublayers.

    logits = W norm(r) + b,   r = embedding + Σ attention + Σ feed-forward

With a fixed scale of the norm, logits are a sum of contributions, one of each sublayer. Two means
are subtracted from the logits: that over sequences at every step, and that over outcomes, which
cancels in the softmax. Of the rest a sublayer writes the share

    Σ c · z / Σ z · z,   c its contribution, z the logits

summed over tokens and outcomes. Shares add up to 1; one below 0 writes against the answer.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.measured import NotApplicableError
from bayesattn.tunnels import Batch


class LogitShares(NamedTuple):
    """Shares of the logits, by sublayer."""

    embedding: float
    attention: list[float]
    """Shares of attention by layer; 0 for layers without attention."""
    feed_forward: list[float]


def logit_shares(model: nn.Module, batch: Batch) -> LogitShares:
    """Shares of all sublayers of a transformer, at the scored positions."""
    if not isinstance(model, Predictor):
        raise NotApplicableError("logits are taken apart in models of tunnels only")
    embedding, *rest = (float(share) for share in _shares(contributions(model, batch)))
    return LogitShares(embedding, rest[0::2], rest[1::2])


@torch.no_grad()
def contributions(model: Predictor, batch: Batch) -> Tensor:
    """[1 + 2 · layers, N, S, outcomes]: embedding, then attention and feed-forward by layer."""
    parts = anatomy(model)
    parts.require_attention()
    places = ("before", "mid", "after")
    names = [f"layers.{at}.residual_{x}" for at in range(len(parts.layers)) for x in places]
    captured = capture(model, batch.inputs, names, batch.scored)
    states = [captured[name].double() for name in names]
    added = [states[0]]
    for at in range(0, len(states), 3):
        before, mid, after = states[at : at + 3]
        added += [mid - before, after - mid]
    end, norm = states[-1], model.norm
    assert norm.eps is not None
    scale = norm.weight.double() * (end.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    return torch.stack(added) * scale @ model.head.weight.double().T


def _shares(parts: Tensor) -> Tensor:
    parts = parts - parts.mean(-1, keepdim=True)
    parts = parts - parts.mean(1, keepdim=True)
    whole = parts.sum(0)
    return (parts * whole).flatten(1).sum(1) / whole.square().sum().clamp(min=1e-30)
