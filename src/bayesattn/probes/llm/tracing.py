"""One pass of a model with an ear on every module: who runs when, and what it puts out.

The layout of a fused projection is not assumed but read off: the columns of what it puts out are
compared, bit by bit, with what gets into the cache.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel

from bayesattn.probes.capture import first_tensor, hanging
from bayesattn.probes.llm.heads import Heads, Layout, lay_flat, layout_of, projects

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
Hear = Callable[[int, Tensor, Tensor], None]
"""Is told the layer's number in caches, and its keys and values [B, heads, T, D]."""


class Listener(DynamicCache):
    """Keeps nothing and hands attention the very tensors it was given, as if there were no cache.

    Args:
        config: of the model.
        hear: is called in every layer.
        keep: be a cache of transformers besides, whose memory attention then reads.
    """

    def __init__(self, config: PreTrainedConfig, hear: Hear, *, keep: bool = False) -> None:
        super().__init__(config=config)
        self.hear, self.keep = hear, keep

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.hear(layer_idx, key_states, value_states)
        if self.keep:
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return key_states, value_states


@dataclass
class LayerStructure:
    """What one pass showed of a layer; None is what it did not show."""

    attention: nn.Module
    """The innermost module that was running when keys and values were cached."""
    index: int
    """The layer's number in caches."""
    heads: int
    cached_heads: list[int]
    """Which of the cached heads are distinct: all, unless the model repeats them for its cache."""
    block: nn.Module | None
    """Its first output is the residual stream after the layer."""
    value: Heads | None = None
    key: Heads | None = None
    """Before rotation, after norms."""
    key_scale: float = 1.0
    """What rotation multiplies keys with besides turning them (YaRN)."""
    key_projection: Heads | None = None
    output: nn.Module | None = None
    """The output projection, which is given all heads side by side."""
    rows: int | None = None
    """Which output of `attention` holds the weights [B, heads, T, T]."""
    following: nn.Module | None = None
    """The next member of the list that `block` is in."""

    @property
    def missing(self) -> list[str]:
        needed = {
            "blocks": self.block,
            "value projections": self.value,
            "key projections": self.key,
            "output projections": self.output,
        }
        return [name for name, part in needed.items() if part is None]


@dataclass(frozen=True)
class _Seen:
    """What a module was given and put out, [B, T, features]."""

    module: nn.Module
    layout: Layout
    given: Tensor | None
    features: Tensor

    @property
    def projected(self) -> bool:
        """Whether a linear layer put this out."""
        given = 0 if self.given is None else self.given.shape[-1]
        return projects(self.module, given, self.features.shape[-1])


