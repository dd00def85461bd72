"""One entry point, `attend`: the posterior mean of the values under a prior over distance."""

from bayesattn.attention.kernels.dense import Decomposed
from bayesattn.attention.log_temperature import HeadTemperature, LogTemperature
from bayesattn.attention.posterior import KERNELS, Certified, attend
from bayesattn.attention.ssmax import SCOPES, SSMax
from bayesattn.attention.visibility import Visibility

__all__ = [
    "KERNELS",
    "SCOPES",
    "Certified",
    "Decomposed",
    "HeadTemperature",
    "LogTemperature",
    "SSMax",
    "Visibility",
    "attend",
]
