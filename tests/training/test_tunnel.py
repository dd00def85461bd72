import json
import math
from dataclasses import asdict, replace

import pytest
import torch

from bayesattn.errors import RunError
from bayesattn.models.architectures import LSTM, Transformer, build
from bayesattn.models.open import open_tunnel
from bayesattn.training import Run, TrainConfig, TunnelTask, train_tunnel
from bayesattn.training.schedule import WATCH_SEED
from bayesattn.tunnels import HMM, Bijection

TUNNEL = Bijection(4, replacement=True)
SMALL = Transformer(layers=1, width=8, heads=2, prior="ggd")


def config(**changes):
    settings = {"steps": 8, "batch_size": 16, "threads": 1, "log_every": 4, **changes}
    return TrainConfig(**settings)


def brute_loss(model, batch, labels):
    total, count = 0.0, 0
    for b, inputs in enumerate(batch.inputs):
        logits = model(inputs[None])[0]
        for s, position in enumerate(batch.scored.tolist()):
            weights = logits[position].exp()
            for outcome in range(len(weights)):
                share = float(batch.posterior[b, s, outcome])
                if labels == "sampled":
                    share = float(outcome == batch.labels[b, s])
                total -= share * math.log(weights[outcome] / weights.sum())
            count += 1
    return total / count


@pytest.mark.parametrize("labels", ["posterior", "sampled"])
@pytest.mark.parametrize("tunnel", [TUNNEL, HMM(3, 2, 4)], ids=["tokens", "features"])
def test_the_loss_is_the_cross_entropy(labels, tunnel, generator):
    task = TunnelTask(tunnel, labels)
    batch = task.batch(generator, 5, 0)
    model = build(SMALL, tunnel, 0)
    with torch.no_grad():
        assert task.loss(model, batch).item() == pytest.approx(
            brute_loss(model, batch, labels), rel=1e-5
        )


def test_evaluation_is_in_bits_on_held_out_sequences():
    """A model that says nothing: KL = log2 V − H, and the entropy error is the same number."""
    model = build(SMALL, TUNNEL, 0)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    found = TunnelTask(TUNNEL, "posterior").evaluate(model.eval())
    posterior = torch.cat(
        [
            TUNNEL.sample(128, generator).posterior
            for generator in [torch.Generator().manual_seed(WATCH_SEED)]
            for _ in range(4)
        ]
    )
    entropy = -torch.special.xlogy(posterior, posterior).sum(-1).mean().item() / math.log(2)
    assert found == pytest.approx({"mae": 2 - entropy, "kl": 2 - entropy}, rel=1e-6)
    assert found == TunnelTask(TUNNEL, "sampled").evaluate(model)


def test_train_open_and_load(tmp_path):
    run = train_tunnel(TUNNEL, SMALL, config(), tmp_path / "run", command="typed")
    assert run.finished["step"] == 8
    assert run.config["command"] == "typed"
    model, tunnel = open_tunnel(run)
    assert tunnel == TUNNEL and not model.training
    assert TunnelTask(TUNNEL, "posterior").evaluate(model) == run.finished["metrics"]
    again = train_tunnel(TUNNEL, SMALL, config(), tmp_path / "run")
    assert again.finished == run.finished
    by_path, _ = open_tunnel(tmp_path / "run", step=8)
    assert torch.equal(by_path.head.weight, model.head.weight)


def test_averaged_weights_are_what_is_loaded(tmp_path):
    run = train_tunnel(TUNNEL, SMALL, config(ema=0.9), tmp_path / "run")
    model, _ = open_tunnel(run)
    assert torch.equal(model.head.weight, run.checkpoint().tensors("ema")["head.weight"])
    assert TunnelTask(TUNNEL, "posterior").evaluate(model) == run.finished["metrics"]


def test_the_first_checkpoint_has_the_initial_weights(tmp_path):
    run = train_tunnel(TUNNEL, LSTM(layers=1, width=8), config(dynamics=True), tmp_path / "run")
    first, _ = open_tunnel(run, step=0)
    fresh = build(LSTM(layers=1, width=8), TUNNEL, 0)
    assert all(map(torch.equal, first.state_dict().values(), fresh.state_dict().values()))


