"""Models: the Bayesian decoder as a Hugging Face model. The import registers the model."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from bayesattn.models.config import BayesConfig
from bayesattn.models.extend import load_extension
from bayesattn.models.optim import UndecayedPriors, parameter_groups
from bayesattn.models.retrofit import (
    load_prior_state_dict,
    prior_state_dict,
    retrofit,
    save_prior_state_dict,
)
from bayesattn.models.retrofitted import RetrofitConfig, RetrofittedForCausalLM, RetrofittedModel
from bayesattn.models.sizes import SIZES
from bayesattn.models.transformer import BayesForCausalLM, BayesModel

AutoConfig.register("bayesattn", BayesConfig, exist_ok=True)
AutoModel.register(BayesConfig, BayesModel, exist_ok=True)
AutoModelForCausalLM.register(BayesConfig, BayesForCausalLM, exist_ok=True)
AutoConfig.register("bayesattn_retrofit", RetrofitConfig, exist_ok=True)
AutoModel.register(RetrofitConfig, RetrofittedModel, exist_ok=True)
AutoModelForCausalLM.register(RetrofitConfig, RetrofittedForCausalLM, exist_ok=True)

__all__ = [
    "SIZES",
    "BayesConfig",
    "BayesForCausalLM",
    "BayesModel",
    "RetrofitConfig",
    "RetrofittedForCausalLM",
    "RetrofittedModel",
    "UndecayedPriors",
    "load_extension",
    "load_prior_state_dict",
    "parameter_groups",
    "prior_state_dict",
    "retrofit",
    "save_prior_state_dict",
]
