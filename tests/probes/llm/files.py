"""Tiny models as files: folders, safetensors and .gguf."""

import gguf
import numpy
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from bayesattn.corpora import load_tokenizer

TOKENIZER = load_tokenizer("bytes")


def tiny_llama(**options):
    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": len(TOKENIZER),
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32,
        }
        | options
    )
    return AutoModelForCausalLM.from_config(config)


def save_folder(folder, **options):
    """A folder as `save_pretrained` writes it, with a tokenizer."""
    model = tiny_llama(**options)
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return model


def permuted(weight, heads):
    """Rows in the order of llama.cpp, by its own conversion script's formula."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


OF_TRANSFORMERS = {"gemma3": "gemma3_text"}
"""What architectures are called there, if not as llama.cpp calls them."""


def tiny_model(architecture, **options):
    """A tiny model of an architecture of llama.cpp."""
    torch.manual_seed(0)
    kind = OF_TRANSFORMERS.get(architecture, architecture)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "head_dim": 16,
    }
    if kind == "gpt2":
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4}
    if kind == "phi3":
        sizes |= {"pad_token_id": 0}
    if kind == "qwen3":  # transformers reads no other width of a head
        sizes |= {"head_dim": 128}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(sizes | options)))
    for name, weight in model.named_parameters():
        if "norm" in name:  # so that a 1 that is added or left out is seen
            torch.nn.init.normal_(weight, std=0.3)
    return model


def stored(architecture, name, weight, config):
    """A weight as the conversion script of llama.cpp writes it."""
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return permuted(weight, heads)
    if architecture.startswith("gemma") and "norm" in name:
        return weight + 1
    if architecture == "gpt2" and "c_" in name and weight.ndim == 2:
        return numpy.ascontiguousarray(weight.T)
    return weight


def save_gguf(
    path,
    architecture="llama",
    tied=True,
    kinds=("Q4_1", "Q8_0"),
    merges=("a b",),
    context=32,
    bos=False,
    slowed=None,
    **extra,
):
    """A .gguf file: matrices in blocks, norms in full, bytes and merges of them as vocabulary."""
    words = len(TOKENIZER) + len(merges)
    model = tiny_model(architecture, tie_word_embeddings=tied, vocab_size=words)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(getattr(model.config, "head_dim", 16) or 16)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    for key, value in extra.items():
        writer.add_string(key.replace("__", "."), value)
    merged = [pair.replace(" ", "") for pair in merges]
    words = [*sorted(TOKENIZER.get_vocab(), key=TOKENIZER.get_vocab().get), *merged]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_merges(list(merges))
    writer.add_token_types([1] * 256 + [3] * (len(TOKENIZER) - 256) + [1] * len(merges))
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    if architecture == "phi3":  # whose own is beyond so small a vocabulary
        writer.add_pad_token_id(258)
    if bos:
        writer.add_add_bos_token(True)
    known = gguf.MODEL_ARCH[architecture.upper()]
    names = gguf.get_tensor_name_map(known, 2)
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        value = stored(architecture, name, tensor.numpy().astype(numpy.float32), model.config)
        kind = gguf.GGMLQuantizationType.F32
        if value.ndim == 2:
            kind = gguf.GGMLQuantizationType[kinds["embed" in name or "wte" in name]]
            value = gguf.quants.quantize(value, kind)
        where = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if where is None:  # of the models without a head in front
            where = names.get_name(name.split(".", 1)[1], try_suffixes=(".weight", ".bias"))
        writer.add_tensor(where, value, raw_dtype=kind)
    if slowed is not None:
        writer.add_tensor("rope_freqs.weight", slowed.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
