import json
from dataclasses import fields

import pytest
import torch

from bayesattn.corpora import load_tokenizer
from bayesattn.training import LanguageConfig


def test_a_config_survives_json():
    language = LanguageConfig(prior_options={"init": "mixed"}, encoding="rope", layers=2)
    kept = language.to_dict()
    assert kept.keys() == {field.name for field in fields(language)}  # later defaults change none
    assert LanguageConfig(**json.loads(json.dumps(kept))) == language


def test_every_choice_reaches_the_model():
    language = LanguageConfig(
        size="nano",
        length=100,
        layers=1,
        width=24,
        heads=3,
        prior="laplace",
        prior_options={"learned": True},
        shared_prior=True,
        encoding="rope",
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        ssmax_scope="content",
        ssmax_learned=False,
        sliding_window=9,
    )
    tokenizer = load_tokenizer("bytes")
    config = language.build(tokenizer, 0).config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (1, 24, 3)
    assert config.vocab_size == len(tokenizer) == 259
    assert config.max_position_embeddings == 100
    assert (config.prior, config.prior_options) == ("laplace", {"learned": True})
    assert config.shared_prior and not config.ssmax_learned
    assert config.ssmax and config.ssmax_scope == "content"
    assert config.encoding == "rope" and config.rope_parameters["rope_theta"] == 10_000.0
    assert config.sliding_window == 9
    assert config.bos_token_id == tokenizer.bos_token_id
    assert config.eos_token_id == tokenizer.eos_token_id
    assert config.pad_token_id == tokenizer.pad_token_id
    assert not LanguageConfig(ssmax=False).model_config().ssmax


def test_a_size_is_that_of_the_models_recipe():
    config = LanguageConfig(size="l6", length=512).model_config(vocab_size=32_768)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (
        512,
        6,
        16,
    )


def test_weights_depend_on_the_seed_alone():
    language, tokenizer = LanguageConfig(size="nano"), load_tokenizer("bytes")
    state = torch.get_rng_state()
    first, same, other = (language.build(tokenizer, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.lm_head.weight, same.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"length": 1}, "length must be 2 or more tokens, not 1"),
        ({"needle_share": 1.5}, "needle_share must be a share from 0 to 1, not 1.5"),
        ({"needles": "hay"}, "unknown needles 'hay'; choose one of passkey, "),
        ({"size": "l7"}, "unknown size 'l7'; choose one of nano, tiny"),
        ({"layers": 0}, "layers must be a positive integer, not 0"),
        ({"sliding_window": -1}, "sliding_window must be a positive integer, not -1"),
        ({"corpus_tokens": 0}, "corpus_tokens must be a positive integer"),
        ({"width": 100}, "width 100 is not a multiple of heads 8"),
        ({"prior": "gdd"}, "unknown prior 'gdd'"),
        ({"prior_options": {"init": "odd"}}, "unknown init 'odd'"),
        ({"encoding": "alibi"}, "unknown encoding 'alibi'"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters need encoding 'rope'"),
        ({"ssmax_scope": "all"}, "unknown ssmax_scope 'all'"),
    ],
)
def test_what_cannot_work_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        LanguageConfig(**changes)


def test_only_settings_of_the_model_can_be_changed():
    with pytest.raises(ValueError, match="'sliding_windw': did you mean 'sliding_window'"):
        LanguageConfig().model_config(sliding_windw=3)
    with pytest.raises(ValueError, match="unknown field 'shard_prior': did you mean 'shared_pr"):
        LanguageConfig(shard_prior=True)


def test_an_older_run_is_read_under_its_old_names():
    assert LanguageConfig.read({"window": 9, "size": "small", "layers": None}) == LanguageConfig(
        sliding_window=9, size="mini"
    )


def test_a_horizon_is_a_multiple_of_the_training_length_or_a_number():
    for given, tokens in (("1x", 100), ("0.5x", 50), (7, 7), ("7", 7), (None, None)):
        language = LanguageConfig(length=100, ssmax_horizon=given)
        assert language.model_config().ssmax_horizon == tokens
    for wrong in ("x", "1x,2x", "0x"):
        with pytest.raises(ValueError, match="ssmax_horizon is one length, a multiple such as 1x"):
            LanguageConfig(ssmax_horizon=wrong)
