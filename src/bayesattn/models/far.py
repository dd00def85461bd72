"""Which layers of a model may look far, and how the heads of each begin.

A layer that may not has local heads only: its keys are a window, its part of a cache is small, and
a prompt costs it linear time. If only the last layer may, a whole prompt costs linear time, since
of that layer only the rows that somebody reads are computed.
"""

from typing import Any

from bayesattn.priors import PRIORS

LOCAL_WINDOW = 256
"""Keys that layers with local heads see: at the end of it the mildest of their slopes has brought
the density down to exp(-16), the rounding of float32, and SSMax brings it much further."""

GlobalLayers = list[int] | str


def far_layers(chosen: GlobalLayers, layers: int) -> frozenset[int]:
    """Numbers of the layers, of so many, that may look far; `chosen` is all, last or a list."""
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
    """Arguments of the prior of a layer: all its heads begin local; or half, unless it is given."""
    own = PRIORS[prior].layer_options(heads, local=local)
    return options | own if local else own | options


def check_rope_layers(chosen: str, encoding: str, global_layers: GlobalLayers) -> None:
    """Raise ValueError unless it means something to turn these layers only."""
    if chosen not in ("all", "local"):
        raise ValueError(f"rope_layers is 'all' or 'local', not {chosen!r}")
    if chosen == "local" and (encoding != "rope" or global_layers == "all"):
        raise ValueError(
            "rope_layers 'local' needs encoding 'rope' and global_layers, such as 'last'; set both"
        )
