"""Any score function with all gradients, block by block: O(T) memory, on every device.

    s = score_mod(scale · Q Kᵀ)       P = exp(s - evidence)       O = P V
    dV = Pᵀ G       ds = P ∘ (G Vᵀ - rowsum(G ∘ O))

The chain rule through score_mod, to the content and to every tensor that it reads, is torch's own:
the backward pass evaluates the function once more on each block and asks autograd. A sink of score
z is a key of value 0; its gradient is -Σ_i exp(z - evidence_i) · rowsum(G ∘ O)_i.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportIncompatibleMethodOverride=false
# pyright: reportUntypedFunctionDecorator=false
# (torch leaves autograd.Function and what it is given untyped)

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesattn.attention.kernels.dense import repeat_heads, sum_heads
from bayesattn.attention.score_function import ScoreFunction
from bayesattn.attention.score_mod import of_terms
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility

_ROWS = 256
_ELEMENTS = 1 << 21  # of a block of scores: 8 MiB, and a few times that in the steps of a function
_REPEATED = 1e-3  # how far a row of the posterior may be from 1 when it is computed again


@torch.compiler.disable()
def blocked(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
    """Same arguments and result as the dense kernel."""
    end, wide = terms.seen.end, torch.promote_types(q.dtype, torch.float32)
    mod = of_terms(terms, q.shape[0], wide)
    function = None
    if mod is not None:
        shape = (q.shape[0], q.shape[1], q.shape[2], end)
        function = ScoreFunction(mod, shape, torch.zeros((), dtype=wide, device=q.device))
    blocks = _Blocks(function, terms.seen, terms.scale, q.shape[1], wide)
    read = [] if function is None else function.captured
    tensors = (terms.heat(q), k[:, :, :end], v[:, :, :end], terms.sink, *read)
    return _Blocked.apply(blocks, *tensors)


class _Blocks(NamedTuple):
    """Where the blocks lie, and their scores."""

    function: ScoreFunction | None
    seen: Visibility
    scale: float
    heads: int
    """Of queries."""
    wide: torch.dtype

    def rows(self, q: Tensor) -> Iterator[slice]:
        for start in range(0, q.shape[2], _ROWS):
            yield slice(start, min(start + _ROWS, q.shape[2]))

    def keys(self, q: Tensor, rows: slice) -> Iterator[slice]:
        """Those that some of the queries see."""
        seen, stop = self.seen, self.seen.offset + rows.stop
        start = 0 if seen.window is None else max(0, seen.offset + rows.start - seen.window + 1)
        if seen.first is not None:
            start = max(start, min(stop, int(seen.first[:, rows].min())))
        step = max(64, _ELEMENTS // (q.shape[0] * q.shape[1] * (rows.stop - rows.start)))
        for lo in range(start, stop, step):
            yield slice(lo, min(lo + step, stop))

    def spread(self, x: Tensor, some: slice) -> Tensor:
        """Some keys or values, one for each query head."""
        return repeat_heads(x[:, :, some].to(self.wide), self.heads)

    def content(self, q: Tensor, k: Tensor, rows: slice, keys: slice) -> Tensor:
        return (q[:, :, rows].to(self.wide) * self.scale) @ self.spread(k, keys).transpose(-1, -2)

    def masked(self, scores: Tensor, rows: slice, keys: slice) -> Tensor:
        """Scores, -inf where a key is not visible."""
        seen = self.seen
        last = keys.stop - 1 <= seen.offset + rows.start
        if last and seen.first is None and seen.window is None:
            return scores
        return scores.masked_fill(~seen.mask(scores.device, rows, keys), -torch.inf)


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, blocks: _Blocks, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, *read: Any
    ) -> Tensor:
        out, evidence = torch.zeros_like(q), q.new_zeros(q.shape[:3], dtype=blocks.wide)
        for rows in blocks.rows(q):
            mean = torch.zeros_like(q[:, :, rows], dtype=blocks.wide)
            top = torch.full_like(evidence[:, :, rows], -torch.inf)
            if sink is not None:
                top = sink[:, None].expand_as(top)
            mass = (top > -torch.inf).to(blocks.wide)
            for keys in blocks.keys(q, rows):
                scores = content = blocks.content(q, k, rows, keys)
                if blocks.function is not None:
                    scores = blocks.function(content, rows, keys)
                scores = blocks.masked(scores, rows, keys)
                highest = torch.maximum(top, scores.amax(-1))
                if not bool((highest < torch.inf).all()) and bool(content.isfinite().all()):
                    _refuse(scores, rows, keys, blocks.seen.offset)
                safe = highest.masked_fill(highest == -torch.inf, 0.0)
                weights, kept = (scores - safe[..., None]).exp(), (top - safe).exp()
                mass = mass * kept + weights.sum(-1)
                mean = mean * kept[..., None] + weights @ blocks.spread(v, keys)
                top = highest
            blind = mass == 0
            out[:, :, rows] = mean / mass.masked_fill(blind, 1.0)[..., None]
            # a row that sees nothing has weights exp(score - inf) = 0 in the backward pass
            evidence[:, :, rows] = (top + mass.log()).masked_fill(blind, torch.inf)
        ctx.blocks = blocks
        ctx.save_for_backward(q, k, v, sink, out, evidence, *read)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        blocks: _Blocks = ctx.blocks
        q, k, v, sink, out, evidence, *read = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(x, dtype=blocks.wide) for x in (q, k, v))
        dread = [torch.zeros_like(x) for x in read]
        grad = grad.to(blocks.wide)
        delta = (grad * out).sum(-1)
        escaped = torch.zeros_like(delta)
        if sink is not None:
            escaped = (sink[:, None] - evidence).exp()
        for rows in blocks.rows(q):
            ours, mass = grad[:, :, rows], escaped[:, :, rows].clone()
            for keys in blocks.keys(q, rows):
                content = blocks.content(q, k, rows, keys).requires_grad_()
                scores, stand_ins = content, []
                if blocks.function is not None:
                    scores, stand_ins = blocks.function.differentiable(content, rows, keys)
                weights = blocks.masked(scores.detach(), rows, keys) - evidence[:, :, rows, None]
                weights = weights.exp()
                mass += weights.sum(-1)
                dv[:, :, keys] += sum_heads(weights.transpose(-1, -2) @ ours, k.shape[1])
                product = ours @ blocks.spread(v, keys).transpose(-1, -2)
                dscores = weights * (product - delta[:, :, rows, None])
                dcontent: Tensor | None = dscores
                if blocks.function is not None:
                    dcontent, *found = _pull_back(scores, dscores, content, *stand_ins)
                    for total, part in zip(dread, found, strict=True):
                        if part is not None:
                            total += part
                if dcontent is not None:
                    dcontent = dcontent * blocks.scale
                    dq[:, :, rows] += dcontent @ blocks.spread(k, keys)
                    pulled = dcontent.transpose(-1, -2) @ q[:, :, rows].to(blocks.wide)
                    dk[:, :, keys] += sum_heads(pulled, k.shape[1])
            sees = evidence[:, :, rows] < torch.inf
            if bool(((mass - 1).abs() > _REPEATED)[sees].any()):
                raise ValueError(
                    "score_mod gave other scores in the backward pass than in the forward pass; it "
                    "must depend on its arguments and on tensors that do not change in between"
                )
        if bool(grad.isfinite().all()) and not all(bool(x.isfinite().all()) for x in dread):
            raise ValueError(
                "the gradient of a tensor that score_mod reads is not finite; often it is that of "
                "keys after the query, so clamp q_idx - kv_idx at 0 before a root or a logarithm"
            )
        dsink = None if sink is None else -(escaped * delta).sum((0, 2))
        return None, dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dsink, *dread


def _pull_back(scores: Tensor, dscores: Tensor, *inputs: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of what scores were computed from; None for what they do not depend on."""
    if not scores.requires_grad:
        return (None,) * len(inputs)
    return torch.autograd.grad(scores, inputs, dscores, allow_unused=True)


def _refuse(scores: Tensor, rows: slice, keys: slice, offset: int) -> None:
    bad = (~(scores < torch.inf)).nonzero()[0].tolist()
    value = float(scores[tuple(bad)])
    raise ValueError(
        f"score_mod returned {value} in head {bad[1]} for query {offset + rows.start + bad[2]} and "
        f"key {keys.start + bad[3]}; scores are numbers, or -inf for keys to hide"
    )
