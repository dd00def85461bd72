"""What is saved is what is loaded, to the bit and in the right precision."""

import json
import os
import subprocess
import sys
import tempfile

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from bayesattn.models import BayesForCausalLM, BayesModel
from tests.models.common import PRIOR_NAMES, tiny_config, tiny_model, tokens

ELSEWHERE = """
import json, sys
from transformers import AutoModelForCausalLM

class Hide:
    def find_spec(self, name, *_):
        if name == "bayesattn":
            raise ModuleNotFoundError("No module named 'bayesattn'", name=name)

def refusal(**options):
    try:
        AutoModelForCausalLM.from_pretrained(source, **options)
    except Exception as error:
        return str(error)

source, again, told = sys.argv[1:]
plain = refusal()
sys.meta_path.insert(0, Hide())
missing = refusal(trust_remote_code=True)
del sys.meta_path[0]
assert "bayesattn" not in sys.modules
AutoModelForCausalLM.from_pretrained(source, trust_remote_code=True).save_pretrained(again)
json.dump([plain, missing], open(told, "w"))  # transformers asks its question on standard output
"""
"""In a process that has not imported bayesattn, and cannot at first: how loading is refused."""
OPTIONS = {
    "laplace": {"slopes": [0.3, 0.1, 0.01, 0.7]},
    "ggd": {"init": "mixed"},
    "bucketed": {"num_buckets": 8, "max_distance": 20},
}


def same_state(made, expected):
    made, expected = made.state_dict(), expected.state_dict()
    assert made.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(made[name], value, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("prior", PRIOR_NAMES)
@torch.no_grad()
def test_round_trip(prior, shared, tmp_path):
    model = tiny_model(prior=prior, prior_options=OPTIONS.get(prior), shared_prior=shared)
    model.save_pretrained(tmp_path)
    suffixes = {path.suffix for path in tmp_path.iterdir()}
    assert suffixes == {".json", ".safetensors", ".md", ".py"}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is BayesForCausalLM
    assert not loaded.training
    same_state(loaded, model)
    ids = tokens(2, 9)
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=0)
    body = AutoModel.from_pretrained(tmp_path)
    assert type(body) is BayesModel
    same_state(body, model.model)


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal", "learned"])
@torch.no_grad()
def test_encodings_round_trip(encoding, tmp_path):
    model = tiny_model(encoding=encoding, tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    ids = tokens(2, 9)
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=0)


@torch.no_grad()
def test_length_scaling_is_a_setting_at_loading(tmp_path):
    model = tiny_model(encoding="rope", prior="uniform")
    model.save_pretrained(tmp_path)
    ids = tokens(1, 80)
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500_000.0}
    scaled = AutoModelForCausalLM.from_pretrained(tmp_path, rope_parameters=rope)
    assert (scaled(ids).logits - model(ids).logits).abs().max() > 1e-3
    positions = torch.arange(80)[None]
    half = model.model.encoding.rotation(positions / 2, torch.float32)
    made = scaled.model.encoding.rotation(positions, torch.float32)
    torch.testing.assert_close(made.cos, half.cos)


@pytest.mark.parametrize("prior", PRIOR_NAMES)
def test_half_precision_leaves_the_prior_alone(prior, tmp_path):
    model = tiny_model(prior=prior, prior_options=OPTIONS.get(prior))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    for name, value in loaded.state_dict().items():
        if ".prior." in name or ".ssmax." in name:
            assert value.dtype == torch.float32, name
            torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)
        else:
            assert value.dtype == torch.bfloat16, name
    assert loaded(tokens(1, 9)).logits.dtype == torch.bfloat16
    # Saved again and loaded again, it is still the same model.
    loaded.save_pretrained(tmp_path / "half")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "half", dtype="auto")
    same_state(again, loaded)


