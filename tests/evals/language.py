"""Small language models to evaluate: untrained ones, and one that knows every passkey."""

import re

import torch
from torch import Tensor, nn
from transformers import (
    Cache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from bayesattn.corpora import load_tokenizer
from bayesattn.models.open import LanguageModel
from tests.models.common import tiny_model

TRAINED = 128


def untrained(**settings):
    """A tiny model of ours over the words of the corpus."""
    tokenizer = load_tokenizer("words")
    settings = {"vocab_size": len(tokenizer), "max_position_embeddings": TRAINED} | settings
    return LanguageModel(tiny_model(**settings), tokenizer, TRAINED, "untrained")


def gpt2(positions=64):
    """A model of others with learned positions."""
    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=37, n_positions=positions)
    return GPT2LMHeadModel(config).eval()


def llama(**settings):
    """A model of others with RoPE and grouped heads."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=37,
        max_position_embeddings=32,
        **settings,
    )
    return LlamaForCausalLM(config).eval()


class OracleConfig(PreTrainedConfig):
    model_type = "oracle"


class Oracle(PreTrainedModel):
    """Reads the passkey out of the prompt, and writes it as the answer.

    Up to `reach` tokens; in longer prompts the last digit is wrong. Its cache is the tokens
    themselves, so it knows only what a reader has really put into the cache. Elsewhere than in
    answers it raises: logits were asked for where none are needed.
    """

    config_class = OracleConfig

    def __init__(self, tokenizer, reach=10**9, wrong_digit=4):
        config = OracleConfig(
            num_hidden_layers=1,
            num_attention_heads=1,
            hidden_size=8,
            vocab_size=len(tokenizer),
            max_position_embeddings=TRAINED,
        )
        super().__init__(config)
        self.weight = nn.Parameter(torch.zeros(1))
        self.tokenizer, self.reach, self.wrong_digit = tokenizer, reach, wrong_digit
        self.read = 0

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Cache | None = None,
        use_cache: bool = True,
        logits_to_keep: Tensor | int = 0,
    ):
        before = past_key_values.get_seq_length()
        self.read += input_ids.numel()
        states = input_ids[:, None, :, None].double()
        history, _ = past_key_values.update(states, states, 0)
        history = history[:, 0, :, 0].long()
        logits = torch.zeros(len(input_ids), len(logits_to_keep), self.config.vocab_size)
        for row, tokens in enumerate(history):
            for at, index in enumerate(logits_to_keep.tolist()):
                logits[row, at, self._next(tokens[: before + index + 1])] = 1.0
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)

    def _next(self, tokens):
        text = self.tokenizer.decode(tokens)
        key = re.search(r"The pass key is (\d+)\. Remember", text)[1]
        if len(tokens) > self.reach:
            digit = str((int(key[self.wrong_digit]) + 1) % 10)
            key = key[: self.wrong_digit] + digit + key[self.wrong_digit + 1 :]
        written = re.search(r"What is the pass key\? The pass key is( ?\d*)$", text)[1]
        assert f" {key}".startswith(written) or len(tokens) > self.reach
        (token,) = self.tokenizer(f" {key}"[len(written)], add_special_tokens=False)["input_ids"]
        return token


def oracle(**settings):
    tokenizer = load_tokenizer("words")
    return LanguageModel(Oracle(tokenizer, **settings), tokenizer, TRAINED, "oracle")
