"""Layers that may look far, and the initialisation of the heads of each layer.

All other layers have local heads only: they see a window of keys, their cache is small, and they
read a prompt in linear time. If only the last layer may look far, the whole model reads a prompt in
linear time, because the last layer computes only the rows that are used.
"""

from typing import Any

from bayesattn.priors import PRIORS

LOCAL_WINDOW = 256
"""Keys that layers with local heads see. At the end of this window the mildest slope has reduced
the density to exp(-16), the rounding of float32, and SSMax reduces it much further."""

GlobalLayers = list[int] | str


def far_layers(chosen: GlobalLayers, layers: int) -> frozenset[int]:
    """Numbers of the layers that may look far; `chosen` is all, last or a list."""
    if chosen == "all":
        return frozenset(range(layers))
    if chosen == "last":
        return frozenset([layers - 1])
    if isinstance(chosen, str):
        raise ValueError(f"global_layers is 'all', 'last' or a list of layers, not {chosen!r}")
    for layer in chosen:
        if not 0 <= layer < layers:
            raise ValueError(
                f"global_layers names layer {layer}, but the layers that attend are 0 to "
                f"{layers - 1}"
            )
    return frozenset(chosen)


def layer_options(prior: str, heads: int, options: dict[str, Any], local: bool) -> dict[str, Any]:
    """Arguments of a layer's prior: local initialisation; or half local, unless one is given."""
    own = PRIORS[prior].layer_options(heads, local=local)
    return options | own if local else own | options


def check_rope_layers(chosen: str, encoding: str, global_layers: GlobalLayers) -> None:
    """Raise ValueError if RoPE in these layers only is impossible."""
    if chosen not in ("all", "local"):
        raise ValueError(f"rope_layers is 'all' or 'local', not {chosen!r}")
    if chosen == "local" and (encoding != "rope" or global_layers == "all"):
        raise ValueError(
            "rope_layers 'local' needs encoding 'rope' and global_layers, such as 'last'; set both"
        )