@pytest.mark.parametrize("prior", PRIOR_NAMES)
def test_a_new_model_in_half_precision(prior):
    config = tiny_config(prior=prior, prior_options=OPTIONS.get(prior))
    half = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    full = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    assert half.lm_head.weight.dtype == torch.bfloat16
    attention, expected = half.model.layers[1].self_attn, full.model.layers[1].self_attn
    same_state(attention.prior, expected.prior)
    same_state(attention.ssmax, expected.ssmax)


@pytest.mark.parametrize("prior", ["laplace", "ggd"])
def test_parameters_missing_in_a_checkpoint_start_as_stated(prior, tmp_path):
    tiny_model(prior="uniform", ssmax=False).save_pretrained(tmp_path)
    config = tiny_config(prior=prior, prior_options=OPTIONS[prior])
    loaded, info = BayesForCausalLM.from_pretrained(
        tmp_path, config=config, output_loading_info=True
    )
    assert info["missing_keys"]
    expected = BayesForCausalLM(config).model.layers[0].self_attn
    same_state(loaded.model.layers[0].self_attn.prior, expected.prior)
    same_state(loaded.model.layers[0].self_attn.ssmax, expected.ssmax)


def test_a_missing_position_table_starts_as_stated(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    config = tiny_config(encoding="learned", max_position_embeddings=512)
    loaded = BayesForCausalLM.from_pretrained(tmp_path, config=config)
    assert loaded.model.encoding.table.std().item() == pytest.approx(0.02, rel=0.05)


def test_a_half_filled_prior_keeps_what_was_loaded(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    kept = {k: v for k, v in load_file(path).items() if not k.endswith("theta_mu")}
    save_file(kept, path, metadata={"format": "pt"})
    loaded = BayesForCausalLM.from_pretrained(tmp_path)
    for layer, expected in zip(loaded.model.layers, model.model.layers, strict=True):
        made, prior = layer.self_attn.prior, expected.self_attn.prior
        torch.testing.assert_close(made.theta_beta, prior.theta_beta, rtol=0, atol=0)
        torch.testing.assert_close(made.theta_alpha, prior.theta_alpha, rtol=0, atol=0)
        assert made.theta_mu.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"prior": "ggd"},
        {"prior": "ggd", "prior_options": {"learn_mu": True}},
        {"prior": "laplace"},
        {"prior": "laplace", "prior_options": {"learned": True}, "ssmax_learned": False},
        {"prior": "ggd", "shared_prior": True, "ssmax_learned": False, "encoding": "learned"},
    ],
)
def test_what_is_frozen_stays_frozen(settings, tmp_path):
    model = tiny_model(**settings)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = {name: p.requires_grad for name, p in model.named_parameters()}
    assert {name: p.requires_grad for name, p in loaded.named_parameters()} == expected
    before = {name: p.detach().clone() for name, p in loaded.named_parameters()}
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=0.1, weight_decay=0.1)
    for step in range(20):
        ids = tokens(2, 9, seed=step)
        loaded(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, before[name]) is not expected[name], name


def test_elsewhere_a_saved_model_says_what_it_needs(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "pip install bayesattn" in card and "import bayesattn" in card
    again, told = tmp_path / "again", tmp_path / "again.json"
    environment = os.environ | {"HF_MODULES_CACHE": tempfile.mkdtemp(), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", ELSEWHERE, *map(str, (tmp_path, again, told))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    plain, missing = json.loads(told.read_text())
    assert "trust_remote_code=True" in plain
    assert "pip install bayesattn" in missing
    same_state(AutoModelForCausalLM.from_pretrained(again), model)
    told.unlink()
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert {path.name for path in again.iterdir()} == names


def test_a_model_card_that_is_there_is_kept(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    tiny_model().save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_registered():
    assert AutoConfig.for_model("bayesattn").model_type == "bayesattn"
    model = AutoModelForCausalLM.from_config(tiny_config())
    assert type(model) is BayesForCausalLM


def test_registering_twice_is_fine():
    import importlib

    import bayesattn.models

    importlib.reload(bayesattn.models)
