"""Models that come along: they load, they are what they say, and they stay small."""

import json
import shlex
from dataclasses import replace

import pytest
import torch

from bayesattn import zoo
from bayesattn.commands import main as cli
from bayesattn.commands.train import LanguageTrain, TunnelTrain
from bayesattn.evals.fidelity import measure
from bayesattn.evals.passkey import passkey
from bayesattn.files import parse
from bayesattn.models.architectures import LSTM, Transformer
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.open import open_language, open_tunnel
from bayesattn.training import Run, TrainConfig, train_tunnel
from bayesattn.training.language import parse_config as parse_language
from bayesattn.training.language import train_language
from bayesattn.training.recipes import LANGUAGE_RECIPES
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import HMM, Bijection
from tests.zoo.ship import language_command, ship, ship_language, train_command


@pytest.mark.parametrize("name", zoo.names())
def test_a_shipped_model_has_the_fidelity_it_states(name):
    model, tunnel = open_tunnel(zoo.locate(f"zoo:{name}"))
    found = measure(model, tunnel).parts["inside"].estimates["model"]["mae_tok"]
    stated = next(
        row
        for row in zoo.entry(name).fidelity
        if (row["part"], row["predictor"]) == ("inside", "model")
    )
    # both are estimates, from other sequences each
    interval = found.interval
    assert interval.low <= stated["mae_tok_high"] and stated["mae_tok_low"] <= interval.high
    assert stated["mae_tok"] < 0.05


def test_all_models_together_are_small():
    folders = (zoo.MODELS, zoo.LANGUAGE)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < 10e6
    assert not [path for path in files if path.suffix not in (".json", ".safetensors")]


@pytest.mark.parametrize("name", zoo.names())
def test_the_stated_command_describes_the_model(name):
    run = Run.open(zoo.locate(f"zoo:{name}"))
    assert run.config["command"] == train_command(*parse_config(run))


@pytest.mark.parametrize(
    ("tunnel", "architecture", "config"),
    [
        (
            Bijection(6, replacement=True),
            Transformer(prior="ggd", prior_options={"init": "mixed"}, width=32),
            TrainConfig(steps=7, betas=(0.8, 0.9), seed=3),
        ),
        (HMM(3, 4, 6), LSTM(width=24), TrainConfig(labels="sampled", threads=1)),
    ],
)
def test_a_command_is_read_back_as_what_it_was_made_from(tunnel, architecture, config):
    import tyro

    words = shlex.split(train_command(tunnel, architecture, config))[3:]
    options = tyro.cli(TunnelTrain.options_for(words), args=words)
    assert options.chosen() == (tunnel, architecture, config)


def test_shipping_keeps_the_weights_and_drops_the_optimiser(tmp_path):
    run = train_tunnel(
        Bijection(4),
        Transformer(width=16, layers=1),
        TrainConfig(steps=3, batch_size=4, ema=0.5),
        tmp_path / "run",
        progress=False,
    )
    ship(run, "small", models=tmp_path)
    shipped, tunnel = open_tunnel(tmp_path / "small")
    kept, _ = open_tunnel(run)
    assert tunnel == Bijection(4)
    for name, tensor in kept.state_dict().items():
        assert torch.equal(shipped.state_dict()[name], tensor)
    assert [path.name for path in (tmp_path / "small").rglob("*.safetensors")] == [
        "model.safetensors"
    ]


def test_a_run_that_is_not_finished_is_not_shipped(tmp_path):
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(ValueError, match="not finished"):
        ship(run, "early", models=tmp_path)


def test_the_command_lists_the_models(capsys):
    assert cli.main(["tunnel", "zoo", "--json", "-"]) == 0
    assert [found["name"] for found in json.loads(capsys.readouterr().out)] == zoo.names()
    assert cli.main(["tunnel", "zoo"]) == 0
    assert f"zoo:{zoo.names()[0]}" in capsys.readouterr().out


