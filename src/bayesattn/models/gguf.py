"""Models of Llama's architecture out of one .gguf file, in a second.

Transformers reads such files by way of Python objects for each token, several times over, which
takes most of a minute for SmolLM2. Here the header is walked once and tensors are unpacked by
torch. What is not plainly a Llama (other names of tensors, rotation that is scaled, rare types of
blocks) is left to transformers, whose result is the same bit by bit.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf.dequant import GGML_BLOCK, dequantize
from transformers.integrations.gguf.reader import (
    GgufHeader,
    load_gguf_state_dict,
    read_gguf_metadata,
)

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Of tensors, in the file and in transformers; those of layers come after "blk.NUMBER."."""
NEEDED = {"llama.attention.head_count", "llama.attention.head_count_kv", "tokenizer.ggml.tokens"}
TENSOR = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.weight")


class Header(NamedTuple):
    """What a file says before its tensors."""

    metadata: dict[str, Any]
    tensors: GgufHeader

    def config(self, changes: Mapping[str, Any]) -> LlamaConfig:
        """The config, named as transformers names what the file says; with some changes."""
        named = {
            name: self.metadata[f"{group}.{key}"]
            for group in ("general", "llama", "tokenizer")
            for key, name in GGUF_CONFIG_MAPPING[group].items()
            if isinstance(name, str) and f"{group}.{key}" in self.metadata
        }
        del named["model_type"]
        # of lists of words the header tells how long they are
        named.setdefault("vocab_size", self.metadata["tokenizer.ggml.tokens"])
        tied = all(tensor.name != "output.weight" for tensor in self.tensors.tensors)
        return LlamaConfig(**{**named, "tie_word_embeddings": tied, **changes})

    def weights(self) -> dict[str, Tensor]:
        stored = load_gguf_state_dict(self.tensors)
        heads = {
            "attn_q": self.metadata["llama.attention.head_count"],
            "attn_k": self.metadata["llama.attention.head_count_kv"],
        }
        found: dict[str, Tensor] = {}
        for tensor in self.tensors.tensors:
            x = stored[tensor.name][...]
            if tensor.ggml_type in GGML_BLOCK:
                x = dequantize(x.flatten(), tensor.ggml_type).view(tensor.shape)
            part = tensor.name.split(".")[-2]
            if part in heads:
                x = _unpermuted(x, heads[part])
            found[_name(tensor.name)] = x.to(torch.float32)
        return found


def quick_header(path: Path) -> Header | None:
    """The header of a file that is plainly a Llama; None for any other."""
    changed = path.stat().st_mtime_ns
    return _header(str(path), changed)


@lru_cache(maxsize=8)
def _header(path: str, changed: int) -> Header | None:
    metadata, names = read_gguf_metadata(path)
    plain = metadata["general.architecture"] == "llama"
    plain &= "mistral" not in str(metadata.get("general.name", "")).lower()
    plain &= not any(key.startswith("llama.rope.scaling") for key in metadata)
    plain &= metadata.keys() >= NEEDED
    if not plain or not all(_known(name) for name in names):
        return None
    try:
        return Header(metadata, GgufHeader.from_file(path))
    except ValueError:  # a type of blocks that only the slow reader knows
        return None


def _unpermuted(weight: Tensor, heads: int) -> Tensor:
    """Rows as transformers turns them, in halves; llama.cpp turns neighbours."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def _known(name: str) -> bool:
    found = TENSOR.fullmatch(name)
    return found is not None and found["part"] in NAMES


def _name(name: str) -> str:
    found = TENSOR.fullmatch(name)
    assert found is not None
    layer = "" if found["layer"] is None else f"model.layers.{found['layer']}."
    return f"{layer}{NAMES[found['part']]}.weight"
