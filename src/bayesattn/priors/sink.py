"""A sink: one more key that every query sees, with a learned score and the value 0.

    p_j = exp(score_j) / (exp(s[h]) + Σ_m exp(score_m))

The weight of the sink goes to no key, so a head can express that no key fits. It is the prior
mass of "none of them". gpt-oss has one sink per head (OpenAI 2025, arXiv 2508.10925). The score s
does not depend on content or temperature, and SSMax does not count the sink as a key.
"""

import torch
from torch import Tensor, nn

from bayesattn.checks import at_least


class Sink(nn.Module):
    """A score `logit` per head; 0 at initialisation."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = at_least("num_heads", num_heads, 1)
        self.logit = nn.Parameter(torch.zeros(num_heads))

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"


def with_sink(output: Tensor, evidence: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Means [B, H, T, D] over keys and their log-evidence [B, H, T], with the sink [H] as a key."""
    whole = torch.logaddexp(evidence, sink[:, None].to(evidence.dtype))
    share = (evidence - whole).exp()
    return output * share[..., None].to(output.dtype), whole
