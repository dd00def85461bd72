"""Fidelity of a model at other lengths than it was trained on."""

import re

from bayesattn.evals.fidelity import EVAL_SEED, Fidelity, measure
from bayesattn.evals.prediction import Model
from bayesattn.tunnels.base import Tunnel


def stretch(tunnel: Tunnel, length: str) -> Tunnel:
    """`tunnel` at a length such as "10x", a multiple of its own, or "50", a number of steps."""
    if times := re.fullmatch(r"(\d+(?:\.\d+)?)x", length):
        factor = float(times[1])
    elif re.fullmatch(r"\d+", length):
        factor = int(length) / tunnel.horizon
    else:
        factor = 0.0
    if factor == 0:
        raise ValueError(f"length is a multiple such as 10x or a number of steps, not {length!r}")
    longer = tunnel if factor == 1 else tunnel.stretched(factor)
    if length.isdigit() and longer.horizon != int(length):
        raise ValueError(
            f"{tunnel.name} always has {tunnel.horizon} steps; give a multiple such as 10x"
        )
    return longer


def measure_stretched(
    model: Model, trained: Tunnel, longer: Tunnel, *, sequences: int, seed: int = EVAL_SEED
) -> Fidelity:
    """Steps that the model was trained on inside, further ones beyond the horizon.

    Where a longer tunnel has as many steps, only further apart, it is beyond the horizon as a
    whole, and inside is the tunnel that was trained on.
    """
    if longer.horizon != trained.horizon or longer == trained:
        return measure(model, longer, sequences=sequences, seed=seed, horizon=trained.horizon)
    inside = measure(model, trained, sequences=sequences, seed=seed)
    beyond = measure(model, longer, sequences=sequences, seed=seed, horizon=0)
    return Fidelity(beyond.tunnel, sequences, seed, {**inside.parts, **beyond.parts})
