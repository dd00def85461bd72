"""Captures intermediate results of a model, with the same names for every model.

    embedding                        [N, P, width]      input of the first layer
    layers.0.residual_before         [N, P, width]      the residual stream before the layer
    layers.0.residual_mid            [N, P, width]      after its attention
    layers.0.residual_after          [N, P, width]      after its feed-forward part
    layers.0.q  .k  .v               [N, P, heads, D]   as attention receives them, after rotation
    layers.0.attention               [N, P, heads, T]   rows of the posterior over all T keys
    layers.0.head_outputs            [N, P, heads, D]   before the output projection
    layers.0.mlp                     [N, P, width]      output of the feed-forward part
    logits                           [N, P, outcomes]

for N sequences and the P chosen positions. Models without a residual stream of sublayers (LSTM,
Mamba, MLP) have their hidden states under the names residual_before and residual_after.
"""

import fnmatch
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.anatomy import Anatomy, AttentionPart, Call, LayerParts, anatomy
from bayesattn.probes.measured import NotApplicableError

OF_ATTENTION = ("q", "k", "v", "attention", "head_outputs")
LARGE_BLOCK = 31 * 2**20
"""Bytes; glibc learns from freed blocks up to 32 MiB how much memory to keep."""
Keep = Callable[[str, Tensor], None]


@dataclass(frozen=True)
class Captured:
    """Tensors by name, float32 on the CPU or in the dtype of the model."""

    tensors: dict[str, Tensor]
    positions: Tensor | None
    """[P] the captured positions; None for all."""

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


def available(parts: Anatomy) -> list[str]:
    """Every name that can be captured from a model."""
    names = ["embedding"]
    for at, layer in enumerate(parts.layers):
        own = ["residual_before"]
        own += [*OF_ATTENTION] if layer.attention is not None else []
        own += ["residual_mid"] if layer.middle is not None else []
        own += ["mlp"] if layer.mlp is not None else []
        names += [f"layers.{at}.{name}" for name in (*own, "residual_after")]
    return [*names, "logits"]


def capture(
    model: nn.Module,
    inputs: Tensor | Iterable[Tensor],
    names: Sequence[str] = ("*",),
    positions: Tensor | None = None,
    batch_size: int = 256,
) -> Captured:
    """Run a `Predictor` or a `BayesForCausalLM` over `inputs` and capture the results `names`.

    Inputs are tokens [N, T] or features [N, T, F], or batches of them. In names `*` matches
    anything, as in "layers.*.v". Only `positions` [P] are captured (None: all); attention rows
    always have all keys.
    """
    batches = list(stream(model, inputs, names, positions, batch_size))
    if not batches:
        raise ValueError("there are no inputs to capture anything from")
    kept = {
        name: torch.cat([batch[name] for batch in batches]) if len(batches) > 1 else tensor
        for name, tensor in batches[0].tensors.items()
    }
    return Captured(kept, positions)


def stream(
    model: nn.Module,
    inputs: Tensor | Iterable[Tensor],
    names: Sequence[str] = ("*",),
    positions: Tensor | None = None,
    batch_size: int = 256,
) -> Iterator[Captured]:
    """`capture`, batch by batch: only one batch is in memory at a time."""
    parts = anatomy(model)
    wanted = resolve(parts, names)
    device = device_of(model)
    # After a large block was freed, the C library keeps memory that is freed later. It avoids page
    # faults of new memory, which would cost more than the copies.
    torch.empty(LARGE_BLOCK, dtype=torch.uint8)
    rows = None if positions is None else positions.to(device)
    # what leaves a layer enters the next: one copy is enough
    same = {
        f"layers.{at}.residual_before": f"layers.{at - 1}.residual_after" if at else "embedding"
        for at in range(len(parts.layers))
    }
    for batch in inputs.split(batch_size) if isinstance(inputs, Tensor) else inputs:
        kept: dict[str, Tensor] = {}
        with evaluating(model), listening(parts, [same.get(x, x) for x in wanted], rows, kept):
            kept["logits"] = parts.logits(batch.to(device), rows)
        yield Captured({name: kept[same.get(name, name)].cpu() for name in wanted}, positions)


def resolve(parts: Anatomy, names: Sequence[str]) -> list[str]:
    """The names that patterns stand for, in the order of computation."""
    known = available(parts)
    wanted: set[str] = set()
    for name in names:
        found = fnmatch.filter(known, name)
        if not found:
            raise _unknown(parts, name)
        wanted.update(found)
    return [name for name in known if name in wanted]


