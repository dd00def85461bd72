"""One thing to compute: inputs of some length, and a mode in which to use them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import Attention, Contender, Exact, Mode

_CHECKED_ROWS = 8


@dataclass(frozen=True)
class Problem:
    """Random q, k, v, a gradient of the output, and the query rows at which errors are checked."""

    mode: Mode
    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    rows: list[int]

    @staticmethod
    def random(mode: Mode, shape: tuple[int, int, int, int]) -> "Problem":
        """Standard normal; the generator is seeded by the length."""
        draw = torch.Generator().manual_seed(shape[2])
        q, k, v, grad = (torch.randn(shape, generator=draw) for _ in range(4))
        if mode == "decode":
            return Problem(mode, q[:, :, -1:].clone(), k, v, grad[:, :, -1:].clone(), [0])
        some = torch.randint(0, shape[2], (_CHECKED_ROWS,), generator=draw).tolist()
        return Problem(mode, q, k, v, grad, sorted({0, shape[2] - 1, *some}))

    @property
    def result_bytes(self) -> int:
        """What any method has to return: the output, and in backward three gradients."""
        gradients = self.q.nbytes + self.k.nbytes + self.v.nbytes
        return self.q.nbytes + (gradients if self.mode == "backward" else 0)

    def prepare(
        self, contender: Contender, tolerance: float, check: bool = True
    ) -> tuple[Callable[[], Any], float]:
        """The call to time, and its largest error (NaN without a check)."""
        attention, learned, exact = contender.build(self.k.shape, tolerance)
        if self.mode != "backward":
            error = self._output_error(attention, exact) if check else math.nan
            return self._forward(attention), error
        error = self._gradient_error(attention, exact, learned) if check else math.nan
        return self._backward(attention, learned), error

    def _forward(self, attention: Attention) -> Callable[[], Tensor]:
        @torch.no_grad()
        def call() -> Tensor:
            return attention(self.q, self.k, self.v)

        return call

    def _backward(self, attention: Attention, learned: list[Tensor]) -> Callable[[], Any]:
        q, k, v = (x.clone().requires_grad_() for x in (self.q, self.k, self.v))

        def call() -> Any:
            out = attention(q, k, v)
            return torch.autograd.grad(out, [q, k, v, *learned], self.grad, allow_unused=True)

        return call

    @torch.no_grad()
    def _output_error(self, attention: Attention, exact: Exact) -> float:
        found = attention(self.q, self.k, self.v)[:, :, self.rows]
        return float((found - exact(self.q, self.k, self.v, self.rows)).abs().max())

    def _gradient_error(self, attention: Attention, exact: Exact, learned: list[Tensor]) -> float:
        """Largest error of dq, dk, dv and the parameters' gradients; the loss looks at `rows` only.

        Relative to the largest entry of each: a parameter's gradient is a sum over all pairs. Those
        of parameters count as 1 at least, since that of a uniform prior's scale is 0.
        """
        sparse = torch.zeros_like(self.grad)
        sparse[:, :, self.rows] = self.grad[:, :, self.rows]
        q, k, v = (x.clone().requires_grad_() for x in (self.q, self.k, self.v))
        wanted = [q, k, v, *learned]
        some = sparse[:, :, self.rows].double()
        references = torch.autograd.grad(exact(q, k, v, self.rows), wanted, some, allow_unused=True)
        founds = torch.autograd.grad(attention(q, k, v), wanted, sparse, allow_unused=True)
        worst = 0.0
        least = [0.0] * 3 + [1.0] * len(learned)
        for found, reference, floor in zip(founds, references, least, strict=True):
            if found is not None and reference is not None:
                error = (found - reference).abs().max() / reference.abs().max().clamp(min=floor)
                worst = max(worst, float(error))
        return worst
