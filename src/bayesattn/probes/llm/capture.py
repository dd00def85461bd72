"""What a language model computes at the last token of prompts, layer by layer.

    values        [N, G, D]      of the value projection
    keys          [N, G, D]      before rotation, after norms of keys
    turned_keys   [N, G, D]      as attention receives them
    outputs       [N, H, D]      of each head, before the output projection
    residual      [N, width]     after the layer
    attention     [N, H, Tmax]   row of the last query, zero beyond a prompt's length
    logits        [N, V]         of the token that would come next

N prompts, H query heads, G key/value heads, D width of a head. Prompts of one length go together
and nothing is ever padded, so every number is what the model computes for that prompt.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.probes.capture import first_tensor, hanging
from bayesattn.probes.llm.heads import Heads
from bayesattn.probes.llm.subject import Mode, Structure, Subject
from bayesattn.probes.llm.tracing import LayerStructure, Listener
from bayesattn.probes.measured import NotApplicableError

BATCH_TOKENS = 2048
NAMES = ("values", "keys", "turned_keys", "outputs", "residual", "attention", "logits")
OF_CACHE = ("values", "turned_keys", "attention", "logits")
"""What there is without hooks."""
Heard = dict[tuple[str, int], Tensor]
"""What one pass told, by name and layer."""
Read = Callable[[Tensor], Heard]


@dataclass(frozen=True, kw_only=True)
class PromptStates:
    """States at the last token of N prompts, float32 on the CPU; lists have an entry per layer.

    What was not asked for is empty.
    """

    lengths: Tensor
    """[N] tokens of each prompt."""
    visible: list[Tensor]
    """[N] keys that the last query sees; a window limits them."""
    values: list[Tensor] = field(default_factory=list[Tensor])
    keys: list[Tensor] = field(default_factory=list[Tensor])
    turned_keys: list[Tensor] = field(default_factory=list[Tensor])
    outputs: list[Tensor] = field(default_factory=list[Tensor])
    residual: list[Tensor] = field(default_factory=list[Tensor])
    attention: list[Tensor] = field(default_factory=list[Tensor])
    logits: Tensor = field(default_factory=lambda: torch.zeros(0, 0))


def capture_prompts(
    subject: Subject,
    prompts: Sequence[Sequence[int]],
    names: Sequence[str] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    mode: Mode | None = None,
) -> PromptStates:
    """Read `prompts` and keep what `names` of the module's table ask for, all there is if None.

    The mode "cache" takes keys and values from the cache, without hooks; None does so only where
    hooks are impossible. One pass has `batch_tokens` at most, unless a single prompt has more.
    """
    subject.check(prompts)
    mode = mode or subject.parts.mode
    wanted = resolve(subject.parts, names, mode)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    kept: Heard = {}
    with reading(subject, wanted, mode=mode) as read:
        for which, tokens in batches(prompts, batch_tokens):
            for place, x in read(tokens).items():
                if place not in kept:
                    width = int(lengths.max()) if place[0] == "attention" else x.shape[-1]
                    kept[place] = torch.zeros(len(prompts), *x.shape[1:-1], width)
                kept[place][which, ..., : x.shape[-1]] = x.cpu()
    layers = range(len(subject.parts.layers))
    visible = [kept[at][:, 0].long() if (at := ("visible", n)) in kept else lengths for n in layers]
    found: dict[str, Any] = {
        name: kept[name, 0] if name == "logits" else [kept[name, n] for n in layers]
        for name in wanted
    }
    return PromptStates(lengths=lengths, visible=visible, **found)


def token_keys(
    subject: Subject,
    prompts: Sequence[Sequence[int]],
    names: Sequence[str] = ("keys", "turned_keys"),
) -> dict[str, list[Tensor]]:
    """By layer, [M, G, D] keys of all M tokens, prompt after prompt."""
    subject.check(prompts)
    wanted = resolve(subject.parts, names, subject.parts.mode)
    pieces: dict[tuple[str, int], dict[int, Tensor]] = {}
    with reading(subject, wanted, every=True) as read:
        for which, tokens in batches(prompts):
            for place, x in read(tokens).items():
                pieces.setdefault(place, {}).update(zip(which, x.cpu(), strict=False))
    layers, order = range(len(subject.parts.layers)), range(len(prompts))
    return {
        name: [torch.cat([pieces[name, n][prompt] for prompt in order]) for n in layers]
        for name in wanted
    }


def batches(
    prompts: Sequence[Sequence[int]], batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], Tensor]]:
    """Prompts of one length together: which they are, and their tokens [B, T]."""
    by_length: dict[int, list[int]] = {}
    for number, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(number)
    for length, numbers in sorted(by_length.items()):
        size = max(1, batch_tokens // length)
        for first in range(0, len(numbers), size):
            which = numbers[first : first + size]
            yield which, torch.tensor([list(prompts[number]) for number in which])


def resolve(parts: Structure, names: Sequence[str] | None, mode: Mode) -> list[str]:
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
def reading(
    subject: Subject,
    wanted: Sequence[str],
    *,
    every: bool = False,
    mode: Mode | None = None,
    cached: bool = False,
) -> Generator[Read]:
    """A function that reads tokens [B, T] and tells what is `wanted` at the last position.

    Beside that it tells "visible" [1], the keys that the last query sees; `every` tells all at each
    position, [B, T, ...], and attention as [B, H, T, T]; `cached` tells "cached_keys" and
    "cached_values" [B, T, G, D], too, as a cache keeps them. The mode is as in `capture_prompts`.
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
            all_attend = len(put_out.attentions) == len(parts.layers)
            for number, layer in enumerate(parts.layers):
                rows = put_out.attentions[number if all_attend else layer.index]
                keep("attention", number, rows if every else rows[:, :, -1])
                keep("visible", number, visible_keys((), rows))
        for number, layer in enumerate(parts.layers if cached else ()):
            kept: Any = cache.layers[layer.index]
            for name, x in {"cached_keys": kept.keys, "cached_values": kept.values}.items():
                keep(name, number, x[:, layer.cached_heads].transpose(1, 2))
        return dict(heard)

    layers = enumerate(parts.layers if hooking else ())
    hooks = (hook for n, layer in layers for hook in _hooks(layer, n, wanted, every, keep))
    with evaluating(model), hanging(hooks):
        yield read


def last_only(model: Any) -> dict[str, Any]:
    """How to ask for the logits of the last token alone, where that can be asked for."""
    asks = "logits_to_keep" in signature(model.forward).parameters
    return {"logits_to_keep": 1} if asks else {}


def _hooks(
    layer: LayerStructure,
    number: int,
    wanted: Sequence[str],
    every: bool,
    keep: Callable[[str, int, Tensor], None],
) -> Generator[Any]:
    def of_projection(name: str, part: Heads) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _, __, output: keep(
            name, number, part.read(output) if every else part.read_last(output)[:, 0]
        )

    def collect(_: nn.Module, given: tuple[Any, ...]) -> None:
        heads = given[0] if every else given[0][:, -1]
        keep("outputs", number, heads.unflatten(-1, (layer.heads, -1)))

    def attend(_: nn.Module, given: Any, options: dict[str, Any], output: Any) -> None:
        if layer.rows is None or (rows := output[layer.rows]) is None:
            return
        keep("visible", number, visible_keys((*given, *options.values()), rows))
        if "attention" in wanted:
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
