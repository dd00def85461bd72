"""`Predictor`: any architecture as a model of any tunnel, logits over outcomes at each position.

    logits = head( norm( body( embedding(inputs) ) ) )

Shapes: B batch, T positions, S scored positions, D width, C outcomes.
"""

import torch
from torch import Tensor, nn

from bayesattn.models.architectures.base import Architecture, TunnelShape


class Predictor(nn.Module):
    """Embedding, the architecture's body, final norm, linear head.

    Args:
        architecture: describes the body.
        tunnel: token inputs get an `nn.Embedding`, feature inputs an `nn.Linear`.
    """

    def __init__(self, architecture: Architecture, tunnel: TunnelShape) -> None:
        super().__init__()
        self.architecture = architecture
        width = architecture.width
        if tunnel.vocabulary is not None:
            self.embedding: nn.Module = nn.Embedding(tunnel.vocabulary, width)
        elif tunnel.features is not None:
            self.embedding = nn.Linear(tunnel.features, width)
        else:
            raise ValueError("a tunnel needs a vocabulary or features, this one has neither")
        self.body = architecture.body(tunnel)
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, tunnel.outcomes)

    def forward(self, inputs: Tensor, scored: Tensor | None = None) -> Tensor:
        """Logits [B, S, C] at the scored positions [S], or [B, T, C] at all of them.

        Args:
            inputs: [B, T] tokens or [B, T, F] features.
            scored: [S] positions to predict at.
        """
        x = self.body(self.embedding(inputs))
        if scored is not None:
            x = x.index_select(1, scored)
        return self.head(self.norm(x))

    def hidden(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """States [B, T, D] that enter the first layer, and those that leave each layer."""
        return tuple(self.body.stages(self.embedding(inputs)))


def build(architecture: Architecture, tunnel: TunnelShape, seed: int) -> Predictor:
    """A predictor whose initial weights depend on `seed` only; torch's global state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Predictor(architecture, tunnel)
