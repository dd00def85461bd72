"""What a person writes without this package: a small transformer and a bare torch loop.

`PlainTransformer` has the shape of our tunnel models, for the overhead of our loop;
`AuthorsTransformer` and `authors_loop` are the recipe behind the authors' bijection checkpoints.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor, Tensor]
"""Inputs [B, T], scored positions [S], targets: labels [B, S] or posteriors [B, S, outcomes]."""


class PlainAttention(nn.Module):
    """Causal multi-head attention without biases."""

    def __init__(self, width: int, heads: int) -> None:
        """`heads` divides `width`."""
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to the same."""
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """Feed-forward layer with a gate, without biases."""

    def __init__(self, width: int, inner: int) -> None:
        """Width of the stream and of the inner layer."""
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to the same."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Pre-norm residual layer: attention, then feed-forward."""

    def __init__(self, width: int, heads: int, feed_forward: nn.Module, eps: float) -> None:
        """`eps` of the RMS norms."""
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, eps=eps)
        self.attention = PlainAttention(width, heads)
        self.feed_forward_norm = nn.RMSNorm(width, eps=eps)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] to the same."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class PlainTransformer(nn.Module):
    """Decoder without positions: embedding, SwiGLU blocks, final norm, linear head."""

    def __init__(
        self, vocabulary: int, outcomes: int, layers: int, width: int, heads: int, inner: int
    ) -> None:
        """Sizes; weights as PyTorch initialises them."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(
            *(Block(width, heads, SwiGLU(width, inner), 1e-6) for _ in range(layers))
        )
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, outcomes)

    def forward(self, inputs: Tensor, scored: Tensor | None = None) -> Tensor:
        """Logits [B, T or S, outcomes] of tokens [B, T], at all positions or the scored ones."""
        x = self.blocks(self.embedding(inputs))
        return self.head(self.norm(x if scored is None else x[:, scored]))


class AuthorsTransformer(nn.Module):
    """The authors' bijection model: learned absolute positions, GELU with biases, tied head.

    Its logits are over all tokens; `outcomes` picks those of the values, which begin at
    `first_value`.
    """

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        first_value: int,
        layers: int = 6,
        width: int = 192,
        heads: int = 6,
    ) -> None:
        """Their sizes unless told otherwise; weights N(0, 0.02), biases 0."""
        super().__init__()
        self.first_value = first_value
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        inner = 4 * width
        self.blocks = nn.Sequential(
            *(
                Block(
                    width,
                    heads,
                    nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)),
                    1e-5,
                )
                for _ in range(layers)
            )
        )
        self.norm = nn.RMSNorm(width, eps=1e-5)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def tokens(self, inputs: Tensor, scored: Tensor) -> Tensor:
        """Logits [B, S, vocabulary] of the next token at the scored positions."""
        x = self.embedding(inputs) + self.positions.weight[: inputs.shape[1]]
        return self.norm(self.blocks(x)[:, scored]) @ self.embedding.weight.T

    def forward(self, inputs: Tensor, scored: Tensor) -> Tensor:
        """Logits [B, S, outcomes] of the values alone."""
        return self.tokens(inputs, scored)[..., self.first_value :]


def bare_loop(
    model: nn.Module, batches: Iterator[Batch], steps: int, lr: float, weight_decay: float
) -> None:
    """AdamW towards given posteriors, as short as it can be: what any loop is measured against."""
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=weight_decay, fused=True)
    for _ in range(steps):
        inputs, scored, posterior = next(batches)
        logits = model(inputs, scored)
        loss = F.cross_entropy(logits.flatten(0, 1), posterior.flatten(0, 1).to(logits.dtype))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def authors_loop(
    model: AuthorsTransformer,
    batches: Iterator[Batch],
    reached: Callable[[int], bool],
    steps: int = 50_000,
    warmup: int = 2_000,
    lr: float = 3e-4,
) -> int:
    """Hard labels, AdamW with decay 0.1, warm-up and cosine, until `reached(step)` or `steps`.

    Returns:
        The step at which it stopped.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: cosine_after_warmup(step, steps, warmup)
    )
    for step in range(1, steps + 1):
        inputs, scored, labels = next(batches)
        logits = model.tokens(inputs, scored)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten() + model.first_value)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if reached(step):
            return step
    return steps


def cosine_after_warmup(step: int, steps: int, warmup: int) -> float:
    """Factor of the learning rate: linear to 1 at `warmup`, then half a cosine to 0 at `steps`."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