@dataclass
class _Pass:
    """A pass under way."""

    members: set[int]
    """Ids of the members of module lists."""
    scales: list[float]
    heads: int
    batch: int
    length: int
    running: list[nn.Module] = field(default_factory=list[nn.Module])
    seen: list[_Seen] = field(default_factory=list[_Seen])
    """In the block that is running, until its keys and values are cached."""
    layers: list[LayerStructure] = field(default_factory=list[LayerStructure])

    def enter(self, module: nn.Module, *_: Any) -> None:
        if id(module) in self.members and self._block() is None:
            self.seen.clear()
        self.running.append(module)

    def leave(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        layer = self._cached()
        self.running.pop()
        if layer is None:
            self._keep(module, given, output)
            return
        # the last one inside attention, since gates may be projected there first
        here = layer.output is None or layer.attention in self.running
        if here and _is_projection(module, given, output) and self._is_flat(given[0]):
            layer.output = module
        if module is layer.attention:
            self._find_rows(layer, output)
        if module is layer.block and not self._is_flat(first_tensor(output)):
            layer.block = None

    def hear(self, index: int, keys: Tensor, values: Tensor) -> None:
        k, v = (x.transpose(1, 2) for x in (keys, values))
        distinct = distinct_heads(torch.cat([k, v], -1).flatten(0, 1))
        layer = LayerStructure(self.running[-1], index, self.heads, distinct, self._block())
        self.layers.append(layer)
        layer.value, _ = self._find(v[:, :, distinct].flatten(0, 1), slice(None), [1.0])
        # position 0 is not turned
        layer.key, layer.key_scale = self._find(k[:, 0, distinct], slice(1), self.scales)
        layer.key_projection = self._before_norm(layer.key)

    def _is_flat(self, x: Tensor) -> bool:
        return layout_of(x, self.batch, self.length) == "flat"

    def _block(self) -> nn.Module | None:
        return next((module for module in self.running if id(module) in self.members), None)

    def _cached(self) -> LayerStructure | None:
        """The layer that is running, if its keys and values are cached already."""
        layer = self.layers[-1] if self.layers else None
        return layer if layer is not None and layer.block in self.running else None

    def _keep(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if self._block() is None or not isinstance(output, Tensor):
            return
        layout = layout_of(output, self.batch, self.length)
        if layout is None:
            return
        first = given[0] if given and isinstance(given[0], Tensor) else None
        before = None if first is None else layout_of(first, self.batch, self.length)
        flat = lay_flat(first, before) if first is not None and before is not None else None
        self.seen.append(_Seen(module, layout, flat, lay_flat(output, layout)))

    def _find(
        self, wanted: Tensor, positions: slice, scales: list[float]
    ) -> tuple[Heads | None, float]:
        """The last output that holds every column of `wanted` [rows, G, D] at `positions`."""
        for scale in scales:
            for seen in reversed(self.seen):
                features = seen.features[:, positions].flatten(0, 1)
                columns = match_columns(wanted, features * features.new_tensor(scale))
                if columns is not None:
                    return Heads(seen.module, seen.layout, columns), scale
        return None, 1.0

    def _before_norm(self, key: Heads | None) -> Heads | None:
        """The projection whose output the keys are, or were until a norm changed them."""
        if key is None:
            return None
        norm = next(seen for seen in reversed(self.seen) if seen.module is key.module)
        if norm.projected or norm.given is None:
            return key if norm.projected else None
        given = norm.given[..., key.columns.flatten()].unflatten(-1, key.columns.shape)
        for seen in self.seen:
            if seen.projected:
                columns = match_columns(given.flatten(0, 1), seen.features.flatten(0, 1))
                if columns is not None:
                    return Heads(seen.module, seen.layout, columns)
        return None

    def _find_rows(self, layer: LayerStructure, output: Any) -> None:
        for place, x in enumerate(output if isinstance(output, tuple) else ()):
            if isinstance(x, Tensor) and x.shape[1:] == (layer.heads, self.length, self.length):
                layer.rows = place


def trace(model: PreTrainedModel, tokens: Tensor, **options: Any) -> list[LayerStructure]:
    """What one pass over `tokens` [B, T] shows of every layer that caches keys and values."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    members = {id(member) for members in lists for member in members}
    heads = getattr(model.config.get_text_config(decoder=True), "num_attention_heads", 0)
    one = _Pass(members, _scales(model), heads, tokens.shape[0], tokens.shape[1])
    hooks = (
        hook
        for module in model.modules()
        for hook in (
            module.register_forward_pre_hook(one.enter),
            module.register_forward_hook(one.leave),
        )
    )
    with hanging(hooks):
        model(tokens, past_key_values=Listener(model.config, one.hear), use_cache=True, **options)
    following = {id(a): b for own in lists for a, b in pairwise(own)}
    for layer in one.layers:
        layer.following = following.get(id(layer.block))
    return one.layers


def _is_projection(module: nn.Module, given: tuple[Any, ...], output: Any) -> bool:
    if not given or not isinstance(given[0], Tensor) or not isinstance(output, Tensor):
        return False
    return projects(module, given[0].shape[-1], output.shape[-1])


def _scales(model: nn.Module) -> list[float]:
    """1, and whatever rotary encodings multiply their cosines with."""
    found = {
        float(value)
        for module in model.modules()
        for name, value in vars(module).items()
        if name.endswith("attention_scaling") and isinstance(value, int | float)
    }
    return [1.0, *sorted(found - {1.0})]


def match_columns(wanted: Tensor, among: Tensor) -> Tensor | None:
    """[G, D] for each column of `wanted` [rows, G, D] the equal one of `among` [rows, W], or None.

    No column is taken twice. Where several are equal, as dead ones are, the neighbour of the column
    before is taken.
    """
    places: dict[bytes, list[int]] = defaultdict(list)
    for column, bits in enumerate(_bits(among)):
        places[bits].append(column)
    found: list[int] = []
    taken: set[int] = set()
    for bits in _bits(wanted.flatten(1)):
        candidates = [column for column in places.get(bits, ()) if column not in taken]
        if not candidates:
            return None
        neighbour = found[-1] + 1 if found else 0
        found.append(neighbour if neighbour in candidates else candidates[0])
        taken.add(found[-1])
    return torch.tensor(found).view(wanted.shape[1:])


def distinct_heads(heads: Tensor) -> list[int]:
    """The first of each set of equal heads [rows, G, D]: some models repeat heads for the cache."""
    first: dict[bytes, int] = {}
    for head in range(heads.shape[1]):
        (bits,) = _bits(heads[:, head].reshape(-1, 1))
        first.setdefault(bits, head)
    return list(first.values())


def _bits(columns: Tensor) -> list[bytes]:
    # 0 is added because -0 equals 0
    rows = (columns.detach().cpu() + 0.0).T.contiguous()
    return [row.tobytes() for row in rows.view(_BITS[rows.element_size()]).numpy()]
