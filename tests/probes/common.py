"""Small models of small tunnels, untrained: enough for arithmetic."""

import torch

from bayesattn.models import BayesConfig, BayesForCausalLM
from bayesattn.models.architectures import LSTM, MLP, Mamba, Transformer, build
from bayesattn.tunnels import HMM, Bijection

BIJECTION = Bijection(5, 6, replacement=True)
FILTER = HMM(3, 3, 6)
WIDTH = 16

TRANSFORMERS = {
    "uniform": Transformer(width=WIDTH),
    "ggd": Transformer(width=WIDTH, prior="ggd", prior_options={"init": "mixed"}),
    "exempt": Transformer(width=WIDTH, prior="laplace", exempt="header", ssmax=True),
    "content": Transformer(
        width=WIDTH, prior="laplace", ssmax=True, ssmax_scope="content", encoding="sinusoidal"
    ),
    "grouped": Transformer(
        width=WIDTH, encoding="rope", ssmax=True, num_key_value_heads=2, heads=4
    ),
    "window": Transformer(width=WIDTH, encoding="learned", sliding_window=5, prior="student"),
    "late": Transformer(width=WIDTH, layers=3, prior="laplace", attention_layers=1),
}
OTHERS = {"lstm": LSTM(width=WIDTH), "mamba": Mamba(width=WIDTH), "mlp": MLP(width=WIDTH)}


def model_of(name, tunnel=FILTER, seed=0):
    """An untrained model, away from the symmetry of its initial priors."""
    model = build((TRANSFORMERS | OTHERS)[name], tunnel, seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def language_model(**options):
    """A tiny causal language model."""
    torch.manual_seed(0)
    config = BayesConfig(
        vocab_size=13,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        prior="laplace",
        **options,
    )
    return BayesForCausalLM(config).eval()


def inputs_of(tunnel=FILTER, count=5, seed=1):
    return tunnel.sample(count, torch.Generator().manual_seed(seed)).inputs
