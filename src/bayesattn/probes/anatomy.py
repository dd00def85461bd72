"""Finds the parts of a model, to which capture and ablation attach hooks.

Only this file depends on the code of models. `anatomy(model)` gives layers, each a block
[B, T, D] -> [B, T, D] on the residual stream, with its attention and its feed-forward part if it
has them. Shapes: B batch, H query heads, G key/value heads, T positions, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from transformers import DynamicCache

from bayesattn.attention.kernels.dense import posterior
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility, first_visible
from bayesattn.encodings import Rotation
from bayesattn.models import BayesForCausalLM
from bayesattn.models.architectures import Predictor
from bayesattn.models.architectures.transformer import TransformerBody
from bayesattn.models.layers import BayesAttention, BayesDecoderLayer
from bayesattn.models.layout import Layout, lay_out
from bayesattn.probes.measured import NotApplicableError


class Call(NamedTuple):
    """Arguments of one call of an attention module."""

    x: Tensor
    table: Tensor | None
    layout: Layout
    rotation: Rotation | None

    def turn(self, x: Tensor, rows: Tensor | None) -> Tensor:
        """Queries or keys [B, heads, T, D] of the positions `rows` (all if None), rotated."""
        if self.rotation is None:
            return x
        if rows is None:
            return self.rotation(x)
        return Rotation(*(angles.index_select(2, rows) for angles in self.rotation))(x)


@dataclass(frozen=True)
class AttentionPart:
    """Attention of one layer: three projections, heads, one projection back."""

    module: BayesAttention

    @property
    def heads(self) -> int:
        return self.module.config.num_attention_heads

    @property
    def width(self) -> int:
        return cast(int, self.module.config.head_dim)

    @property
    def projections(self) -> dict[str, nn.Module]:
        """Modules whose outputs, split into heads, are q, k and v before any rotation."""
        return {"q": self.module.q_proj, "k": self.module.k_proj, "v": self.module.v_proj}

    @property
    def output(self) -> nn.Module:
        """The module that takes the outputs of all heads side by side, [B, T, H · width]."""
        return self.module.o_proj

    def split(self, x: Tensor) -> Tensor:
        """[B, T, heads · width] to [B, heads, T, width]."""
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)

    @staticmethod
    def call(arguments: tuple[Any, ...]) -> Call:
        x, table, layout, rotation, _, _, *start = arguments
        assert layout.offset == 0 and not any(start), "capture looks at whole sequences"
        return Call(x, table, layout, rotation)

    def posterior(self, call: Call, q: Tensor, k: Tensor, rows: Tensor | None) -> Tensor:
        """[B, H, R, T] attention of queries q [B, H, R, D] at `rows` [R] to all keys [B, G, T, D].

        By the definition of attention, from q and k as the module received them.
        """
        count, layout = k.shape[2], call.layout
        first = first_visible(count, layout.offset, layout.documents, layout.padding)
        seen = Visibility(count, layout.offset, first, layout.window, layout.exempt)
        prior = self.module.prior if call.table is None else call.table
        forget = None if self.module.forget is None else self.module.forget(call.x)
        more = {"forget": forget, "sink": self.module.sink}
        return posterior(q, k, Terms.of(q, prior, self.module.ssmax, seen, **more), rows)


@dataclass(frozen=True)
class LayerParts:
    """One layer, with the modules for hooks."""

    block: nn.Module
    """First input: the residual stream before the layer; (first) output: the stream after it."""
    attention: AttentionPart | None = None
    middle: nn.Module | None = None
    """A module whose input is the residual stream between the two sublayers."""
    mlp: nn.Module | None = None
    """A module whose output is added to the residual stream."""


@dataclass(frozen=True)
class Anatomy:
    """The parts of a model."""

    kind: str
    """Kind of the model, for messages."""
    layers: tuple[LayerParts, ...]
    logits: Callable[[Tensor, Tensor | None], Tensor]
    """Maps inputs and positions (None: all) to logits [B, P, outcomes]."""
    cached_values: Callable[[Tensor], list[Tensor]]
    """Maps inputs to the cached values [B, G, T, D] of each layer with attention."""

    @property
    def attending(self) -> list[int]:
        return [at for at, layer in enumerate(self.layers) if layer.attention is not None]

    def attention(self, layer: int) -> AttentionPart:
        self.check_layer(layer)
        part = self.layers[layer].attention
        if part is None:
            what = f"layer {layer} of this {self.kind}" if self.attending else _article(self.kind)
            raise NotApplicableError(f"{what} has no attention")
        return part

    def mlp(self, layer: int) -> nn.Module:
        self.check_layer(layer)
        part = self.layers[layer].mlp
        if part is None:
            raise NotApplicableError(f"{_article(self.kind)} has no separate feed-forward layers")
        return part

    def require_attention(self) -> None:
        if not self.attending:
            raise NotApplicableError(f"{_article(self.kind)} has no attention")

    def check_layer(self, layer: int) -> None:
        if not 0 <= layer < len(self.layers):
            last = len(self.layers) - 1
            raise ValueError(f"there is no layer {layer}: this {self.kind} has layers 0 to {last}")

    def check_head(self, layer: int, head: int) -> None:
        heads = self.attention(layer).heads
        if not 0 <= head < heads:
            raise ValueError(f"there is no head {head}: layer {layer} has heads 0 to {heads - 1}")


def anatomy(model: nn.Module) -> Anatomy:
    """The parts of a `Predictor` or a `BayesForCausalLM`."""
    if isinstance(model, BayesForCausalLM):
        return _language_model(model)
    if not isinstance(model, Predictor):
        raise NotApplicableError(
            f"a {type(model).__name__} cannot be looked into: pass a Predictor or BayesForCausalLM"
        )
    kind, body = model.architecture.name, model.body
    if not isinstance(body, TransformerBody):
        layers = tuple(LayerParts(block) for block in cast(Any, body).layers)
        return Anatomy(kind, layers, model, lambda _: [])

    def cached_values(inputs: Tensor) -> list[Tensor]:
        cache = DynamicCache(config=body.config)
        x = model.embedding(inputs)
        layouts = lay_out(body.config, (x.shape[0], x.shape[1]), x.device)
        x = body.encoding.embed(x, layouts[0].positions)
        rotation = body.encoding.rotation(layouts[0].positions, x.dtype)
        for layer, layout in zip(body.layers, layouts, strict=True):
            x = layer(x, layout=layout, rotation=rotation, past_key_values=cache)
        return _values(cache)

    return Anatomy(kind, _decoder_layers(body.layers), model, cached_values)


def _language_model(model: BayesForCausalLM) -> Anatomy:
    def logits(inputs: Tensor, positions: Tensor | None) -> Tensor:
        # not `logits_to_keep`, with which the last layer leaves out queries nobody asked for
        states = cast(Tensor, model.model(inputs, use_cache=False).last_hidden_state)
        return model.lm_head(states if positions is None else states[:, positions])

    def cached_values(inputs: Tensor) -> list[Tensor]:
        return _values(model(inputs, use_cache=True).past_key_values)

    return Anatomy("language model", _decoder_layers(model.model.layers), logits, cached_values)


def _decoder_layers(blocks: nn.ModuleList) -> tuple[LayerParts, ...]:
    parts: list[LayerParts] = []
    for block in blocks:
        assert isinstance(block, BayesDecoderLayer)
        attention = AttentionPart(block.self_attn) if block.attends else None
        parts.append(LayerParts(block, attention, block.post_attention_layernorm, block.mlp))
    return tuple(parts)


def _values(cache: Any) -> list[Tensor]:
    return [layer.values for layer in cache.layers if layer.values is not None]


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' or kind in ('lstm', 'mlp') else 'a'} {kind}"
