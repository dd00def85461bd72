"""Attention is a posterior: build it, test it against exact Bayes, look inside it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bayesattn.registration import register_models

if TYPE_CHECKING:
    from bayesattn import tunnels
    from bayesattn.attention import SSMax, attend
    from bayesattn.evals.fidelity import measure as fidelity
    from bayesattn.evals.passkey import passkey
    from bayesattn.evals.perplexity import perplexity
    from bayesattn.models import (
        BayesConfig,
        BayesForCausalLM,
        BayesModel,
        parameter_groups,
        retrofit,
    )
    from bayesattn.models.open import open_language, open_tunnel
    from bayesattn.priors import (
        Bucketed,
        GeneralizedGaussian,
        Laplace,
        Prior,
        Student,
        Uniform,
        make_prior,
    )
    from bayesattn.probes.capture import capture
    from bayesattn.training import (
        LanguageConfig,
        TrainConfig,
        train_language,
        train_tunnel,
    )
    from bayesattn.tunnels import make_tunnel

__version__ = "0.1.0"

_HOMES = {
    # the core
    "bayesattn.attention": "SSMax attend",
    "bayesattn.priors": "Bucketed GeneralizedGaussian Laplace Prior Student Uniform make_prior",
    "bayesattn.models": "BayesConfig BayesForCausalLM BayesModel parameter_groups retrofit",
    # the laboratory: pip install 'bayesattn[lab]'
    "bayesattn.tunnels": "make_tunnel",
    "bayesattn.models.open": "open_language open_tunnel",
    "bayesattn.training": "LanguageConfig TrainConfig train_language train_tunnel",
    "bayesattn.evals.passkey": "passkey",
    "bayesattn.evals.perplexity": "perplexity",
    "bayesattn.probes.capture": "capture",
}
HOMES = {
    "tunnels": "bayesattn.tunnels",
    "fidelity": "bayesattn.evals.fidelity.measure",
    **{name: f"{home}.{name}" for home, names in _HOMES.items() for name in names.split()},
}
"""Module of each public name; it is imported when the name is first used."""

__all__ = [
    "BayesConfig",
    "BayesForCausalLM",
    "BayesModel",
    "Bucketed",
    "GeneralizedGaussian",
    "LanguageConfig",
    "Laplace",
    "Prior",
    "SSMax",
    "Student",
    "TrainConfig",
    "Uniform",
    "attend",
    "capture",
    "fidelity",
    "make_prior",
    "make_tunnel",
    "open_language",
    "open_tunnel",
    "parameter_groups",
    "passkey",
    "perplexity",
    "retrofit",
    "train_language",
    "train_tunnel",
    "tunnels",
]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; `bayesattn --help` must not wait for it.
    if name not in HOMES:
        raise AttributeError(f"module 'bayesattn' has no attribute {name!r}")
    module, _, attribute = HOMES[name].rpartition(".")
    try:
        home = import_module(HOMES[name] if name == "tunnels" else module)
    except ModuleNotFoundError as error:
        from bayesattn.errors import missing_extra

        raise missing_extra(error) or error from None
    return home if name == "tunnels" else getattr(home, attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


register_models()
