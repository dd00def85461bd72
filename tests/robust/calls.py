"""Random calls of attend, and what the dense definition in float64 says of them."""

import copy
import math
import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bayesattn import SSMax, attend
from bayesattn.attention import LogTemperature
from bayesattn.priors import PRIORS, Sink, make_prior
from tests.robust.common import TORTURE

SIZES = (1, 1, 2, 3, 5, 7, 16, 31, 33, 64, 65, 66, 100, 130)
HUGE = (1e6, 1e12, 1e18, 3e19, 1e25, 1e37)
EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}


@dataclass
class Call:
    """One call: tensors, keyword arguments, and how it is made."""

    seed: int
    q: Tensor
    k: Tensor
    v: Tensor
    more: dict[str, Any] = field(default_factory=dict)
    grad: bool = False
    chunk: int | None = None
    huge: bool = False

    @property
    def end(self) -> int:
        if "rows" in self.more:
            return self.more["rows"][-1] + 1
        return self.more.get("offset", self.k.shape[2] - self.q.shape[2]) + self.q.shape[2]

    def __repr__(self) -> str:
        shapes = [tuple(x.shape) for x in (self.q, self.k)]
        return f"Call({self.seed}, {shapes}, {self.q.dtype}, grad={self.grad}, {self.more})"

    def run(self, **changes: Any) -> Any:
        with torch.set_grad_enabled(self.grad):
            return attend(self.q, self.k, self.v, **self.more | changes)

    def definition(self) -> Tensor:
        """The dense kernel in float64."""
        names = ("kernel", "skip", "tolerance", "decompose")
        more = {name: double(x) for name, x in self.more.items() if name not in names}
        inputs = (x.detach()[:, :, : self.end].double() for x in (self.k, self.v))
        with torch.no_grad():
            return attend(self.q.detach().double(), *inputs, kernel="dense", **more)


def double(x: Any) -> Any:
    if isinstance(x, torch.nn.Module):
        return copy.deepcopy(x).double()
    return x.detach().double() if isinstance(x, Tensor) and x.is_floating_point() else x


def some_prior(draw: random.Random, heads: int, span: int, generator: torch.Generator) -> Any:
    kind = draw.choice([None, None, "table", *PRIORS])
    if kind is None:
        return None
    if kind == "table":
        size = draw.choice([0.1, 3.0, 50.0])
        return -size * torch.rand(heads, span + draw.choice([0, 3]), generator=generator)
    prior = make_prior(kind, heads)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return prior


def some_temperature(draw: random.Random, heads: int, generator: torch.Generator) -> Any:
    kind = draw.choice([None, None, "bare", "content+prior", "content", "horizon", "log"])
    if kind is None:
        return None
    scale = 1.5 * torch.rand(heads, generator=generator)
    if kind == "bare":
        return scale
    if kind == "log":
        return LogTemperature(heads, 0.3, draw.choice([1, 4, 50]))
    more = {"horizon": draw.randint(1, 40)} if kind == "horizon" else {"scope": kind}
    module = SSMax(heads, **more)
    with torch.no_grad():
        module.scale.copy_(scale)
    return module


