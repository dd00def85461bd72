"""Whatever a `BayesConfig` can be built with can be trained from both command lines."""

from dataclasses import fields
from functools import cache

import pytest
from transformers import PreTrainedConfig

from bayesattn.commands.main import options
from bayesattn.corpora import load_tokenizer
from bayesattn.models import BayesConfig
from bayesattn.models.architectures import build
from bayesattn.models.choices import NOT_TRAINED

CHOICES = {
    "hidden_size": ("--width 24", 24),
    "intermediate_size": ("--intermediate-size 20", 20),
    "num_hidden_layers": ("--layers 1", 1),
    "num_attention_heads": ("--heads 2", 2),
    "num_key_value_heads": ("--num-key-value-heads 1", 1),
    "head_dim": ("--head-dim 6", 6),
    "max_position_embeddings": ("--max-position-embeddings 77", 77),
    "rms_norm_eps": ("--rms-norm-eps 1e-3", 1e-3),
    "prior": ("--prior student", "student"),
    "prior_options": ("--prior ggd --prior-options init=alibi", {"init": "alibi"}),
    "shared_prior": ("--shared-prior --global-layers all", True),
    "ssmax": ("SSMAX", None),
    "ssmax_scope": ("--ssmax-scope content", "content"),
    "ssmax_horizon": ("--ssmax-horizon 3", 3),
    "ssmax_learned": ("--no-ssmax-learned", False),
    "log_temperature": ("--no-ssmax --log-temperature 0.1", 0.1),
    "log_temperature_start": ("--no-ssmax --log-temperature 0.1 --log-temperature-start 9", 9),
    "forget": ("--forget", True),
    "forget_time": ("--forget --forget-time 50", 50.0),
    "sink": ("--sink", True),
    "encoding": ("--encoding sinusoidal", "sinusoidal"),
    "position_init": ("--encoding learned --position-init sinusoidal", "sinusoidal"),
    "rope_parameters": (
        "--encoding rope --rope-parameters rope_theta=99.5",
        {"rope_type": "default", "rope_theta": 99.5},
    ),
    "rope_layers": (
        "--encoding rope --rope-layers local --global-layers 1",
        "local",
    ),
    "global_layers": ("--global-layers 0 1", [0, 1]),
    "sliding_window": ("--sliding-window 9", 9),
    "exempt": ("--exempt 2", 2),
    "attention_layers": ("--attention-layers 1", 1),
    "num_experts": ("--num-experts 3", 3),
    "num_experts_per_tok": ("--num-experts 3 --num-experts-per-tok 1", 1),
    "kernel": ("--kernel dense", "dense"),
    "tie_word_embeddings": ("--tie-word-embeddings", True),
}
"""What to type for each field of the config, and what it is then."""


@cache  # most ask for what is built without options, too
def lm(*words):
    language, _ = options("lm train", ["tiny", "--size", "nano", *words]).chosen()
    return language.build(load_tokenizer("bytes"), seed=0).config


@cache
def tunnel(*words):
    task, architecture, _ = options("tunnel train", ["bijection", *words]).chosen()
    return build(architecture, task, seed=0).body.config


def test_no_choice_is_left_out():
    theirs = {field.name for field in fields(PreTrainedConfig)}
    ours = {field.name for field in fields(BayesConfig)} - theirs
    assert ours - NOT_TRAINED == CHOICES.keys()
    assert ours > NOT_TRAINED


@pytest.mark.parametrize("train", [lm, tunnel])
@pytest.mark.parametrize("name", CHOICES)
def test_each_choice_reaches_the_model(train, name):
    words, expected = CHOICES[name]
    before = getattr(train(), name)
    if name == "ssmax":
        words, expected = ("--no-ssmax", False) if before else ("--ssmax", True)
    assert before != expected
    assert getattr(train(*words.split()), name) == expected


@pytest.mark.parametrize("train", [lm, tunnel])
def test_switches_can_be_set_both_ways_whatever_their_default(train, capsys):
    assert [train(flag).ssmax for flag in ("--ssmax", "--no-ssmax")] == [True, False]
    with pytest.raises(SystemExit):
        train("--help")
    assert "--ssmax, --no-ssmax" in capsys.readouterr().out


def test_relative_choices():
    assert lm("--ssmax-horizon", "0.5x", "--length", "128").ssmax_horizon == 64
    assert lm("--length", "90").max_position_embeddings == 90
    config = tunnel("--ssmax-horizon", "1x", "--exempt", "header")
    assert config.ssmax_horizon == config.max_position_embeddings > 1
    hmm, architecture, _ = options("tunnel train", ["hmm", "--exempt", "header"]).chosen()
    assert build(architecture, hmm, seed=0).body.config.exempt == hmm.prefix > 0
