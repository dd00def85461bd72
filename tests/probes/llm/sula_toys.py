"""A tiny Llama that reads SULA, and its tokenizer: one token per word."""

from functools import cache

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

from bayesattn.probes.llm.subject import Subject
from bayesattn.probes.llm.sula import WORDS

LABELS = ("dax", "lug", "mip", "wug")
LAYERS = 4


def tokenizer():
    words = [*WORDS, *LABELS, "word", "label"]
    pieces = ["?", ":", ",", ".", *words, *(f" {word}" for word in words)]
    known = {piece: at for at, piece in enumerate(pieces)}
    made = Tokenizer(models.WordLevel(known, unk_token="?"))
    split = pre_tokenizers.Split(Regex(" ?[a-z]+|[:,.]"), "isolated")
    made.pre_tokenizer = split
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?")


def config(kind, vocabulary):
    size = {"vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": LAYERS}
    common = {"bos_token_id": None, "eos_token_id": None}
    match kind:
        case "llama":
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
            return LlamaConfig(**size, **heads, **common, max_position_embeddings=64)
        case "neox":
            heads = {"num_attention_heads": 4, "intermediate_size": 48}
            return GPTNeoXConfig(**size, **heads, **common, max_position_embeddings=64)
        case _:
            return GPT2Config(
                vocab_size=vocabulary, n_embd=32, n_layer=LAYERS, n_head=4, n_positions=64, **common
            )


@cache
def subject(kind="llama", seed=0):
    """Random weights, large enough for predictions to differ."""
    words = tokenizer()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config(kind, len(words)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6.0)
    return Subject.of(model, words, kind)
