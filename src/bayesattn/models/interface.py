"""Attention under a prior inside other people's models: transformers' attention interface "bayes".

transformers calls two functions of one name. The mask function runs once per forward pass and says
which keys are visible. The attention function runs in every layer. If the mask is causal with
padding, packed documents or a sliding window, our mask function returns the few numbers that
`attend` needs instead of a T×S mask. For any other mask it returns a dense boolean mask, and the
dense path below applies it. Registering only one of the two functions would drop the padding mask.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    packed_sequence_mask_function,
    sdpa_mask,
    sliding_window_overlay,
)

from bayesattn.attention.kernels.dense import repeat_heads, weigh
from bayesattn.attention.ssmax import temperatures_under
from bayesattn.attention.terms import table_of
from bayesattn.models.layers import attend_and_record, in_use
from bayesattn.models.layout import left_padding, still_exempt

NAME = "bayes"

# Functions made by the same factory share their code object, which identifies them.
_AND = and_masks(causal_mask_function).__code__
_WINDOW = sliding_window_overlay(1).__code__
_PACKED = packed_sequence_mask_function(torch.zeros(1, 1)).__code__


@dataclass(frozen=True)
class Sight:
    """The keys that the queries of one forward pass see; takes the place of a model's mask."""

    offset: int
    """Index of the first query among the keys of this call."""
    keys: int | None = None
    """Number of keys in this call; None if the mask does not say."""
    dropped: int = 0
    """Number of keys that a sliding-window cache dropped before the first key of this call."""
    padding: Tensor | None = None
    documents: Tensor | None = None
    window: int | None = None
    dense: Tensor | None = None
    """[B, 1, T, S] True where visible, for masks that the fields above cannot express."""

    # transformers treats whatever a mask function returns as a 4-D mask that is ready for use.
    ndim = 4

    def contiguous(self) -> "Sight":
        """Called by `generate` with a static cache."""
        return self

    def to(self, device: torch.device, **_: Any) -> "Sight":
        """Called by accelerate for models spread over devices."""
        moved = {name: getattr(self, name) for name in ("padding", "documents", "dense")}
        return replace(self, **{k: None if v is None else v.to(device) for k, v in moved.items()})


def bayes_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: "Tensor | Sight | None" = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Sight:
    """The keys among S that T queries see under `mask_function` and the 2-D `attention_mask`."""
    if isinstance(attention_mask, Sight):  # generate() made it before calling the model
        return attention_mask
    # A static cache passes its counter and changes it later.
    offset = int(q_offset) - kv_offset
    structure = _structure(mask_function)
    padding, regular = None, True
    if attention_mask is not None:
        padding, regular = left_padding(attention_mask)
    if structure is not None and regular:
        window, documents = structure
        if padding is not None:
            padding = (padding - kv_offset).clamp(min=0)
        return Sight(offset, kv_length, kv_offset, padding, documents, window)
    dense = sdpa_mask(
        batch_size,
        q_length,
        kv_length,
        int(q_offset),
        kv_offset,
        mask_function,
        attention_mask,
        allow_is_causal_skip=False,
        use_vmap=use_vmap,
        device=device,
    )
    return Sight(offset, kv_length, kv_offset, dense=dense)


