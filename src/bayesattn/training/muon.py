"""Muon in the precision of the weights, all matrices of one shape at once.

    m <- m + (1 - μ)(g - m)      u = g + μ(m - g)
    w <- (1 - lr decay) w - lr 0.2 √max(w.shape) O(u)

O takes a matrix towards the orthogonal one next to it, by five of Newton's and Schulz's steps:

    X <- X / |X|       then       X <- a X + (b G + c G²) X,   G = X Xᵀ

torch.optim.Muon does the same one by one in bfloat16, which is quick on GPUs and several times
slower than single precision on a CPU that has no bfloat16.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """The arguments and the state are torch's."""

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
                # a step as long as one of AdamW
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
