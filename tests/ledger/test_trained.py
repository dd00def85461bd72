"""Runs of studies: kept, and made anew when they are damaged."""

import pytest

from bayesattn.ledger.trained import TunnelTraining
from bayesattn.models.architectures import Transformer
from bayesattn.training import TrainConfig
from bayesattn.tunnels import Bijection


@pytest.mark.parametrize("damage", ["config", "weights", "gone"])
def test_a_damaged_run_is_set_aside_and_trained_again(tmp_path, monkeypatch, capsys, damage):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    config = TrainConfig(steps=2, batch_size=4, threads=1)
    training = TunnelTraining(Bijection(4), Transformer(layers=1, width=16, heads=2), config)
    before = {name: x.clone() for name, x in training.model().state_dict().items()}
    last = training.folder / "checkpoints" / "step-000002"
    if damage == "config":
        (training.folder / "config.json").write_text("{")
    elif damage == "weights":
        largest = max(last.iterdir(), key=lambda path: path.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-8])
    else:
        last.rename(tmp_path / "elsewhere")
    after = training.model().state_dict()
    assert all(before[name].equal(after[name]) for name in before)
    assert (tmp_path / f"{training.folder.name}.aside-1").exists()
    assert "It was set aside as" in capsys.readouterr().err
    training.model()
    assert capsys.readouterr().err == ""
