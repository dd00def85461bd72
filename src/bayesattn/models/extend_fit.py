"""Diagnosis of attention heads beyond the training length, and numbers that correct them.

    H_i = -Σ_j α_ij ln α_ij      H_i ≈ c + s ln i        fitted inside, up to the trained length n0
    excess = mean over i > n0 of H_i - (c + s ln i)      above 0: flattens; below 0: collapses
    f_i: H_i(f_i · scores) = c + s ln i                  the temperature that restores the entropy
    a = Σ_i (f_i - 1) x_i / Σ_i x_i²                     x_i = ln(i/n0); the head's log-temperature

Priors are distilled head by head. The target o'_i for the output o_i of a row under prior and
temperature is the model's own output: inside n0 that of the same row, beyond n0 the output of the
original model if it reads only the last n0 tokens.

    loss = mean over i of |o_i - o'_i|² / |o'_i|²        gradient to the head's three numbers only

This needs a few rows of each layer, recorded while the model reads a text once.
Shapes: H query heads, R rows, S keys, D head width.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (transformers leaves some members untyped)

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.models.extend import EXEMPT
from bayesattn.models.interface import Sight, bayes_attention, bayes_mask

WATCHED = "bayes_watched"
INSIDE, BEYOND = 24, 24
"""Number of rows that are recorded."""
NEAREST = 16
"""The first rows see n0 / 16 keys: with fewer keys the entropy does not follow the line yet."""
LEAST = 0.1
"""Least deviation of the entropy in nats, besides three standard errors."""
FACTORS = (0.25, 4.0)
"""Range of temperatures that are tried."""
_HALVINGS = 20
STEPS, RATE = 40, 0.05


class Watched(NamedTuple):
    """Some rows of one layer of one text."""

    module: Any
    q: Tensor
    """[H, R, D], turned."""
    k: Tensor
    """[H, S, D]."""
    v: Tensor
    rows: Tensor
    """[R] index of each among the keys."""
    scale: float
    window: int | None

    def scores(self) -> Tensor:
        """[H, R, S], -inf where nothing is seen."""
        found = (self.q * self.scale) @ self.k.mT
        distance = self.rows[:, None] - torch.arange(self.k.shape[1])
        hidden = distance < 0
        if self.window is not None:
            hidden = hidden | (distance >= self.window)
        return found.masked_fill(hidden, -math.inf)


Visit = Callable[[Watched], None]
_visits: list[tuple[Tensor, Visit]] = []


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
) -> tuple[Tensor, Tensor | None]:
    rows, visit = _visits[-1]
    window = attention_mask.window if isinstance(attention_mask, Sight) else None
    scale = more.get("scaling") or query.shape[-1] ** -0.5
    q = query[0, :, rows].float()
    k, v = (repeat_heads(x, query.shape[1])[0].float() for x in (key, value))
    visit(Watched(module, q, k, v, rows, scale, window))
    return bayes_attention(module, query, key, value, attention_mask, **more)


AttentionInterface.register(WATCHED, _attention)
AttentionMaskInterface.register(WATCHED, bayes_mask)


@torch.no_grad()
def watch_rows(model: PreTrainedModel, tokens: Tensor, rows: Tensor, visit: Visit) -> None:
    """Read tokens [n] once; `visit` gets some rows of each layer before attention."""
    with _recording(model, rows, visit):
        body: Any = model.base_model
        body(tokens[None].to(model.device), use_cache=False)


@contextmanager
def _recording(model: PreTrainedModel, rows: Tensor, visit: Visit) -> Generator[None]:
    before = model.config._attn_implementation
    assert before is not None
    model.set_attn_implementation(WATCHED)
    _visits.append((rows, visit))
    try:
        yield
    finally:
        _visits.pop()
        model.set_attn_implementation(before)


def watched_rows(trained: int, to: int) -> tuple[Tensor, Tensor]:
    """Rows inside, at equal distances in ln n, and beyond up to the last."""
    first = max(2, trained // NEAREST)
    inside = torch.logspace(math.log(first), math.log(trained), INSIDE, base=math.e) - 1
    beyond = torch.linspace(trained, to - 1, BEYOND + 1)[1:]
    return inside.round().long().unique(), beyond.round().long().unique()


def entropy(scores: Tensor) -> Tensor:
    """Nats of softmax over the last dimension; scores may be -inf."""
    log_p = scores.log_softmax(-1)
    return -(log_p.exp() * log_p.masked_fill(scores == -math.inf, 0.0)).sum(-1)


@dataclass(frozen=True)
class Head:
    """Diagnosis of one head."""

    layer: int
    head: int
    kind: str
    """flattens, collapses, stays; or window, if the head never sees more than n0 keys."""
    inside: float
    """Mean H / ln n in the upper half of the trained length."""
    beyond: float
    excess: float
    """Excess entropy in nats, see the module."""
    error: float
    """Standard error of the excess."""
    offset: float
    """c."""
    slope: float
    """s."""
    temperature: float
    """a of this head alone."""


@dataclass(frozen=True)
class Diagnosis:
    """Entropies [texts, layers, H, R] at rows [R], and factors of those beyond."""

    trained: int
    rows: Tensor
    entropies: Tensor
    factors: Tensor
    """f of the rows beyond."""
    windowed: list[int]
    """Layers that see a window of at most the trained length."""

    def heads(self) -> list[Head]:
        log_n, inside = (self.rows + 1.0).double().log(), self.rows < self.trained
        beyond = ~inside
        late = inside & (self.rows >= self.trained // 2)
        mean = self.entropies.double().mean(0)
        offset, slope = entropy_law(mean, log_n, inside)
        off = mean - offset[..., None] - slope[..., None] * log_n
        error = off[..., inside].var(-1) / inside.sum() + off[..., beyond].var(-1) / beyond.sum()
        error, excess = error.sqrt(), off[..., beyond].mean(-1)
        even = mean / log_n
        fitted = log_temperature(self.factors, self.rows[beyond], self.trained)
        found: list[Head] = []
        for layer, head in torch.cartesian_prod(*map(torch.arange, excess.shape)).tolist():
            size, noise = float(excess[layer, head]), float(error[layer, head])
            kind = "flattens" if size > 0 else "collapses"
            if layer in self.windowed:
                kind = "window"
            elif abs(size) < max(LEAST, 3 * noise):
                kind = "stays"
            found.append(
                Head(
                    layer,
                    head,
                    kind,
                    inside=float(even[layer, head, late].mean()),
                    beyond=float(even[layer, head, beyond].mean()),
                    excess=size,
                    error=noise,
                    offset=float(offset[layer, head]),
                    slope=float(slope[layer, head]),
                    temperature=float(fitted[layer, head]),
                )
            )
        return found


def entropy_law(entropies: Tensor, log_n: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """C and s [...] by least squares over the rows [R] `inside` of entropies [..., R]."""
    x, y = log_n[inside], entropies[..., inside]
    x0, y0 = x.mean(), y.mean(-1, keepdim=True)
    slope = ((x - x0) * (y - y0)).sum(-1) / (x - x0).square().sum()
    return y0[..., 0] - slope * x0, slope


def log_temperature(factors: Tensor, rows: Tensor, trained: int) -> Tensor:
    """The numbers a [layers, H], from factors [texts, layers, H, R] at `rows` beyond n0."""
    x = ((rows + 1.0) / trained).log()
    return ((factors - 1) * x).sum((0, -1)) / (len(factors) * x.square().sum())


def one_log_temperature(factors: Tensor, rows: Tensor, trained: int) -> float:
    """The number a of Llama 4's law for all heads together, at least 0."""
    x = (rows + 1).div(trained, rounding_mode="floor").log1p()
    fitted = ((factors - 1) * x).sum() / (factors[..., 0].numel() * x.square().sum())
    return max(0.0, float(fitted))


