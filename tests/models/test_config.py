import json

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from bayesattn.models import BayesConfig
from tests.models.common import tiny_config


def test_defaults_are_the_published_setting():
    config = BayesConfig()
    assert (config.prior, config.ssmax, config.ssmax_scope) == ("ggd", True, "content+prior")
    assert (config.encoding, config.rope_parameters, config.shared_prior) == ("none", None, False)
    assert (config.head_dim, config.num_key_value_heads, config.intermediate_size) == (48, 16, 1536)


def test_rope_theta_defaults_to_the_authors():
    config = tiny_config(encoding="rope")
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 500_000.0}


def test_the_callers_dictionaries_are_not_changed():
    rope, options = {"rope_type": "linear", "factor": 2.0}, {"init": "mixed"}
    config = tiny_config(encoding="rope", rope_parameters=rope, prior_options=options)
    config.prior_options["init"] = "alibi"
    assert rope == {"rope_type": "linear", "factor": 2.0}
    assert options == {"init": "mixed"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"encoding": "rope", "rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
        {"prior": "laplace", "prior_options": {"slopes": [0.1, 0.2, 0.3, 0.4]}, "exempt": 3},
        {"sliding_window": 5, "kernel": "dense", "shared_prior": True},
        {"encoding": "learned", "attention_layers": 1},
        {"global_layers": "last"},
        {"global_layers": [0], "sliding_window": 9, "prior": "laplace"},
    ],
)
def test_saves_and_loads(settings, tmp_path):
    config = tiny_config(**settings)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, BayesConfig)
    assert loaded.to_dict() == config.to_dict() | {"_name_or_path": str(tmp_path)}
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["prior"] == config.prior


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": "gauss"}, "unknown prior 'gauss'; choose one of .*laplace.*ggd"),
        (
            {"encoding": "alibi"},
            "unknown encoding 'alibi'; choose one of none, rope, sinus.*, learned",
        ),
        (
            {"encoding": "alibi", "rope_parameters": {"rope_theta": 1e4}},
            "unknown encoding 'alibi'; choose one of none, rope, sinusoidal",
        ),
        ({"kernel": "fast"}, "unknown kernel 'fast'; choose one of auto, dense, strided, flex"),
        ({"ssmax_horizon": 0}, "ssmax_horizon must be 1 or more, or None, not 0"),
        ({"ssmax_scope": "prior"}, "unknown ssmax_scope 'prior'; choose one of content.prior, con"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_attention_heads 5"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_h"),
        ({"num_attention_heads": 0}, "num_attention_heads must be a positive integer, not 0"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be a positive integer, not 0"),
        ({"head_dim": -4}, "head_dim must be a positive integer, not -4"),
        ({"sliding_window": 0}, "sliding_window must be a positive integer, not 0"),
        ({"attention_layers": 0}, "attention_layers must be a positive integer, not 0"),
        ({"attention_layers": 3}, "attention_layers 3 is more than num_hidden_layers 2; leave it"),
        ({"rope_layers": "some"}, "rope_layers is 'all' or 'local', not 'some'"),
        ({"rope_layers": "local"}, "rope_layers 'local' needs encoding 'rope' and global_layers"),
        ({"rope_layers": "local", "encoding": "rope"}, "rope_layers 'local' needs encoding 'rope'"),
        ({"global_layers": "first"}, "global_layers is 'all', 'last' or a list of layers, not 'fi"),
        ({"global_layers": [0, 2]}, "names layer 2, but the layers that attend are 0 to 1"),
        ({"global_layers": [-1]}, "names layer -1, but the layers that attend are 0 to 1"),
        (
            {"global_layers": [1], "attention_layers": 1},
            "names layer 1, but the layers that attend are 0 to 0",
        ),
        (
            {"global_layers": "last", "shared_prior": True},
            "shared_prior is one prior for all layers, but only some of them are global; drop one",
        ),
        ({"exempt": -1}, "exempt must be 0 or more keys, not -1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a positive number, not nan"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps must be a positive number, not 0.0"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters need encoding 'rope', not 'no"),
        ({"rope_theta": 1e4}, "rope_parameters need encoding 'rope', not 'none'"),
        (
            {"encoding": "sinusoidal", "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rope_parameters need encoding 'rope', not 'sinusoidal'",
        ),
        (
            {"encoding": "rope", "rope_parameters": {"rope_type": "ntk"}},
            "unknown rope_type 'ntk'; choose one of default, linear, dynamic, yarn",
        ),
        (
            {"encoding": "rope", "rope_parameters": {"rope_type": "linear"}},
            "rope_type 'linear' needs a factor of 1 or more, not None",
        ),
        (
            {"encoding": "rope", "rope_parameters": {"rope_type": "yarn", "factor": 0.5}},
            "rope_type 'yarn' needs a factor of 1 or more, not 0.5",
        ),
        (
            {"encoding": "rope", "rope_parameters": {"rope_theta": float("nan")}},
            "rope_theta must be a positive number, not nan",
        ),
        ({"encoding": "rope", "head_dim": 7}, "encoding 'rope' needs an even head_dim, not 7"),
        ({"prior_options": {"init": "best"}}, "init"),
        ({"prior": "laplace", "prior_options": {"slopes": [1.0]}}, "slopes must be 4 positive"),
        ({"slidng_window": 4}, "unknown setting 'slidng_window': did you mean 'sliding_window'"),
        ({"priro": "laplace"}, "unknown setting 'priro': did you mean 'prior'"),
        ({"colour": "red"}, "unknown setting 'colour': BayesConfig has no such field"),
        ({"ssmx": False}, "unknown setting 'ssmx': did you mean 'ssmax'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        tiny_config(**settings)
    assert "\n" not in str(caught.value)


def test_an_option_the_prior_does_not_have():
    with pytest.raises(TypeError, match="has no option 'slope'; its options are: learned, slopes"):
        tiny_config(prior="laplace", prior_options={"slope": 1.0})


def test_types_are_checked():
    with pytest.raises(StrictDataclassError, match="exempt"):
        tiny_config(exempt="three")


def test_notes_of_other_programs_in_a_saved_config_are_kept(tmp_path):
    config = tiny_config()
    config.my_experiment = "a"
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).my_experiment == "a"
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"prior":', '"priro":'))
    with pytest.raises(ValueError, match="unknown setting 'priro': did you mean 'prior'"):
        AutoConfig.from_pretrained(tmp_path)


def test_what_transformers_passes_and_saves_is_no_mistake(tmp_path):
    config = tiny_config(
        attn_implementation="eager",
        output_attentions=True,
        torch_dtype="float32",
        num_labels=3,
        name_or_path="somewhere",
        temperature=0.7,
        quantization_config={"quant_method": "none"},
        encoding="rope",
        rope_theta=1e4,
    )
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 1e4}
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    BayesConfig(**written | {"_commit_hash": "0", "pruned_heads": {}, "max_length": 20})
