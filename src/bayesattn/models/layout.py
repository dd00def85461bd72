"""Layout of the tokens of a call: cache offset, left padding, packed documents, positions.

One function turns the arguments of Hugging Face code (a 2-D attention mask, position ids, a cache)
into arguments of `attend` and the encodings, and refuses arguments that neither can honour.
Distance is the difference of two indices in the key sequence, so caches and padding never shift a
prior. Positions count from the first real token and restart in every document.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Cache

from bayesattn.models.config import BayesConfig


class Layout(NamedTuple):
    """The arguments of `attend` in one layer, and the positions of the encodings."""

    offset: int
    """Index of the first query among the keys that attention receives."""
    positions: Tensor
    """[B or 1, T] positions for the encodings."""
    padding: Tensor | None
    """[B] numbers of left-padding keys."""
    documents: Tensor | None
    """[B, T] document of each token; never with a cache."""
    exempt: int
    """Number of keys that are still exempt from the prior."""
    length: int
    """Number of keys up to and including the last query; all distances are below it."""
    window: int | None
    """Number of most recent keys that a query sees."""
    keys: int
    """Number of keys that the cache passes to attention, with empty rows of a static cache."""


def lay_out(
    config: BayesConfig,
    shape: tuple[int, int],
    device: torch.device,
    cache: Cache | None = None,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    document_ids: Tensor | None = None,
) -> list[Layout]:
    """Lay out a call on `shape` = (B, T) new tokens, for each layer.

    The other arguments are those of `BayesModel.forward`. The cache is read, not updated.
    """
    batch, new = shape
    past = 0 if cache is None else int(cache.get_seq_length())
    padding = None
    if attention_mask is not None:
        padding = _checked_padding(attention_mask, (batch, past + new))
    if document_ids is not None and document_ids.shape != shape:
        raise ValueError(
            f"document_ids must have the shape of the new tokens {tuple(shape)}, "
            f"not {tuple(document_ids.shape)}"
        )
    if position_ids is not None:
        if position_ids.shape not in ((batch, new), (1, new)):
            raise ValueError(
                f"position_ids must have the shape {(batch, new)} or {(1, new)} of the new tokens, "
                f"not {tuple(position_ids.shape)}"
            )
        if document_ids is None and new > 1:
            document_ids = _packed_documents(
                position_ids.expand(batch, -1), padding, attention_mask
            )
    if document_ids is not None and cache is not None:
        raise ValueError(
            "packed documents cannot be kept in a cache; call the model without past_key_values"
        )
    if position_ids is None:
        position_ids = _positions(past, new, device, padding, document_ids)
    attending = config.num_attending
    layouts: list[Layout] = []
    made: dict[tuple[int | None, int, int], Layout] = {}
    for layer, window in enumerate(config.windows()):
        dropped, keys = 0, past + new
        if cache is not None and layer < attending:
            dropped = _dropped_keys(cache, layer, window, past, new)
            keys = cache.get_mask_sizes(new, layer)[0]
        exempt = still_exempt(config.exempt, dropped, padding)
        if (window, dropped, keys) not in made:
            made[window, dropped, keys] = Layout(
                offset=past - dropped,
                positions=position_ids,
                padding=None if padding is None else (padding - dropped).clamp(min=0),
                documents=document_ids,
                exempt=exempt,
                length=past - dropped + new,
                window=window,
                keys=keys,
            )
        layouts.append(made[window, dropped, keys])
    return layouts


@torch.compiler.disable()
def _checked_padding(mask: Tensor, shape: tuple[int, int]) -> Tensor | None:
    """[B] left padding; ValueError if the mask shows anything but padding."""
    if mask.dim() != 2:
        raise ValueError(
            f"attention_mask must be 2-D (batch, keys), 0 for padding, not {mask.dim()}-D; "
            "pack documents with document_ids and narrow the view with sliding_window"
        )
    if mask.shape != shape:
        raise ValueError(
            f"attention_mask must cover past and new tokens with shape {shape}, "
            f"not {tuple(mask.shape)}"
        )
    padding, regular = left_padding(mask.bool())
    if not regular:
        raise ValueError(
            "attention_mask has zeros between ones; only padding at the ends is allowed"
        )
    return padding


def left_padding(mask: Tensor) -> tuple[Tensor | None, bool]:
    """[B] zeros before the first one (None if no row has any), and whether the ones are one block.

    Zeros after the ones need no care, because causality hides them from every real token.
    """
    if bool(mask.all()):
        return None, True
    rises = (mask[:, 1:] & ~mask[:, :-1]).sum(dim=1) + mask[:, 0]
    padding = (mask.cumsum(dim=1) == 0).sum(dim=1)
    return (padding if bool(padding.any()) else None), not bool((rises > 1).any())


def still_exempt(exempt: int, dropped: int, padding: Tensor | None) -> int:
    """Number of exempt keys left in a cache that dropped some of the first keys."""
    if dropped and exempt and padding is not None:
        raise ValueError(
            "a sliding-window cache forgets which keys of a left-padded batch are exempt; "
            "pass past_key_values=DynamicCache(), which keeps every key"
        )
    return max(exempt - dropped, 0)


@torch.compiler.disable()
def _packed_documents(
    position_ids: Tensor, padding: Tensor | None, mask: Tensor | None
) -> Tensor | None:
    """[B, T] documents if the positions of real tokens restart at 0; None if they only count up."""
    jump = torch.zeros_like(position_ids, dtype=torch.bool)
    jump[:, 1:] = position_ids.diff(dim=1) != 1
    if mask is not None:
        # Padding has arbitrary positions, so the step from padding to text is arbitrary, too.
        real = mask.bool()[:, -position_ids.shape[1] :]
        jump[:, 1:] &= real[:, 1:] & real[:, :-1]
    if not bool(jump.any()):
        return None
    if padding is not None or bool((position_ids[jump] != 0).any()):
        raise ValueError(
            "position_ids neither count up by one nor restart at 0 like packed documents; "
            "pass document_ids if documents are packed"
        )
    return jump.cumsum(dim=1)


def _positions(
    past: int, new: int, device: torch.device, padding: Tensor | None, documents: Tensor | None
) -> Tensor:
    """[B or 1, T] index within the document, padding not counted."""
    index = torch.arange(past, past + new, device=device)[None]
    start = torch.zeros_like(index)
    if documents is not None:
        fresh = torch.zeros_like(documents, dtype=torch.bool)
        fresh[:, 1:] = documents[:, 1:] != documents[:, :-1]
        start = torch.where(fresh, index, 0).cummax(dim=1).values
    if padding is not None:
        start = torch.maximum(start, padding.to(device)[:, None])
    return (index - start).clamp(min=0)


def _dropped_keys(cache: Cache, layer: int, window: int | None, past: int, new: int) -> int:
    """Number of keys that the cache dropped; ValueError if attention still needs them."""
    room = cache.get_max_length(layer)
    if room == -1:
        return 0
    if cache.is_sliding[layer] and window is not None and window <= room:
        return int(cache.get_mask_sizes(new, layer)[1])
    if past + new > room:
        raise ValueError(
            f"the cache has room for {room} tokens but {past + new} must be kept; "
            f"make a new one with max_cache_len={past + new} or more for the present sliding_window"
        )
    return 0