def find_factors(scores: Tensor, wanted: Tensor) -> Tensor:
    """[H, R] factors that give scores [H, R, S] the entropy `wanted`, by bisection.

    Entropy falls as the factor grows. An unreachable entropy gives the nearest of `FACTORS`.
    """
    low, high = (torch.full_like(wanted, math.log(limit)) for limit in FACTORS)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = entropy(scores * middle.exp()[..., None]) > wanted
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ((low + high) / 2).exp()


def diagnose(
    model: PreTrainedModel,
    texts: Sequence[Tensor],
    trained: int,
    laws: tuple[Tensor, Tensor] | None = None,
) -> Diagnosis:
    """Entropies of every head in texts [n], n beyond the trained length.

    `laws` are the c and s [layers, H] that factors restore; by default those of this model.
    """
    inside, beyond = watched_rows(trained, len(texts[0]))
    rows = torch.cat((inside, beyond))
    log_n = (rows + 1.0).log()
    entropies: list[list[Tensor]] = []
    factors: list[list[Tensor]] = []
    windowed: set[int] = set()

    def visit(seen: Watched) -> None:
        layer = len(entropies[-1])
        if seen.window is not None and seen.window <= trained:
            windowed.add(layer)
        scores = seen.scores()
        found = entropy(scores)
        offset, slope = (
            entropy_law(found, log_n, rows < trained)
            if laws is None
            else (laws[0][layer], laws[1][layer])
        )
        law = offset[:, None] + slope[:, None] * log_n
        wanted = torch.minimum(law, log_n).clamp(min=0)[:, len(inside) :]
        entropies[-1].append(found)
        factors[-1].append(find_factors(scores[:, len(inside) :], wanted.to(found.dtype)))

    for text in texts:
        entropies.append([])
        factors.append([])
        watch_rows(model, text, rows, visit)
    of_rows, beyond = (torch.stack([torch.stack(text) for text in x]) for x in (entropies, factors))
    return Diagnosis(trained, rows, of_rows, beyond, sorted(windowed))