def bayes_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Sight | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """`attend` with the prior and SSMax that `retrofit` gave to `module`.

    Returns:
        The output [B, T, H, D] and, if output_attentions is set, the posterior [B, H, T, S].
    """
    if dropout:
        raise ValueError(
            f"attention under a prior has no dropout, not {dropout}; "
            "set attention_dropout to 0 in the model's config before building it"
        )
    for name in ("softcap", "position_bias", "cache"):
        if kwargs.get(name) is not None:
            raise ValueError(f"attention under a prior cannot honour this model's {name}")
    if kwargs.get("is_causal") is False or not getattr(module, "is_causal", True):
        raise ValueError("a prior over distance needs causal attention, is_causal=True")
    # Under autocast a host's rotary encoding widens q and k but not v.
    query, key = query.to(value.dtype), key.to(value.dtype)
    exempt: int = getattr(module, "exempt", 0)
    sink: Tensor | None = kwargs.get("s_aux")  # what gpt-oss calls it
    if isinstance(attention_mask, Sight) and attention_mask.keys is not None:
        # transformers' cache for a window of one key announces no past, and hands over all of it
        key, value = (x[:, :, -attention_mask.keys :] for x in (key, value))
    num_queries, num_keys = query.shape[2], key.shape[2]
    if not isinstance(attention_mask, Sight):
        if num_queries != num_keys:
            raise ValueError(
                "a 4-D attention_mask does not say where in the cache the queries are; "
                "pass a 2-D one, or the whole sequence without a cache"
            )
        attention_mask = Sight(0, window=kwargs.get("sliding_window"), dense=attention_mask)
    if attention_mask.dense is not None:
        if exempt:
            raise ValueError("exempt keys need a causal mask with padding at the ends, no other")
        return _attend_dense(module, query, key, value, attention_mask, scaling, sink)
    output, posterior = attend_and_record(
        bool(kwargs.get("output_attentions")),
        query,
        key,
        value,
        getattr(module, "prior", None),
        ssmax=getattr(module, "ssmax", None),
        sink=sink,
        documents=attention_mask.documents,
        padding=attention_mask.padding,
        offset=attention_mask.offset,
        window=attention_mask.window,
        exempt=still_exempt(exempt, attention_mask.dropped, attention_mask.padding),
        scale=scaling,
        kernel=getattr(module, "kernel", "auto"),
    )
    return output.transpose(1, 2).contiguous(), posterior


def _attend_dense(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight,
    scale: float | None,
    sink: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The definition of attention for an arbitrary boolean or additive mask."""
    mask = sight.dense
    assert mask is not None
    heads, num_queries, num_keys = query.shape[1], query.shape[2], key.shape[2]
    index = torch.arange(max(num_queries + sight.offset, num_keys), device=query.device)
    start = sight.offset
    distance = index[start : start + num_queries, None] - index[None, :num_keys]
    visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    if bool((visible & (distance < 0)).any()):
        raise ValueError("a prior over distance needs a causal mask, and this one shows the future")
    prior, ssmax = (in_use(getattr(module, name, None)) for name in ("prior", "ssmax"))
    wide = torch.promote_types(query.dtype, torch.float32)
    table = table_of(prior, len(index), wide)
    log_prior = None if table is None else table[:, distance.clamp(min=0)]
    content, temper = temperatures_under(ssmax, log_prior, visible, wide)
    if content is not None:
        query = (query * content[..., None]).to(query.dtype)
    if log_prior is not None and temper is not None:
        log_prior = log_prior * temper[..., None]
    if mask.dtype != torch.bool:
        added = mask.masked_fill(~visible, 0.0)
        log_prior = added if log_prior is None else log_prior + added
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    posterior = weigh(query, key, log_prior, visible, factor, sink=sink)
    output = posterior.to(value.dtype) @ repeat_heads(value, heads)
    return output.transpose(1, 2).contiguous(), posterior


def _structure(mask_function: Callable[..., Any]) -> tuple[int | None, Tensor | None] | None:
    """Window and documents if the function is causal with these only; None for other masks."""
    window, documents, causal = None, None, False
    pending = [mask_function]
    while pending:
        function = pending.pop()
        code = getattr(function, "__code__", None)
        if function is causal_mask_function:
            causal = True
        elif code is _AND:
            pending += _captured(function, "mask_functions")
        elif code is _WINDOW and window is None:
            window = int(_captured(function, "sliding_window"))
        elif code is _PACKED and documents is None:
            documents = _captured(function, "packed_sequence_mask")
        else:
            return None
    return (window, documents) if causal else None


def _captured(function: Callable[..., Any], name: str) -> Any:
    cells: Any = function.__closure__
    return cells[function.__code__.co_freevars.index(name)].cell_contents


AttentionInterface.register(NAME, bayes_attention)
AttentionMaskInterface.register(NAME, bayes_mask)
