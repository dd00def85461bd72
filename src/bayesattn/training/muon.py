"""Muon in the precision of the weights, all matrices of one shape at once.

    m <- m + (1 - μ)(g - m)      u = g + μ(m - g)
    w <- (1 - lr decay) w - lr 0.2 √max(w.shape) O(u)

O moves a matrix towards the nearest orthogonal matrix, by five Newton–Schulz steps:

    X <- X / |X|       then       X <- a X + (b G + c G²) X,   G = X Xᵀ

torch.optim.Muon computes one matrix at a time in bfloat16. This is quick on GPUs, but several times
slower than single precision on a CPU without bfloat16.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """Muon with the arguments and the state of `torch.optim.Muon`."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Tensor] = []
            moments: list[Tensor] = []
            self._init_group(group, params, grads, moments)
            for grad, moment in zip(grads, moments, strict=True):
                moment.lerp_(grad, 1 - group["momentum"])
            updates = [g.lerp(m, group["momentum"]) for g, m in zip(grads, moments, strict=True)]
            how = (group["ns_coefficients"], group["ns_steps"], group["eps"])
            lr, decay = group["lr"], group["weight_decay"]
            for param, update in zip(params, orthogonal(updates, *how), strict=True):
                param.mul_(1 - lr * decay)
                # the step has the size of an AdamW step
                param.add_(update, alpha=-lr * 0.2 * max(param.shape) ** 0.5)


def orthogonal(
    matrices: Sequence[Tensor], coefficients: tuple[float, float, float], steps: int, eps: float
) -> list[Tensor]:
    """O of each matrix."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, matrix in enumerate(matrices):
        alike.setdefault(tuple(sorted(matrix.shape)), []).append(number)
    found: list[Tensor | None] = [None] * len(matrices)
    a, b, c = coefficients
    for numbers in alike.values():
        x = torch.stack([_wide(matrices[number]) for number in numbers])
        x /= torch.linalg.matrix_norm(x, keepdim=True).clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        for number, one in zip(numbers, x, strict=True):
            found[number] = one if _is_wide(matrices[number]) else one.T
    return cast(list[Tensor], found)


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[0] <= matrix.shape[1]


def _wide(matrix: Tensor) -> Tensor:
    return matrix if _is_wide(matrix) else matrix.T