def outputs_of(model: PreTrainedModel, text: Tensor, rows: Tensor) -> list[Tensor]:
    """Attention outputs [H, R, D] of every layer at these rows."""
    found: list[Tensor] = []
    watch_rows(model, text, rows, lambda seen: found.append(seen.scores().softmax(-1) @ seen.v))
    return found


def targets_of(model: PreTrainedModel, text: Tensor, trained: int) -> tuple[Tensor, list[Tensor]]:
    """Rows of a text, and the original model's attention outputs there within n0 tokens."""
    count = len(text)
    inside, beyond = watched_rows(trained, count)
    beyond = beyond[beyond >= count - trained // 2]  # they have half the length or more before them
    first = outputs_of(model, text[:trained], inside)
    start = count - trained
    # as every text begins
    last = torch.cat((text[:1], text[start + 1 :]))
    then = outputs_of(model, last, beyond - start)
    return torch.cat((inside, beyond)), [torch.cat(x, 1) for x in zip(first, then, strict=True)]


def distil(
    model: PreTrainedModel,
    text: Tensor,
    rows: Tensor,
    targets: Sequence[Tensor],
    steps: int = STEPS,
) -> list[tuple[float, float]]:
    """Fit prior and temperatures of an extended model, layer after layer, while it reads `text`.

    Every layer attends with its new numbers, so later layers get the inputs that they will get in
    use. Returns the loss of each layer before and after.
    """
    losses: list[tuple[float, float]] = []

    def visit(seen: Watched) -> None:
        losses.append(_distil_layer(seen, targets[len(losses)], steps))

    watch_rows(model, text, rows, visit)
    return losses


@torch.enable_grad()
def _distil_layer(seen: Watched, target: Tensor, steps: int) -> tuple[float, float]:
    prior, temperature = seen.module.prior, seen.module.ssmax
    learned = [p for x in (prior, temperature) for p in x.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=RATE)
    scores, heads = seen.scores(), seen.k.shape[0]
    hidden = scores == -math.inf
    scores = scores.masked_fill(hidden, 0.0)
    distance = (seen.rows[:, None] - torch.arange(seen.k.shape[1])).clamp(min=0)
    exempt = torch.arange(seen.k.shape[1]) < EXEMPT
    size = target.square().sum(-1).clamp(min=1e-12)

    def loss_of_heads() -> Tensor:
        bias = prior.log_prior(distance.flatten()).view(heads, *distance.shape)
        factor = temperature.factor(seen.rows[None] + 1, torch.float32)[0]
        tempered = scores * factor[..., None] + bias.masked_fill(exempt, 0.0)
        output = tempered.masked_fill(hidden, -math.inf).softmax(-1) @ seen.v
        return ((output - target).square().sum(-1) / size).mean(-1)

    first = best = kept = None
    for step in range(steps + 1):
        loss = loss_of_heads()
        with torch.no_grad():  # keep the initial numbers of a head that got worse
            if first is None or best is None or kept is None:
                first = best = loss.clone()
                kept = [p.clone() for p in learned]
            better = loss < best
            best = torch.where(better, loss, best)
            kept = [torch.where(better, p, old) for p, old in zip(learned, kept, strict=True)]
        if step < steps:
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
    assert first is not None and best is not None and kept is not None
    with torch.no_grad():
        for parameter, value in zip(learned, kept, strict=True):
            parameter.copy_(value)
    return float(first.mean()), float(best.mean())
