"""Hooks that tell what a language model computes while it reads; see `capture` for the names."""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.capture import first_tensor, hanging
from bayesattn.probes.errors import NotApplicableError
from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.listener import Listener
from bayesattn.probes.llm.structure import Mode, Parts
from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.tracing import LayerParts

NAMES = ("values", "keys", "turned_keys", "outputs", "residual", "attention", "logits")
OF_CACHE = ("values", "turned_keys", "attention", "logits")
"""What there is without hooks."""
Heard = dict[tuple[str, int], Tensor]
"""What one pass told, by name and layer."""
Read = Callable[[Tensor], Heard]


def resolve(parts: Parts, names: Sequence[str] | None, mode: Mode) -> list[str]:
    """The names to capture, all there are if None; refuses what this model does not show."""
    there = [name for name in NAMES if mode == "hooks" or name in OF_CACHE]
    if any(layer.rows is None for layer in parts.layers):
        there.remove("attention")
    for name in names or ():
        if name not in NAMES:
            raise ValueError(f"{name!r} cannot be captured; there are {', '.join(NAMES)}")
        if name not in there:
            why = parts.reason or "this model does not give it away"
            raise NotApplicableError(f"{name} cannot be captured: {why}")
    return [name for name in there if names is None or name in names]


@contextmanager
def listening(
    subject: Subject,
    wanted: Sequence[str],
    *,
    every: bool = False,
    mode: Mode | None = None,
    cached: bool = False,
) -> Generator[Read]:
    """A function that reads tokens [B, T] and tells what is `wanted` at the last position.

    Beside that it tells "visible" [1], the keys that the last query sees.

    Args:
        subject: the model.
        wanted: names of `NAMES`.
        every: tell it at all positions, [B, T, ...]; attention as [B, H, T, T].
        mode: "cache" hangs no hooks; None does so only where hooks are impossible.
        cached: tell "cached_keys" and "cached_values" [B, T, G, D], too, as a cache keeps them.
    """
    model: Any = subject.model
    parts, device = subject.parts, device_of(model)
    hooking = (mode or parts.mode) == "hooks"
    heard: Heard = {}
    numbers = {layer.index: number for number, layer in enumerate(parts.layers)}
    options = {} if every else last_only(model)
    if parts.asks_for_attention or not hooking:
        options["output_attentions"] = "attention" in wanted

    def keep(name: str, number: int, x: Tensor) -> None:
        # a copy, since models may write into what they put out, and a row keeps no matrix alive
        heard[name, number] = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)

    def hear(index: int, keys: Tensor, values: Tensor) -> None:
        number = numbers[index]
        heads = parts.layers[number].cached_heads
        for name, x in {"turned_keys": keys, "values": values}.items():
            if name in wanted and not (hooking and name == "values"):
                own = x if len(heads) == x.shape[1] else x[:, heads]
                keep(name, number, own.transpose(1, 2) if every else own[:, :, -1])

    def read(tokens: Tensor) -> Heard:
        heard.clear()
        cache = Listener(model.config, hear, keep=cached)
        put_out = model(tokens.to(device), past_key_values=cache, use_cache=True, **options)
        if "logits" in wanted:
            keep("logits", 0, put_out.logits if every else put_out.logits[:, -1])
        if not hooking and "attention" in wanted:
            for number, rows in enumerate(put_out.attentions):
                keep("attention", number, rows if every else rows[:, :, -1])
                keep("visible", number, visible_keys((), rows))
        for number, layer in enumerate(parts.layers if cached else ()):
            kept: Any = cache.layers[layer.index]
            for name, x in {"cached_keys": kept.keys, "cached_values": kept.values}.items():
                keep(name, number, x[:, layer.cached_heads].transpose(1, 2))
        return dict(heard)

    with evaluating(model), ExitStack() as hooks:
        if hooking:
            for number, layer in enumerate(parts.layers):
                for hook in _hooks(layer, number, wanted, every, keep):
                    hooks.enter_context(hanging(hook))
        yield read


def last_only(model: Any) -> dict[str, Any]:
    """How to ask for the logits of the last token alone, where that can be asked for."""
    asks = "logits_to_keep" in signature(model.forward).parameters
    return {"logits_to_keep": 1} if asks else {}


def _hooks(
    layer: LayerParts,
    number: int,
    wanted: Sequence[str],
    every: bool,
    keep: Callable[[str, int, Tensor], None],
) -> Generator[Any]:
    """Hang hooks on one layer."""

    def of_projection(name: str, part: Heads) -> Callable[[nn.Module, Any, Tensor], None]:
        def project(_: nn.Module, __: Any, output: Tensor) -> None:
            keep(name, number, part.read(output) if every else part.read_last(output)[:, 0])

        return project

    def collect(_: nn.Module, given: tuple[Any, ...]) -> None:
        heads = given[0] if every else given[0][:, -1]
        keep("outputs", number, heads.unflatten(-1, (layer.heads, -1)))

    def attend(_: nn.Module, given: Any, options: dict[str, Any], output: Any) -> None:
        rows = None if layer.rows is None else output[layer.rows]
        if rows is not None:
            keep("visible", number, visible_keys((*given, *options.values()), rows))
        if "attention" in wanted and rows is not None:
            keep("attention", number, rows if every else rows[:, :, -1])

    def leave(_: nn.Module, __: Any, output: Any) -> None:
        states = first_tensor(output)
        keep("residual", number, states if every else states[:, -1])

    assert layer.block is not None and layer.output is not None
    for name, part in {"values": layer.value, "keys": layer.key}.items():
        if name in wanted and part is not None:
            yield part.module.register_forward_hook(of_projection(name, part))
    yield layer.attention.register_forward_hook(attend, with_kwargs=True)
    if "outputs" in wanted:
        yield layer.output.register_forward_pre_hook(collect)
    if "residual" in wanted:
        yield layer.block.register_forward_hook(leave)


def visible_keys(given: Sequence[Any], rows: Tensor) -> Tensor:
    """[1] how many keys the last query sees, by the mask among what attention was `given`.

    Where there is no mask: as many as from the first that any head gives weight to in `rows`
    [B, H, T, T].
    """
    for mask in given:
        if isinstance(mask, Tensor) and mask.ndim == 4 and mask.shape[-1] == mask.shape[-2]:
            last = mask[0, 0, -1]
            # a token sees itself, which tells what a mask of booleans means
            boolean = mask.dtype == torch.bool
            seen = last == last[-1] if boolean else last > torch.finfo(mask.dtype).min / 2
            return seen.sum()[None]
    weight = rows[:, :, -1].amax((0, 1))
    return len(weight) - (weight > 0).int().argmax()[None]