def test_an_unknown_model_is_answered_with_the_known_ones(capsys):
    assert cli.main(["tunnel", "fidelity", "zoo:nothing"]) == 2
    assert zoo.names()[0] in capsys.readouterr().err


@pytest.mark.parametrize("name", zoo.names(zoo.LANGUAGE))
def test_a_shipped_language_model_finds_what_it_states(name):
    known = zoo.language_entry(name)
    inside = known.lengths[0]
    language_model = open_language(f"zoo:{name}")
    found = passkey(language_model, inside["requested"], seed=1).by_length()[0]
    # both are estimates, from other prompts each
    assert found.interval.low <= inside["high"] and inside["low"] <= found.interval.high
    assert inside["accuracy"] > 0.8 and known.trained == language_model.length


@pytest.mark.parametrize("name", zoo.names(zoo.LANGUAGE))
def test_the_stated_command_describes_the_language_model(name):
    run = Run.open(zoo.locate(f"zoo:{name}"))
    words = shlex.split(run.config["command"])[3:]
    assert words[-2:] == ["--out", "RUN"]
    assert _chosen(words) == parse_language(run)


def test_shipping_a_language_model(tmp_path):
    language = LanguageConfig(size="nano", length=64, tokenizer="bytes", needle_share=0.0)
    config = TrainConfig(steps=2, batch_size=2, seed=4)
    run = train_language(language, config, tmp_path / "run", progress=False)
    ship_language(run, "small", "700", models=tmp_path)
    shipped = open_language(tmp_path / "small")
    kept = open_language(run)
    for name, tensor in kept.model.state_dict().items():
        assert torch.equal(shipped.model.state_dict()[name], tensor)
    about = parse((tmp_path / "small" / "passkey.json").read_text())
    assert about["lengths"][0]["requested"] == "700" and about["trained"] == 64
    stated = Run.open(tmp_path / "small").config["command"]
    assert stated == language_command(language, config)


@pytest.mark.parametrize(
    ("recipe", "language", "training"),
    [
        ("tiny", {"length": 64}, {"seed": 3, "threads": 1, "betas": (0.8, 0.9)}),
        ("published", {"prior": "laplace", "ssmax": False}, {"optimizer": "adamw", "lr": 1e-3}),
        ("published", {"prior_options": {"init": "mixed"}}, {"steps": 7, "dynamics": True}),
        ("tiny", {"ssmax_horizon": None, "global_layers": [0, 2]}, {}),
        ("tiny", {}, {"prior_lr": None}),
    ],
)
def test_a_language_command_is_read_back_as_what_it_was_made_from(recipe, language, training):
    chosen, how = LANGUAGE_RECIPES[recipe]()
    parts = replace(chosen, **language), replace(how, **training)
    words = shlex.split(language_command(*parts))
    assert words[3] == recipe
    assert _chosen(words[3:]) == parts


def test_the_command_lists_the_language_models(capsys):
    assert cli.main(["lm", "zoo", "--json", "-"]) == 0
    known = [found["name"] for found in json.loads(capsys.readouterr().out)]
    assert known == zoo.names(zoo.LANGUAGE)
    assert cli.main(["lm", "zoo"]) == 0
    printed = capsys.readouterr().out
    assert all(f"zoo:{name}" in printed for name in known)


def test_each_kind_of_model_is_for_its_own_commands(capsys):
    assert cli.main(["lm", "passkey", "zoo:bijection-10"]) == 2
    assert "is a run of a tunnel, which reads no text" in capsys.readouterr().err
    assert cli.main(["lm", "passkey", "zoo:nothing"]) == 2
    assert "the zoo has bijection-10" in capsys.readouterr().err


def _chosen(words):
    """What these words of `bayesattn lm train` choose."""
    import tyro

    options = tyro.cli(LanguageTrain.options_for(words), args=words)
    return options.chosen()
