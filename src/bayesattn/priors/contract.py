"""Requirements on every prior, as checks that anyone can run: `bayesattn check-prior mine.py`.

The tests of our own priors run the same checks.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.func import functional_call

from bayesattn.priors.base import Prior

HEADS = 5
Make = Callable[[int], Prior]
"""Builds the prior for so many heads."""


def scattered(prior: Prior, seed: int = 0) -> Prior:
    """The prior with all learned numbers moved: checks must hold also after training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for values in prior.parameters():
            values += 0.4 * torch.randn(values.shape, generator=generator).to(values)
    return prior


def _shape(make: Make) -> None:
    """The log-prior has one row per head, in float32."""
    density = make(HEADS).log_prior(torch.tensor([0, 3, 1]))
    assert density.shape == (HEADS, 3), f"log_prior of 3 distances has the shape {density.shape}"
    assert density.dtype == torch.float32, f"log_prior is {density.dtype}"


def _precision(make: Make) -> None:
    """Half-precision parameters are upcast; float64 stays float64; autocast rounds nothing."""
    for dtype in (torch.float16, torch.bfloat16):
        rounded = scattered(make(HEADS)).to(dtype)
        table = rounded.table(300)
        assert table.dtype == torch.float32, f"with {dtype} parameters log_prior is {table.dtype}"
        torch.testing.assert_close(table, copy.deepcopy(rounded).float().table(300))
    assert scattered(make(HEADS)).double().table(7).dtype == torch.float64, "float64 is lost"
    prior = make(HEADS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = prior.table(300)
    assert torch.equal(inside, prior.table(300)), "autocast rounds the log-prior"


def _distances(make: Make) -> None:
    """The log-prior of a distance does not depend on the other distances in the call."""
    prior = scattered(make(HEADS))
    table = prior.table(500)
    some = torch.tensor([9, 0, 9, 130, 2])
    torch.testing.assert_close(prior.log_prior(some), table[:, some])
    assert torch.equal(prior.table(1), table[:, :1]), "a table of one differs from a longer one"


def _extremes(make: Make) -> None:
    """Densities and gradients are finite for all parameters."""
    for shift in (-300.0, -30.0, 30.0, 300.0):
        prior = make(HEADS)
        with torch.no_grad():
            for values in prior.parameters():
                values += shift
        distance = torch.tensor([0.0, 1.0, 2.0, 511.0, 1e6])
        density = prior.log_prior(distance)
        # SSMax may multiply it by as much
        assert torch.isfinite(100 * density).all(), f"infinite with parameters moved by {shift:g}"
        if density.requires_grad:
            torch.autograd.backward((density.softmax(-1) * distance).sum())
            for name, values in prior.named_parameters():
                if values.grad is not None:
                    finite = bool(torch.isfinite(values.grad).all())
                    assert finite, f"the gradient of {name} is infinite, moved by {shift:g}"


def _gradients(make: Make) -> None:
    """Every trained parameter gets a correct gradient."""
    prior = scattered(make(HEADS)).double()
    learned = {n: p.detach() for n, p in prior.named_parameters() if p.requires_grad}
    if not learned:
        return
    distance = torch.tensor([0, 1, 2, 5, 40, 1000])

    def density(*values: Tensor) -> Tensor:
        return functional_call(prior, dict(zip(learned, values, strict=True)), (distance,))

    assert torch.autograd.gradcheck(density, [v.clone().requires_grad_() for v in learned.values()])


def _reach(make: Make) -> None:
    """`reach` is the last distance whose density is within the tolerance, as a scan finds it."""
    length = 4096
    prior = scattered(make(HEADS), seed=3).double()
    table = prior.table(length).detach()
    for tolerance in (0.5, 1e-3, 1e-6):
        inside = (table - table.amax(1, keepdim=True)).exp() >= tolerance
        scanned = inside.long().mul(torch.arange(length)).amax(1)
        found = prior.reach(tolerance).clamp(max=length - 1).long()
        said = f"reach({tolerance:g}) is {[*map(int, found)]}, a scan says {[*map(int, scanned)]}"
        assert torch.equal(scanned, found), said


def _state(make: Make) -> None:
    """Saving to a file and loading keeps the state; copies of the prior are equal."""
    prior, other = scattered(make(HEADS)), make(HEADS)
    other.load_state_dict(load(save(prior.state_dict())))
    assert torch.equal(other.table(50), prior.table(50)), "read back from a file it differs"
    assert torch.equal(copy.deepcopy(prior).table(50), prior.table(50)), "a copy differs"


def _start(make: Make) -> None:
    """`reset_parameters` restores the initial values, and `check` names a broken parameter."""
    prior = make(HEADS)
    before = prior.table(50).detach()
    scattered(prior).reset_parameters()
    back = torch.equal(prior.table(50), before)
    assert back, "reset_parameters does not lead back: call it at the end of __init__"
    for name, values in prior.named_parameters():
        with torch.no_grad():
            values[-1] = math.nan
        try:
            prior.check()
        except ValueError as error:
            assert name in str(error), f"check() does not name {name}"
        else:
            raise AssertionError(f"check() does not see that {name} is NaN")
        return


CHECKS: Mapping[str, Callable[[Make], None]] = {
    "shape": _shape,
    "precision": _precision,
    "distances": _distances,
    "extremes": _extremes,
    "gradients": _gradients,
    "reach": _reach,
    "state": _state,
    "start": _start,
}


def failures(make: Make) -> dict[str, str]:
    """Failed checks of a prior, by name, each with its sentence."""
    found: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check(make)
        except Exception as error:  # whatever a prior of someone else raises
            lines = [line for line in str(error).splitlines() if line.strip()]
            found[name] = " ".join(lines[:2]) or type(error).__name__
    return found


def asked(check: str) -> str:
    """The requirement that a check tests."""
    return (CHECKS[check].__doc__ or "").partition("\n")[0]


def make_for(kind: type[Prior], options: Mapping[str, Any]) -> Make:
    return lambda heads: kind(heads, **options)
