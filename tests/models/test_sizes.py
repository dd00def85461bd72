import pytest
import torch

from bayesattn.models import SIZES, BayesForCausalLM

# Arithmetic of the authors' sizes: total without prior and SSMax, and 2·heads·layers.
AUTHORS = {
    "l6": (49_289_728, 32_512_512, 192),
    "l8": (97_530_624, 72_364_800, 256),
    "l12": (121_129_728, 95_963_904, 384),
    "l15": (274_598_784, 236_850_048, 720),
    "l18": (525_393_408, 475_061_760, 1152),
    "l24": (1_140_951_040, 1_073_842_176, 3072),
}


@pytest.mark.parametrize("name", AUTHORS)
def test_authors_sizes(name):
    with torch.device("meta"):
        model = BayesForCausalLM(SIZES[name]())
    sizes = {n: p.numel() for n, p in model.named_parameters()}
    body = sum(n for k, n in sizes.items() if ".prior." not in k and ".ssmax." not in k)
    learned = sum(
        p.numel() for k, p in model.named_parameters() if ".prior." in k and p.requires_grad
    )
    assert (body, body - sizes["model.embed_tokens.weight"], learned) == AUTHORS[name]
    assert sum(n for k, n in sizes.items() if ".ssmax." in k) == learned // 2


@pytest.mark.parametrize("name", ["nano", "tiny", "mini"])
def test_cpu_sizes(name):
    with torch.device("meta"):
        model = BayesForCausalLM(SIZES[name]())
    limits = {"nano": 1e5, "tiny": 1e6, "mini": 5e6}
    assert sum(p.numel() for p in model.parameters()) < limits[name]


def test_recipes_take_any_setting():
    config = SIZES["tiny"](vocab_size=50, prior_options={"init": "mixed"}, hidden_size=64)
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (50, 64, 128)
    assert SIZES["l12"]().eos_token_id == 2
