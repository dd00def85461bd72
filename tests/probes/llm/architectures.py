"""Tiny random models of transformers' own architectures."""

from functools import cache

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bayesattn.probes.llm.subject import Subject

WORDS = 61
WIDTH = 24
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 40,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
GROUPED = {"num_key_value_heads": 2}
OLD = {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 2, "n_head": 6, "n_positions": 40}
FALCON = {key: SMALL[key] for key in SMALL if key not in ("intermediate_size",)}
MPT = {"vocab_size": WORDS, "d_model": WIDTH, "n_layers": 2, "n_heads": 6, "max_seq_len": 40}
GEMMA = {**SMALL, **GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8}
MODELS = {
    "gpt2": ("gpt2", OLD),
    "gpt-neox": ("gpt_neox", SMALL),
    "gpt-neox sequential": ("gpt_neox", {**SMALL, "use_parallel_residual": False}),
    "phi": ("phi", {**SMALL, **GROUPED}),
    "phi qk-norm": ("phi", {**SMALL, "qk_layernorm": True}),
    "phi3 fused": ("phi3", {**SMALL, **GROUPED}),
    "llama": ("llama", SMALL),
    "llama grouped": ("llama", {**SMALL, **GROUPED}),
    "llama single": ("llama", {**SMALL, "num_key_value_heads": 1}),
    "llama yarn": (
        "llama",
        {
            **SMALL,
            "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0},
        },
    ),
    "mistral window": ("mistral", {**SMALL, **GROUPED, "sliding_window": 4}),
    "mixtral": ("mixtral", {**SMALL, **GROUPED, "num_local_experts": 3, "sliding_window": None}),
    "qwen2": ("qwen2", {**SMALL, **GROUPED}),
    "qwen3": ("qwen3", {**SMALL, **GROUPED, "head_dim": 6}),
    "gemma2": ("gemma2", {**GEMMA, "sliding_window": 4}),
    "gemma3": (
        "gemma3_text",
        {
            **GEMMA,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "falcon single": ("falcon", {**FALCON, "multi_query": True}),
    "falcon fused": ("falcon", {**FALCON, "multi_query": False, "bias": True}),
    "falcon grouped": ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon alibi": ("falcon", {**FALCON, "alibi": True, "multi_query": False}),
    "opt": ("opt", {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": WIDTH}),
    "olmo2": ("olmo2", {**SMALL, **GROUPED}),
    "mpt": ("mpt", MPT),
    "stablelm": (
        "stablelm",
        {**SMALL, **GROUPED, "use_qkv_bias": True, "partial_rotary_factor": 0.5},
    ),
    "stablelm qk-norm": (
        "stablelm",
        {
            **SMALL,
            **GROUPED,
            "qk_layernorm": True,
            "use_parallel_residual": True,
            "partial_rotary_factor": 0.5,
        },
    ),
    "granite": ("granite", {**SMALL, **GROUPED, "attention_multiplier": 0.3}),
    "gpt-oss sinks": (
        "gpt_oss",
        {
            **SMALL,
            **GROUPED,
            "num_local_experts": 3,
            "head_dim": 6,
            "sliding_window": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "bloom": ("bloom", {"vocab_size": WORDS, "hidden_size": WIDTH, "n_layer": 2, "n_head": 6}),
    "codegen": ("codegen", {**OLD, "n_head": 8, "n_embd": 32, "rotary_dim": 2}),
    "gptj": ("gptj", {**OLD, "rotary_dim": 2}),
    "cohere": ("cohere", {**SMALL, **GROUPED, "use_qk_norm": True}),
}
KEY_HEADS = {"falcon grouped": 2, "falcon single": 1, "codegen": 8}


def key_heads(name):
    _, options = MODELS[name]
    return KEY_HEADS.get(name) or options.get("num_key_value_heads", 6)


def model_of(name, seed=0):
    """A model with random weights, biases and norms included, so that nothing is 0 or 1."""
    kind, options = MODELS[name]
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model.eval()


@cache
def subject_of(name):
    """The model taken apart; it is shared, so tests must leave it as it is."""
    return Subject.of(model_of(name), name=name)


def prompts_of(*lengths, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, WORDS, (length,), generator=generator).tolist() for length in lengths]


def clipping(limit):
    """MPT clips what its projection puts out, which no hook on a module sees."""
    torch.manual_seed(0)
    options = {**MPT, "attn_config": {"clip_qkv": limit}}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("mpt", **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return Subject.of(model)
