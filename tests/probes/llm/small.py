"""A small language model with fresh weights and a tokenizer of words."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bayesattn.corpora import load_tokenizer
from bayesattn.probes.llm.subject import Subject


def small_model(seed=0, **changes):
    tokenizer = load_tokenizer("words")
    options = {
        "vocab_size": len(tokenizer),
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,  # so that entropies differ
    }
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**(options | changes))), tokenizer


def small_subject(seed=0, **changes):
    return Subject.of(*small_model(seed, **changes), name=f"small {seed}")


def save_small(folder, seed=0):
    model, tokenizer = small_model(seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
