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


def local_options(prior: str, heads: int, options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a prior with these `options`, but with heads that all begin local."""
    return options | PRIORS[prior].layer_options(heads, local=True)


def mixed_options(prior: str, heads: int, options: dict[str, Any]) -> dict[str, Any]:
    """The same with half of the heads local, unless the options say how they begin."""
    return PRIORS[prior].layer_options(heads, local=False) | options
