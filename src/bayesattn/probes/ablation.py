"""Ablation: remove a part and measure the loss, always on the same sequences.

    parts   a head (before the output projection), all heads, the feed-forward part, a whole layer,
            a subspace of the residual stream
    kinds   zero; mean: its mean over sequences at each position; resample: another sequence's

    Δ = error without the part - error of the whole model, per sequence

A layer has one kind, bypass: its output is its input. Replacements are computed in the whole model,
also if several parts are removed at once.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesattn.bits import entropy_errors, kl_divergence, log_probabilities
from bayesattn.evals.prediction import evaluating
from bayesattn.probes.anatomy import Anatomy, anatomy
from bayesattn.probes.capture import Captured, capture, first_tensor, hanging, with_first
from bayesattn.probes.measured import Measured, mean_over_sequences, require_samples
from bayesattn.tunnels import Batch

Kind = Literal["zero", "mean", "resample"]
KINDS: tuple[Kind, ...] = ("zero", "mean", "resample")
FEWEST_SEQUENCES = 16


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One part that is removed."""

    part: Literal["head", "heads", "mlp", "layer", "subspace"]
    layer: int
    head: int | None = None
    """Number of the head, for part "head"."""
    kind: Kind = "zero"
    basis: Tensor | None = None
    """For part "subspace": [d, r] columns that span it, in the residual stream after the layer; or,
    with `inside`, in the outputs of all heads side by side."""
    inside: bool = False

    @property
    def name(self) -> str:
        at = f"L{self.layer}"
        return at + {"head": f"H{self.head}", "layer": " bypass"}.get(self.part, f" {self.part}")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Cost of removing parts, in bits."""

    name: str
    part: str
    layer: int
    head: int | None
    kind: str
    kl: Measured
    """Mean ΔKL(Bayes ‖ model)."""
    mae: Measured
    """Mean Δ|H(model) - H(Bayes)|."""


@dataclass(frozen=True, kw_only=True)
class Ablations:
    """Errors of the whole model, and the losses of all cuts."""

    kl: Measured
    mae: Measured
    losses: list[Loss]


def all_cuts(parts: Anatomy) -> list[Cut]:
    """Every head, every sublayer and every layer of a model."""
    cuts: list[Cut] = []
    for at, layer in enumerate(parts.layers):
        for kind in KINDS:
            if layer.attention is not None:
                cuts += [
                    Cut(part="head", layer=at, head=head, kind=kind)
                    for head in range(layer.attention.heads)
                ]
                cuts.append(Cut(part="heads", layer=at, kind=kind))
            if layer.mlp is not None:
                cuts.append(Cut(part="mlp", layer=at, kind=kind))
        cuts.append(Cut(part="layer", layer=at))
    return cuts


def measure_ablations(
    model: nn.Module, batch: Batch, cuts: Sequence[Cut] | None = None, *, random_cuts: int = 3
) -> Ablations:
    """The loss from each cut alone, all on the same sequences.

    Without `cuts`, all parts are cut, one at a time. The null for the heads of a layer is
    `random_cuts` random subspaces of the head outputs, as wide as a head.
    """
    require_samples("sequences", len(batch.inputs), FEWEST_SEQUENCES)
    parts = anatomy(model)
    cuts = all_cuts(parts) if cuts is None else cuts
    whole = replacements(model, batch.inputs, cuts)
    before = errors(model, batch)
    losses: list[Loss] = []
    random: dict[tuple[int, Kind], list[Tensor]] = {}
    for cut in cuts:
        kl, mae = (
            mean_over_sequences(after - start)
            for after, start in zip(errors(model, batch, [cut], whole), before, strict=True)
        )
        if cut.part == "head" and random_cuts:
            if (cut.layer, cut.kind) not in random:
                others = random_subspaces(parts, cut, random_cuts)
                costs = [torch.stack(errors(model, batch, [x], whole)) for x in others]
                mean = torch.stack(costs).mean(0) - torch.stack(before)
                random[cut.layer, cut.kind] = [*mean.flatten(1).mean(1)]
            kl, mae = (
                measured.beside(random_subspace=float(cost))
                for measured, cost in zip((kl, mae), random[cut.layer, cut.kind], strict=True)
            )
        losses.append(
            Loss(
                name=cut.name,
                part=cut.part,
                layer=cut.layer,
                head=cut.head,
                kind=cut.kind if cut.part != "layer" else "bypass",
                kl=kl,
                mae=mae,
            )
        )
    kl, mae = (mean_over_sequences(error) for error in before)
    return Ablations(kl=kl, mae=mae, losses=losses)


def errors(
    model: nn.Module, batch: Batch, cuts: Sequence[Cut] = (), whole: Captured | None = None
) -> tuple[Tensor, Tensor]:
    """KL(Bayes ‖ model) and |H(model) - H(Bayes)|, both [N, S] in bits, with `cuts` made."""
    with ablated(model, batch.inputs, cuts, whole) as logits:
        log_probs = log_probabilities(logits(batch.inputs, batch.scored))
    error = entropy_errors(log_probs, batch.posterior).abs()
    return kl_divergence(batch.posterior, log_probs), error


@contextmanager
def ablated(
    model: nn.Module, inputs: Tensor, cuts: Sequence[Cut], whole: Captured | None = None
) -> Generator[Callable[[Tensor, Tensor | None], Tensor]]:
    """Context in which the model lacks these parts; gives its logits(inputs, positions).

    Replacements come from `whole`, captured from the model with these inputs; None captures now.
    """
    parts = anatomy(model)
    whole = replacements(model, inputs, cuts) if whole is None else whole
    hooks = (_hang(parts, cut, _replacement(whole, cut)) for cut in cuts)
    with hanging(hooks), evaluating(model):
        yield parts.logits


def _check(parts: Anatomy, cut: Cut) -> None:
    parts.check_layer(cut.layer)
    if cut.kind not in KINDS:
        raise ValueError(f"unknown ablation {cut.kind!r}; choose one of {', '.join(KINDS)}")
    match cut.part:
        case "head":
            if cut.head is None:
                raise ValueError("say which head to take away: head=0")
            parts.check_head(cut.layer, cut.head)
        case "heads":
            parts.attention(cut.layer)
        case "mlp":
            parts.mlp(cut.layer)
        case "subspace" if cut.basis is None:
            raise ValueError("a subspace needs a basis [d, r]")
        case _:
            pass


def _source(cut: Cut) -> str:
    inside = cut.part in ("head", "heads") or cut.inside
    name = "head_outputs" if inside else "mlp" if cut.part == "mlp" else "residual_after"
    return f"layers.{cut.layer}.{name}"


def replacements(model: nn.Module, inputs: Tensor, cuts: Sequence[Cut]) -> Captured:
    """Tensors for the replacements of many cuts, captured once from the whole model."""
    parts = anatomy(model)
    for cut in cuts:
        _check(parts, cut)
    names = [_source(cut) for cut in cuts if cut.part != "layer" and cut.kind != "zero"]
    return capture(model, inputs, names) if names else Captured({}, None)


def _replacement(whole: Captured, cut: Cut) -> Tensor | None:
    """[N or 1, T, d] replacement of the part; None for zeros and for a bypass."""
    if cut.part == "layer" or cut.kind == "zero":
        return None
    own = whole[_source(cut)]
    own = own.flatten(2) if own.dim() == 4 else own
    # sequences are drawn independently, so the next one is as good as a random one
    return own.mean(0, keepdim=True) if cut.kind == "mean" else own.roll(1, 0)


def _hang(parts: Anatomy, cut: Cut, other: Tensor | None) -> Any:
    layer = parts.layers[cut.layer]

    def bypass(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        return with_first(output, arguments[0])

    def replace_input(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (_replaced(parts, cut, arguments[0], other), *arguments[1:])

    def replace_output(_: nn.Module, __: Any, output: Any) -> Any:
        return with_first(output, _replaced(parts, cut, first_tensor(output), other))

    if cut.part == "layer":
        return layer.block.register_forward_hook(bypass)
    if cut.part == "mlp":
        return parts.mlp(cut.layer).register_forward_hook(replace_output)
    if cut.part in ("head", "heads") or cut.inside:
        return parts.attention(cut.layer).output.register_forward_pre_hook(replace_input)
    return layer.block.register_forward_hook(replace_output)


def _replaced(parts: Anatomy, cut: Cut, x: Tensor, other: Tensor | None) -> Tensor:
    """`x` with its cut part replaced by that of `other`, or by zeros."""
    gone = x if other is None else x - other.to(x.device)
    if cut.part == "subspace":
        assert cut.basis is not None
        basis = torch.linalg.qr(cut.basis.to(x)).Q
        return x - (gone @ basis) @ basis.T
    if cut.part == "head":
        assert cut.head is not None
        width = parts.attention(cut.layer).width
        mask = torch.zeros(x.shape[-1], device=x.device, dtype=x.dtype)
        mask[cut.head * width : (cut.head + 1) * width] = 1
        return x - gone * mask
    return x - gone


def random_subspaces(parts: Anatomy, cut: Cut, count: int) -> list[Cut]:
    """Random subspaces of the head outputs, as wide as one head."""
    part = parts.attention(cut.layer)
    cuts: list[Cut] = []
    for draw in range(count):
        generator = torch.Generator().manual_seed(draw)
        basis = torch.randn(part.heads * part.width, part.width, generator=generator)
        cuts.append(Cut(part="subspace", layer=cut.layer, kind=cut.kind, basis=basis, inside=True))
    return cuts
