"""Models that come along: they load, they are what they say, and they stay small."""

import json
import shlex

import pytest
import torch

from bayesattn import cli, zoo
from bayesattn.evals.fidelity import measure
from bayesattn.evals.shipping import ship, train_command
from bayesattn.models.architectures import LSTM, Transformer
from bayesattn.training import Run, TrainConfig, load_predictor, train_tunnel
from bayesattn.training.commands import Train
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import HMM, Bijection


@pytest.mark.parametrize("name", zoo.names())
def test_a_shipped_model_has_the_fidelity_it_states(name):
    model, tunnel = load_predictor(zoo.locate(f"zoo:{name}"))
    found = measure(model, tunnel, sequences=300).parts["inside"].estimates["model"]["mae_tok"]
    stated = next(
        row
        for row in zoo.entry(name).fidelity
        if (row["part"], row["predictor"]) == ("inside", "model")
    )
    # both are estimates, from other sequences each
    assert found.low <= stated["mae_tok_high"] and stated["mae_tok_low"] <= found.high
    assert stated["mae_tok"] < 0.05


def test_all_models_together_are_small():
    files = [path for path in zoo.MODELS.rglob("*") if path.is_file()]
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
    options = tyro.cli(Train.options_for(words), args=words, config=(tyro.conf.FlagCreatePairsOff,))
    assert options.tunnel == tunnel
    assert options._model() == architecture
    assert options.training == config


def test_shipping_keeps_the_weights_and_drops_the_optimiser(tmp_path):
    run = train_tunnel(
        Bijection(4),
        Transformer(width=16, layers=1),
        TrainConfig(steps=3, batch_size=4, ema=0.5),
        tmp_path / "run",
        progress=False,
    )
    ship(run, "small", models=tmp_path)
    shipped, tunnel = load_predictor(tmp_path / "small")
    kept, _ = load_predictor(run)
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
