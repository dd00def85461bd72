"""Description of a model and the memory that loading it takes, from its config alone."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from bayesattn.models.hugging_face import empty_model, header_of, longest_input
from bayesattn.models.open import language_config, parse_device, parse_dtype
from bayesattn.models.streaming import held, size
from bayesattn.source import Source, SourceError
from bayesattn.system import GIBIBYTE, free_memory

BATCH_TOKENS = 2048
LONG_PROMPT = 512
"""Tokens of the prompt for which memory is estimated."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The model that will be loaded, and its memory."""

    name: str
    architecture: str
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    head_width: int
    width: int
    """Width of the residual stream."""
    window: int | None
    """Number of keys that a token sees in layers with a sliding window."""
    windowed_layers: int
    vocabulary: int
    context: int | None
    """Largest number of tokens of a prompt; None if there is no limit."""
    parameters: int
    dtype: str
    quantised: str | None
    """Storage of the weights, if below 16 bits; the model computes in `dtype`."""
    memory: int
    """Estimated bytes of the model and of reading a prompt."""
    free: int
    """Free bytes."""
    streamed: bool = False
    """Whether only one layer's weights are in memory at a time."""

    def rows(self) -> list[tuple[str, str]]:
        windowed = f"{self.window or 0:,} tokens in {self.windowed_layers} layers"
        return [
            ("architecture", self.architecture),
            ("layers", str(self.layers)),
            ("heads", f"{self.heads} query, {self.kv_heads} key/value, {self.head_width} wide"),
            ("window", "none" if self.window is None else windowed),
            ("vocabulary", f"{self.vocabulary:,} tokens"),
            ("context", "no limit" if self.context is None else f"{self.context:,} tokens"),
            ("parameters", f"{self.parameters:,}"),
            ("weights", f"{self.dtype}{f', stored as {self.quantised}' if self.quantised else ''}"),
            (
                "memory",
                f"about {self.memory / GIBIBYTE:.1f} GiB of {self.free / GIBIBYTE:.1f} GiB free"
                f"{', one layer at a time' if self.streamed else ''}",
            ),
        ]

    def require_room(self) -> None:
        if self.memory <= self.free:
            return
        advice = "load it in bfloat16, " if self.dtype == "float32" else ""
        if not self.streamed:
            advice += "read it layer by layer with `bayesattn probe --stream`, "
        raise SourceError(
            f"{self.name} needs about {self.memory / GIBIBYTE:.1f} GiB of memory and "
            f"{self.free / GIBIBYTE:.1f} GiB are free: {advice}free some, or take a smaller model."
        )


def plan(
    source: Source,
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    streamed: bool = False,
) -> Plan:
    """The plan for `source`; reads its config and no weights."""
    config = language_config(source)
    quantised = _quantised(source, config)
    return describe(
        config, source.name, device=device, dtype=dtype, quantised=quantised, streamed=streamed
    )


def fitting_plan(
    source: Source, *, device: str = "cpu", dtype: str | None = None, streamed: bool = False
) -> Plan:
    """The plan in `dtype`, or in float32 if none is given, or in bfloat16 if that does not fit.

    Raises:
        SourceError: the model does not fit in any dtype.
    """
    planned = plan(source, device=device, dtype=dtype or "float32", streamed=streamed)
    if dtype is None and planned.memory > planned.free:
        planned = plan(source, device=device, dtype="bfloat16", streamed=streamed)
    planned.require_room()
    return planned


def describe(
    config: PreTrainedConfig,
    name: str,
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    quantised: str | None = None,
    parameters: int | None = None,
    streamed: bool = False,
) -> Plan:
    """The plan of a model with this config; `parameters` if they are already counted."""
    text: Any = config.get_text_config(decoder=True)
    heads, width = getattr(text, "num_attention_heads", None), text.hidden_size
    if not heads:
        raise SourceError(
            f"{name} does not attend ({type(config).__name__.removesuffix('Config')}): name a "
            "model with attention and a KV cache."
        )
    head_width = getattr(text, "head_dim", None) or width // heads
    window, windowed = _window(text)
    empty = empty_model(config, name) if parameters is None else nn.Module()
    parameters = size(empty) if parameters is None else parameters
    bytes_each = parse_dtype(dtype).itemsize
    inner = getattr(text, "intermediate_size", None) or 4 * width
    inner = max(inner) if isinstance(inner, list | tuple) else inner  # one for each layer
    # states of a layer, and attention of long prompts: scores, weights and one in between
    reading = BATCH_TOKENS * (bytes_each * (8 * width + 3 * inner) + 12 * heads * LONG_PROMPT)
    return Plan(
        name=name,
        architecture=type(config).__name__.removesuffix("Config"),
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_width=head_width,
        width=width,
        window=window,
        windowed_layers=windowed,
        vocabulary=text.vocab_size,
        context=longest_input(config),
        parameters=parameters,
        dtype=dtype,
        quantised=quantised,
        memory=(held(empty) if streamed else parameters) * bytes_each + reading,
        free=free_memory(str(parse_device(device))),
        streamed=streamed,
    )


def _kv_heads(text: Any, heads: int) -> int:
    found = getattr(text, "num_key_value_heads", None)
    if found is None and getattr(text, "new_decoder_architecture", False):
        found = text.num_kv_heads
    if found is None and getattr(text, "multi_query", False):
        found = 1
    return heads if found is None else found


def _window(text: Any) -> tuple[int | None, int]:
    """Width of the sliding window, and number of layers with a window."""
    window = getattr(text, "sliding_window", None)
    if window is None:
        return None, 0
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        return window, text.num_hidden_layers
    count = sum(kind == "sliding_attention" for kind in kinds)
    return (window, count) if count else (None, 0)


def _quantised(source: Source, config: Any) -> str | None:
    header = header_of(source)
    if header is None:
        method = getattr(config, "quantization_config", None)
        return None if method is None else str(dict(method).get("quant_method", "fewer bits"))
    from gguf import LlamaFileType

    kind = header.values.get("general.file_type")
    known = isinstance(kind, int) and kind in {own.value for own in LlamaFileType}
    stored = LlamaFileType(kind).name.removeprefix("MOSTLY_") if known else "GUESSED"
    return None if stored in ("ALL_F32", "F16", "BF16") else stored
