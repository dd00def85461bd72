"""Config and weights of a .gguf file, the same as from transformers, but in seconds.

Transformers makes Python objects of every token and score in the header, several times: this takes
minutes for a vocabulary of 262,144. Here the header is read once, and torch unpacks the blocks. The
tables of transformers say how llama.cpp names and changes weights; both ways give the same bits.
Transformers reads files that these tables do not cover (experts, scaled rotation).
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf.dequant import GGML_BLOCK, dequantize
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
)

from bayesattn.gguf_header import Header, HeaderError, Strings

QUICK = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gpt2": "gpt2",
    "phi3": "phi3",
}
"""Architectures that this module reads: their names in llama.cpp and in transformers."""
FLOATS = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
FACTORS = "rope_freqs.weight"
TOKENS = "tokenizer.ggml.tokens"
LAYER = re.compile(r"blk\.(\d+)\.")


def check(header: Header) -> None:
    """Refuse sizes that do not match the tensors, before a model is made."""
    layers = {int(found[1]) for name in header.tensors if (found := LAYER.match(name))}
    said = header.own("block_count")
    if not isinstance(said, int) or not 1 <= said <= len(layers):
        raise HeaderError(f"it says {said} layers and has the weights of {len(layers)}")


def is_quick(header: Header) -> bool:
    """Whether this module reads the file."""
    values = header.values
    if header.architecture not in QUICK or "mistral" in str(values.get("general.name", "")).lower():
        return False
    keys = GGUF_CONFIG_MAPPING[header.architecture]
    lists = any(not np.isscalar(header.own(key)) for key in keys if header.own(key) is not None)
    scaled = any(f"{header.architecture}.rope.scaling" in key for key in values)
    return isinstance(values.get(TOKENS), Strings) and not lists and not scaled


def config_of(header: Header, changes: Mapping[str, Any]) -> PreTrainedConfig:
    """The config with transformers' names of the settings, and with some changes."""
    named = {**_config_fields(header), **changes}
    return AutoConfig.for_model(QUICK[header.architecture], **named)


def weights_of(
    header: Header, config: PreTrainedConfig, model: PreTrainedModel, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Every weight by its name in the empty `model`; refuses missing and unknown weights."""
    processor = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)(
        config=_config_fields(header)
    )
    names = _names(header, model)
    _require_fit(header, names, model)
    return dict(_unpacked(header, names, processor, dtype))


def _config_fields(header: Header) -> dict[str, Any]:
    values = header.values
    named = {
        name: values[f"{group}.{key}"]
        for group in ("general", header.architecture, "tokenizer")
        for key, name in GGUF_CONFIG_MAPPING[group].items()
        if isinstance(name, str) and f"{group}.{key}" in values
    }
    del named["model_type"]
    named.setdefault("vocab_size", values[TOKENS].count)
    if header.architecture == "llama" and FACTORS in header.tensors:
        named["rope_parameters"] = _scaled_rotation(header, named)
    return {**named, "tie_word_embeddings": "output.weight" not in header.tensors}


def _scaled_rotation(header: Header, named: Mapping[str, Any]) -> dict[str, Any]:
    """Rotation with each frequency divided by a number in the file (Llama 3.1 and later).

    Transformers does not read these numbers; its "longrope" applies the same division.
    """
    divided = numbers(header, FACTORS).flatten().tolist()
    return {
        "rope_type": "longrope",
        "rope_theta": named["rope_theta"],
        "short_factor": divided,
        "long_factor": divided,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": named["max_position_embeddings"],
    }


def _names(header: Header, model: PreTrainedModel) -> dict[str, str]:
    """The name in `model` of each weight, by its name in the file."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    (kind,) = (kind for kind, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
    known = get_tensor_name_map(kind, header.own("block_count"))
    found: dict[str, str] = {}
    for own in model.state_dict():
        # some names of llama.cpp are those of the model without its head
        for name in (own, own.partition(".")[2]):
            if (stored := known.get_name(name, try_suffixes=(".weight", ".bias"))) is not None:
                found[stored] = own
                break
    return found


def _require_fit(header: Header, names: Mapping[str, str], model: PreTrainedModel) -> None:
    """Compare sizes and names before any weight is unpacked."""
    expected = {name: x.numel() for name, x in model.state_dict().items()}
    found = {names.get(own, own): prod(x.shape) for own, x in header.tensors.items()}
    tied = set(model.all_tied_weights_keys)
    missing = sorted(expected.keys() - found.keys() - tied)
    if missing:
        raise HeaderError(f"it lacks {len(missing)} weights of its model, such as {missing[0]}")
    wrong = sorted(name for name in expected.keys() & found if expected[name] != found[name])
    if wrong:
        raise HeaderError(f"{wrong[0]} has another size than its header says")


def _unpacked(
    header: Header, names: Mapping[str, str], processor: TensorProcessor, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    for own in header.tensors:
        if own not in names:  # transformers leaves these out, too
            continue
        apart: dict[str, Any] = {"tensors": {}}
        made = processor.process(
            weights=numbers(header, own).numpy(),
            name=own,
            tensor_key_mapping=dict(names),
            parsed_parameters=apart,
        )
        if made.name is None:  # kept apart
            yield from ((name, x.to(dtype)) for name, x in apart["tensors"].items())
        else:
            yield names[own], torch.from_numpy(np.ascontiguousarray(made.weights)).to(dtype)


def numbers(header: Header, name: str) -> Tensor:
    """A tensor in float32."""
    stored, raw = header.tensors[name], header.bytes_of(name)
    if stored.kind in FLOATS:
        return torch.from_numpy(np.copy(raw)).view(FLOATS[stored.kind]).view(stored.shape).float()
    if stored.kind in GGML_BLOCK:
        return dequantize(torch.from_numpy(np.copy(raw)), stored.kind).view(stored.shape)
    from gguf import GGMLQuantizationType, quants

    rows = raw.reshape(*stored.shape[:-1], -1)
    return torch.from_numpy(quants.dequantize(rows, GGMLQuantizationType(stored.kind)))
