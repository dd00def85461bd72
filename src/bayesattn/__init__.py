"""Attention is a posterior: build it, test it against exact Bayes, look inside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayesattn.attention import SSMax, attend

__version__ = "0.1.0"
__all__ = ["SSMax", "attend"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; `bayesattn --help` must not wait for it.
    if name in __all__:
        return getattr(import_module("bayesattn.attention"), name)
    raise AttributeError(f"module 'bayesattn' has no attribute {name!r}")
