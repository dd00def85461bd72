"""Gradient theory of attention: which way cross-entropy pushes scores and values, exactly."""

from bayesattn.dynamics.em import SCHEDULES, Schedule, step, step_of_norm
from bayesattn.dynamics.head import Gradients, Head, Weights
from bayesattn.dynamics.model import LayerDynamics, head_dynamics
from bayesattn.dynamics.routing import Routing

__all__ = [
    "SCHEDULES",
    "Gradients",
    "Head",
    "LayerDynamics",
    "Routing",
    "Schedule",
    "Weights",
    "head_dynamics",
    "step",
    "step_of_norm",
]
