"""Small models with every prior off its symmetric starting point."""

import torch

from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.priors import PRIORS

PRIOR_NAMES = tuple(PRIORS)
SSMAX = {
    "no-ssmax": {"ssmax": False},
    "content": {"ssmax": True, "ssmax_scope": "content"},
    "content+prior": {"ssmax": True, "ssmax_scope": "content+prior"},
    "horizon": {"ssmax": True, "ssmax_horizon": 5},
}
ENCODING_NAMES = ("none", "rope", "sinusoidal")
# One head each: beta = 1 alone would hide an offset, since softmax ignores constants.
BETAS = (-0.6, 0.5, 1.0, 2.0)


def tiny_config(**settings):
    defaults = {
        "vocab_size": 37,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    return BayesConfig(**(defaults | settings))


def tiny_model(seed=0, dtype=torch.float32, **settings):
    """A model whose heads differ: betas of `BETAS`, other prior parameters at random."""
    torch.manual_seed(seed)
    model = BayesForCausalLM(tiny_config(**settings)).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ssmax" in name:
                parameter.add_(torch.rand(parameter.shape, generator=generator) - 0.5)
            elif name.endswith("theta_beta"):
                parameter.copy_(torch.tensor(BETAS))
            elif "theta_mu" in name:
                parameter.fill_(0.1)
            elif "prior" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
            elif "embed" not in name:
                # Default initialisation is timid: make attention and logits worth comparing.
                parameter.mul_(3)
    return model


def tokens(*shape, seed=1, vocab_size=37):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab_size, shape, generator=generator)
