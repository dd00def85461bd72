"""Attention is a posterior: build it, test it against exact Bayes, look inside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bayesattn.registration import register_models

if TYPE_CHECKING:
    from bayesattn.attention import SSMax, attend
    from bayesattn.models import retrofit

__version__ = "0.1.0"
__all__ = ["SSMax", "attend", "retrofit"]

_HOMES = {
    "SSMax": "bayesattn.attention",
    "attend": "bayesattn.attention",
    "retrofit": "bayesattn.models",
}


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; `bayesattn --help` must not wait for it.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bayesattn' has no attribute {name!r}")


register_models()
