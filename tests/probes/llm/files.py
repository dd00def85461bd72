"""Tiny models as files: folders, safetensors and .gguf."""

import gguf
import numpy
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

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


def save_gguf(
    path,
    architecture="llama",
    tied=True,
    kinds=("Q4_1", "Q8_0"),
    merges=("a b",),
    context=32,
    **extra,
):
    """A .gguf file: matrices in blocks, norms in full, bytes and merges of them as vocabulary."""
    model = tiny_llama(tie_word_embeddings=tied, vocab_size=len(TOKENIZER) + len(merges))
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
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
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        value = tensor.numpy().astype(numpy.float32)
        if "q_proj" in name or "k_proj" in name:
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            value = permuted(value, heads)
        kind = gguf.GGMLQuantizationType.F32
        if value.ndim == 2:
            kind = gguf.GGMLQuantizationType[kinds["embed" in name]]
            value = gguf.quants.quantize(value, kind)
        stored = names.get_name(name, try_suffixes=(".weight",))
        writer.add_tensor(stored, value, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