@pytest.mark.parametrize(
    ("tunnel", "model", "changes", "field"),
    [
        (Bijection(5), SMALL, {}, "tunnel.alphabet \\(4 there, 5 now\\)"),
        (TUNNEL, LSTM(layers=1, width=8), {}, 'architecture.name \\("transformer" there, "lstm"'),
        (TUNNEL, SMALL, {"seed": 1}, "training.seed \\(0 there, 1 now\\)"),
    ],
)
def test_resuming_with_another_config_is_refused(tmp_path, tunnel, model, changes, field):
    train_tunnel(TUNNEL, SMALL, config(), tmp_path / "run")
    with pytest.raises(RunError, match=field):
        train_tunnel(tunnel, model, config(**changes), tmp_path / "run")


def test_a_run_of_an_older_version_is_opened_and_continued(tmp_path):
    settings = config(checkpoint_every=3)
    model = Transformer(layers=1, width=8, heads=2, sliding_window=3, num_key_value_heads=1)
    run = train_tunnel(TUNNEL, model, settings, tmp_path / "run")
    old = {"name": "transformer", "layers": 1, "width": 8, "heads": 2, "kv_heads": 1, "window": 3}
    old |= {"inner": None, "prior": "uniform", "prior_options": {}, "exempt_header": False}
    training = {name: value for name, value in asdict(settings).items() if name != "lengths"}
    kept = {**run.config, "architecture": old, "training": training}
    (run.folder / "config.json").write_text(json.dumps(kept))
    (run.folder / "finished.json").unlink()
    again = train_tunnel(TUNNEL, model, settings, tmp_path / "run")
    assert again.finished["metrics"] == run.finished["metrics"]
    assert open_tunnel(again)[0].body.config.sliding_window == 3
    with pytest.raises(RunError, match="architecture.sliding_window \\(3 there, 4 now\\)"):
        train_tunnel(TUNNEL, replace(model, sliding_window=4), settings, tmp_path / "run")


def test_a_run_of_something_else_is_no_predictor(tmp_path):
    run = Run.create(tmp_path, {"training": {}})
    with pytest.raises(RunError, match="is not of a tunnel: no 'tunnel'"):
        open_tunnel(run)


def test_training_learns(tmp_path):
    tunnel = Bijection(4)
    trivial = TunnelTask(tunnel, "posterior").evaluate(build(SMALL, tunnel, 0))
    settings = config(steps=150, batch_size=64, lr=1e-2)
    run = train_tunnel(tunnel, SMALL, settings, tmp_path / "run")
    assert run.finished["metrics"]["kl"] < 0.2 * trivial["kl"]


def test_lengths_take_turns(tmp_path):
    tunnel = HMM(3, 2, 4)
    task = TunnelTask(tunnel, "posterior", (0.5, 1.0, 3.0))
    horizons = [
        task.batch(torch.Generator().manual_seed(0), 2, step).labels.shape[1] for step in range(5)
    ]
    assert horizons == [2, 4, 12, 2, 4]
    ordinary = TunnelTask(tunnel, "posterior").batch(torch.Generator().manual_seed(0), 2, 7)
    assert torch.equal(ordinary.inputs, tunnel.sample(2, torch.Generator().manual_seed(0)).inputs)
    mixed = config(lengths=[0.5, 2.0])
    assert mixed.lengths == (0.5, 2.0) and mixed.to_dict()["lengths"] == (0.5, 2.0)


def test_a_model_has_room_for_the_longest_sequence(tmp_path):
    """Learned positions have a row for each, also when the run is opened again."""
    learned = Transformer(layers=1, width=8, heads=2, encoding="learned")
    tunnel = HMM(3, 2, 4)
    run = train_tunnel(tunnel, learned, config(lengths=(1.0, 2.0)), tmp_path / "run")
    model, opened = open_tunnel(run)
    assert opened == tunnel
    longer = tunnel.stretched(2)
    assert model.body.encoding.table.shape[0] == longer.positions
    model(longer.sample(2, torch.Generator()).inputs)
    again = train_tunnel(tunnel, learned, config(lengths=(1.0, 2.0)), tmp_path / "run")
    assert again.finished == run.finished
    with pytest.raises(RunError, match="lengths"):
        train_tunnel(tunnel, learned, config(), tmp_path / "run")