def some_call(seed: int, *, ordinary: bool = False) -> Call:
    """A random call; small, odd and equal sizes are likely, and so are large scores."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    batch, groups = draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 3])
    heads, width = groups * draw.choice([1, 1, 2, 4]), draw.choice([1, 2, 3, 8, 16, 32])
    end = draw.choice(SIZES)
    if not draw.randrange(40):
        end = draw.choice([257, 400, 700])
    queries = draw.choice([end, end, 1, draw.randint(1, end)])
    spare = draw.choice([0, 0, 0, 2])
    dtype = draw.choice([torch.float32] * 4 + [torch.bfloat16, torch.float64])
    size = draw.choice([0.0, 0.1, 1.0, 1.0, 1.0, 3.0, 10.0, 20.0])
    if not ordinary and not draw.randrange(8):
        size = draw.choice(HUGE)
    largest = 1.0

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q = size * normal(batch, heads, queries, width)
    k, v = (normal(batch, groups, end + spare, width) for _ in range(2))
    if draw.random() < 0.2:
        k *= size
    if not draw.randrange(20):
        k = k[:, :, :1].expand_as(k).contiguous()
    if not draw.randrange(30):
        largest = draw.choice([1e-40, 1e10, 1e36])
        v *= largest
    limit = torch.finfo(dtype).max / 2
    q, k, v = (x.clamp(-limit, limit).to(dtype) for x in (q, k, v))
    k[:, :, end:], v[:, :, end:] = math.nan, math.nan  # rows of a cache that nothing reads

    call = Call(seed, q, k, v, grad=draw.random() < 0.4, chunk=draw.choice([None, 8, 16]))
    call.huge = size > 1e5 or largest > 1e30
    more = call.more
    more["prior"] = some_prior(draw, heads, end, generator)
    more["ssmax"] = some_temperature(draw, heads, generator)
    if dtype is torch.float64:
        more |= {name: double(more[name]) for name in ("prior", "ssmax")}
    if spare:
        more["offset"] = end - queries
    elif draw.random() < 0.15:
        more["rows"] = sorted(draw.sample(range(end), queries))
    if draw.random() < 0.3:
        more["window"] = draw.choice([1, 2, 5, 17, end, end + 9])
    if draw.random() < 0.25:
        more["exempt"] = draw.choice([1, 3, end, end + 1])
    if draw.random() < 0.25:
        fresh = torch.rand(batch, end + spare, generator=generator) < draw.choice([0.02, 0.1, 0.6])
        more["documents"] = fresh.long().cumsum(1)
    if draw.random() < 0.25:
        more["padding"] = torch.randint(0, end + 1, (batch,), generator=generator)
    if draw.random() < 0.2:
        shift = draw.choice([-3.0, 0.0, 4.0])
        gates = logsigmoid(shift + 2 * normal(batch, heads, end + spare))
        more["forget"] = gates.to(torch.float32 if dtype is torch.bfloat16 else dtype)
    if draw.random() < 0.2:
        logits = draw.choice([1.0, 30.0]) * torch.randn(heads, generator=generator)
        more["sink"] = draw.choice([logits, Sink(heads)])
    if draw.random() < 0.2:
        more["scale"] = draw.choice([0.0, 0.01, 1.0, -0.7])
    choices = ["auto", "auto", "auto", "strided", "strided", "dense", "blocked"]
    more["kernel"] = draw.choice(choices)
    if (
        TORTURE and not call.grad and not draw.randrange(50)
    ):  # takes a second where none compiles it
        more["kernel"] = "flex"
    more["skip"] = draw.random() < 0.7
    if more["kernel"] in ("auto", "strided") and draw.random() < 0.1:
        call.grad, more["tolerance"] = False, draw.choice([1e-6, 1e-3])
    elif draw.random() < 0.08:
        more["decompose"] = True
    if call.grad:
        for x in (call.q, call.k, call.v):
            x.requires_grad_()
    return call


def allowed(call: Call) -> float:
    """How far an output may be off: what rounding of the scores can do to a softmax.

    Scores that are off by δ move its weights by a factor of up to exp(2δ).
    """
    q, k, v = (x.detach().double() for x in (call.q, call.k[:, :, : call.end], call.v))
    eps, width = EPS[call.q.dtype], q.shape[-1]
    scale = call.more.get("scale")
    content = q.norm(dim=-1).max() * k.norm(dim=-1).max()
    content = float(content) * abs(width**-0.5 if scale is None else scale)
    temper, prior = call.more["ssmax"], call.more["prior"]
    table = 0.0
    if isinstance(prior, Tensor):
        table = float(prior.abs().max())
    elif prior is not None:
        table = float(prior.table(call.end).detach().abs().max())
    forget = call.more.get("forget")
    table += 0.0 if forget is None else float(forget.detach().abs().sum(-1).max())
    factor = 1.0
    if temper is not None:
        factor = 2.0 + 2 * math.log(call.end + 1)
    # in half precision the prior stays wide, the queries do not
    wide = min(eps, EPS[torch.float32])
    delta = 8 * factor * (eps * content + 4 * wide * table)
    largest = float(v[:, :, : call.end].abs().max())
    share = min(2.0, math.expm1(2 * min(delta, 1.0)))
    return largest * (share + 16 * eps) + 1e-37
