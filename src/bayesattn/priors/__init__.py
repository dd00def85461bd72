"""Priors: the belief of attention about the distance to a key, before it reads the content."""

import inspect
from typing import Any

from bayesattn.checks import registered
from bayesattn.priors.base import Prior
from bayesattn.priors.bucketed import Bucketed
from bayesattn.priors.forget_gate import ForgetGate
from bayesattn.priors.generalized_gaussian import GeneralizedGaussian
from bayesattn.priors.laplace import Laplace
from bayesattn.priors.sink import Sink
from bayesattn.priors.student import Student
from bayesattn.priors.uniform import Uniform

__all__ = [
    "PRIORS",
    "Bucketed",
    "ForgetGate",
    "GeneralizedGaussian",
    "Laplace",
    "Prior",
    "Sink",
    "Student",
    "Uniform",
    "make_prior",
]

PRIORS: dict[str, type[Prior]] = {
    prior.name: prior for prior in (Uniform, Laplace, GeneralizedGaussian, Student, Bucketed)
}


def make_prior(name: str, num_heads: int, **options: Any) -> Prior:
    """The prior called `name`, one of `PRIORS`, built with its own options.

    >>> make_prior("ggd", 8, init="mixed")
    GeneralizedGaussian(num_heads=8, init='mixed', learn_mu=False)
    """
    kind = registered("prior", name, PRIORS)
    allowed = [option for option in inspect.signature(kind).parameters if option != "num_heads"]
    for option in options:
        if option not in allowed:
            raise TypeError(
                f"the {name} prior has no option {option!r}; "
                f"its options are: {', '.join(allowed) or 'none'}"
            )
    return kind(num_heads, **options)