def _unknown(parts: Anatomy, name: str) -> ValueError:
    *_, layer, last = f"..{name}".split(".")
    if last in OF_ATTENTION and not parts.attending:
        return NotApplicableError(f"{name} cannot be captured: this {parts.kind} has no attention")
    if layer.isdigit() and int(layer) >= len(parts.layers):
        count = len(parts.layers)
        return ValueError(f"{name} cannot be captured: this {parts.kind} has {count} layers")
    return ValueError(
        f"{name} is nothing that a {parts.kind} has; there are {', '.join(available(parts))}"
    )


@contextmanager
def listening(
    parts: Anatomy, wanted: Sequence[str], rows: Tensor | None, kept: dict[str, Tensor]
) -> Generator[None]:
    """Context in which a pass of the model fills `kept`."""

    def keep(name: str, x: Tensor) -> None:
        if name in wanted:
            kept[name] = x if rows is None else x.index_select(1, rows)

    def hooks() -> Iterator[Any]:
        for at, layer in enumerate(parts.layers):
            yield from _layer_hooks(layer, at, keep)
            own = {name.rpartition(".")[2] for name in wanted if name.startswith(f"layers.{at}.")}
            if layer.attention is not None and own & {*OF_ATTENTION}:
                yield from _attention_hooks(layer.attention, f"layers.{at}.", own, rows, kept)

    with hanging(hooks()):
        yield


def _layer_hooks(layer: LayerParts, at: int, keep: Keep) -> Iterator[Any]:
    def given(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _, arguments: keep(name, arguments[0])

    def put_out(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _, __, output: keep(name, first_tensor(output))

    if at == 0:
        yield layer.block.register_forward_pre_hook(given("embedding"))
    if layer.middle is not None:
        yield layer.middle.register_forward_pre_hook(given(f"layers.{at}.residual_mid"))
    if layer.mlp is not None:
        yield layer.mlp.register_forward_hook(put_out(f"layers.{at}.mlp"))
    yield layer.block.register_forward_hook(put_out(f"layers.{at}.residual_after"))


def _attention_hooks(
    part: AttentionPart, prefix: str, own: set[str], rows: Tensor | None, kept: dict[str, Tensor]
) -> Iterator[Any]:
    """Projections are kept as they come; just before the output projection all of it is there."""
    calls: list[Call] = []
    raw: dict[str, Tensor] = {}

    def chosen(x: Tensor) -> Tensor:
        return x if rows is None else x.index_select(1, rows)

    def finish(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        (call,) = calls
        found: dict[str, Tensor] = {}
        if "head_outputs" in own:
            found["head_outputs"] = part.split(chosen(arguments[0]))
        if "v" in raw:
            found["v"] = part.split(chosen(raw["v"]))
        if "q" in raw:
            found["q"] = call.turn(part.split(chosen(raw["q"])), rows)
        if "k" in raw:
            keys = call.turn(part.split(raw["k"]), None)
            found["k"] = keys if rows is None else keys.index_select(2, rows)
            if "attention" in own:
                found["attention"] = part.posterior(call, found["q"], keys, rows)
        kept.update({prefix + name: x.transpose(1, 2) for name, x in found.items() if name in own})
        calls.clear()
        raw.clear()

    def hear(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _, __, output: raw.update({name: output})

    yield part.module.register_forward_pre_hook(lambda _, args: calls.append(part.call(args)))
    for name in own & {"q", "k", "v"} | ({"q", "k"} if "attention" in own else set()):
        yield part.projections[name].register_forward_hook(hear(name))
    yield part.output.register_forward_pre_hook(finish)


def first_tensor(output: Any) -> Tensor:
    """The states among what a layer returns; an LSTM returns its memory beside them."""
    return output[0] if isinstance(output, tuple) else output


def with_first(output: Any, states: Tensor) -> Any:
    """What a layer returns, with other states in it."""
    return (states, *output[1:]) if isinstance(output, tuple) else states


@contextmanager
def hanging(handles: Iterable[Any]) -> Generator[None]:
    """Context with hooks, which are removed after any error."""
    hung: list[Any] = []
    try:
        for handle in handles:
            hung.append(handle)
        yield
    finally:
        for handle in hung:
            handle.remove()
