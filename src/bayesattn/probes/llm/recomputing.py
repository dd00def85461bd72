"""Attention rows once more, from the queries and keys that attention is handed."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.evals.prediction import evaluating
from bayesattn.probes.llm.listener import Listener
from bayesattn.probes.llm.subject import Subject

NAME = "bayesattn_recomputed"


def recomputed_rows(subject: Subject, tokens: Tensor) -> dict[int, Tensor]:
    """[B, H, T, T] by layer: softmax(q·k) in float64, through transformers' attention interface.

    Empty for models that do not use it.
    """
    model: Any = subject.model
    numbers = {id(layer.attention): at for at, layer in enumerate(subject.parts.layers)}
    found: dict[int, Tensor] = {}

    def attend(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        rows = _rows(q.double(), repeat_heads(k, q.shape[1]).double(), mask, options)
        found[numbers[id(module)]] = rows.float()
        means = (rows @ repeat_heads(v, q.shape[1]).double()).to(v.dtype)
        return means.transpose(1, 2).contiguous(), rows.to(v.dtype)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    if not model._can_set_attn_implementation():
        return found
    try:
        model.set_attn_implementation(NAME)
    except ValueError:  # a model with priors takes only attention that can add them
        return found
    try:
        with evaluating(model):
            model(tokens, past_key_values=Listener(model.config, lambda *_: None), use_cache=True)
    finally:
        model.set_attn_implementation("eager")
    return found


def _rows(q: Tensor, k: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Tensor:
    scale = options.get("scaling")
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if options.get("softcap") is not None:
        scores = torch.tanh(scores / options["softcap"]) * options["softcap"]
    if mask is not None:
        scores = scores + mask
    sinks = options.get("s_aux")
    if sinks is None:
        return scores.softmax(-1)
    # a learned score that takes weight away and gives it to nothing
    empty = sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, empty], -1).softmax(-1)[..., :-1]
