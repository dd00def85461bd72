"""Small attention problems, and the gradients of everything in them."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayesattn import SSMax, attend
from bayesattn.attention.kernels.gated import reach
from bayesattn.attention.kernels.strided import (
    backward,
    flat,
    forward,
    heads,
    plan,
    runs,
    sizes,
)
from bayesattn.priors import GeneralizedGaussian, Prior

HORIZON = 5


@dataclass(frozen=True)
class Scene:
    """Random q, k, v and where they sit; `visibility` holds keyword arguments of attend."""

    batch: int = 2
    heads: int = 4
    groups: int = 4
    queries: int = 21
    keys: int = 21
    width: int = 8
    visibility: dict[str, Any] = field(default_factory=dict)

    def tensors(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        """q, k, v and a gradient of the output."""
        draw = torch.Generator().manual_seed(self.queries * 1000 + self.keys)
        shapes = [(self.heads, self.queries), (self.groups, self.keys), (self.groups, self.keys)]
        shapes.append(shapes[0])
        return tuple(
            torch.randn(self.batch, *s, self.width, generator=draw, dtype=torch.float64).to(dtype)
            for s in shapes
        )


def half(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Every second combination: any value of one axis still meets any of another."""
    combinations = itertools.product(*(enumerate(axis) for axis in axes))
    return [
        tuple(value for _, value in one) for one in combinations if sum(n for n, _ in one) % 2 == 0
    ]


def small_chunks(monkeypatch: Any, chunk: int) -> None:
    """Chunks of so few keys, and a plan however short the sequence."""
    for module in (sizes, plan, heads, forward, reach):
        monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(heads, "_LOOP", 2 * chunk)
    monkeypatch.setattr(runs, "_WORTH", 0)
    monkeypatch.setattr(runs, "_FEW", 1)


def count_pairs(monkeypatch: Any) -> dict[str, int]:
    """Pairs of queries and keys that the strided kernel computes, by pass; flat heads apart."""
    counted = {"forward": 0, "backward": 0, "flat": 0}
    part, tile, plain = forward.Parts._flash, backward._Tiles._tile, flat.flash
    written = forward._attend

    def counting_part(self: Any, q: Tensor, bias: Tensor, a: int, b: int, lo: int, hi: int) -> Any:
        counted["forward"] += q.shape[0] * q.shape[1] * (b - a) * (hi - lo)
        return part(self, q, bias, a, b, lo, hi)

    def counting_written(q: Tensor, k: Tensor, *rest: Any) -> Any:
        counted["forward"] += q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        return written(q, k, *rest)

    def counting_tile(self: Any, a: int, b: int, lo: int, hi: int, *rest: Any) -> None:
        counted["backward"] += self.q.shape[0] * (b - a) * (hi - lo)
        tile(self, a, b, lo, hi, *rest)

    def counting_flash(q: Tensor, k: Tensor, *rest: Any, **options: Any) -> Any:
        counted["flat"] += q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        return plain(q, k, *rest, **options)

    monkeypatch.setattr(forward.Parts, "_flash", counting_part)
    monkeypatch.setattr(forward, "_attend", counting_written)
    monkeypatch.setattr(backward._Tiles, "_tile", counting_tile)
    monkeypatch.setattr(flat, "flash", counting_flash)
    return counted


def ggd(heads: int, beta: float, dtype: torch.dtype = torch.float64) -> GeneralizedGaussian:
    """A prior of shape beta in every head, scales spread."""
    prior = GeneralizedGaussian(num_heads=heads).to(dtype)
    with torch.no_grad():
        prior.theta_beta.fill_(beta)
        prior.theta_alpha.copy_(torch.linspace(-1.5, 0.3, heads))
    return prior


def ssmax(heads: int, scope: str | None, dtype: torch.dtype = torch.float64) -> SSMax | None:
    """Temperatures that differ from head to head; "horizon" scales content and prior."""
    if scope is None:
        return None
    choice: dict[str, Any] = {"horizon": HORIZON} if scope == "horizon" else {"scope": scope}
    module = SSMax(heads, **choice).to(dtype)
    with torch.no_grad():
        module.scale.copy_(torch.linspace(0.9, 0.2, heads))
    return module


def gates(scene: Scene, shift: float = 0.0, spread: float = 1.0) -> Tensor:
    """Log forget gates of all keys."""
    draw = torch.Generator().manual_seed(7)
    shape = (scene.batch, scene.heads, scene.keys)
    return logsigmoid(shift + spread * torch.randn(shape, generator=draw, dtype=torch.float64))


def everything(
    scene: Scene,
    prior: Prior | None,
    temper: SSMax | None,
    kernel: str,
    dtype: torch.dtype,
    **more: Tensor,
) -> dict[str, Tensor]:
    """Output and the gradient of every input and parameter; `more` are inputs of attend."""
    *inputs, grad = scene.tensors(dtype)
    leaves = [x.requires_grad_() for x in inputs]
    more = {name: x.detach().to(dtype).requires_grad_() for name, x in more.items()}
    named = dict(zip("qkv", leaves, strict=True)) | more
    if prior is not None:
        named |= {f"prior.{n}": p for n, p in prior.named_parameters() if p.requires_grad}
    if temper is not None and temper.scale.requires_grad:
        named["ssmax"] = temper.scale
    out = attend(*leaves, prior, ssmax=temper, kernel=kernel, **scene.visibility, **more)
    grads = torch.autograd.grad(out, list(named.values()), grad, allow_unused=True)
    found = {"output": out.detach()}
    for (name, leaf), g in zip(named.items(), grads, strict=True):
        found[name] = torch.zeros_like(leaf) if g is None else g
    return found


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative to the largest entry, or to 1 where all are small (sums of many rounded terms)."""
    return float((found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))


def assert_same(
    found: dict[str, Tensor],
    wanted: dict[str, Tensor],
    tolerance: float,
    rounded: dict[str, Tensor] | None = None,
) -> None:
    """Within tolerance, or within 8 times what another order of sums loses in that dtype."""
    assert found.keys() == wanted.keys()
    for name, want in wanted.items():
        assert torch.isfinite(found[name]).all(), f"{name} is not finite"
        allowed = max(tolerance, 8 * distance(rounded[name], want) if rounded else 0.0)
        error = distance(found[name], want)
        assert error <= allowed, f"{name} is off by {error:.2e}, {allowed:.2e} allowed"
