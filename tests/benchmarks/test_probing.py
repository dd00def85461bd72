"""The probing benchmark's bookkeeping; never its times."""

import json

import pytest
import torch

from bayesattn.benchmarks import probing
from bayesattn.benchmarks.probing import CASES, NAMES, ProbingBench, measure
from bayesattn.errors import UserError
from bayesattn.models.architectures import Transformer, build
from bayesattn.tunnels import Bijection

SMALL = (Bijection(4), Transformer(width=16, layers=1))


def test_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(probing, "CASES", {"small": SMALL})
    file = tmp_path / "bench.json"
    assert ProbingBench(batch=8, seconds=0.0, json=str(file)).run() == 0
    rows = json.loads(file.read_text())
    assert [row["names"] for row in rows] == list(NAMES)
    assert rows[0]["tensors"] == 11 and rows[1]["tensors"] == 1 and rows[2]["tensors"] == 3
    assert all(row["rounds"] >= 3 and row["batch"] == 8 for row in rows)
    assert "small" in capsys.readouterr().out


def test_both_sides_see_the_same_batch(monkeypatch):
    seen = []
    tunnel, architecture = SMALL
    model = build(architecture, tunnel, 0).eval()
    forward = model.forward

    def spy(inputs, scored=None):
        seen.append((inputs, scored))
        return forward(inputs, scored)

    monkeypatch.setattr(model, "forward", spy)
    measure("small", model, tunnel, 6, 0.0)
    assert len(seen) >= 16
    for inputs, scored in seen:
        assert torch.equal(inputs, seen[0][0]) and torch.equal(scored, tunnel.scored)


def test_the_authors_size_is_among_the_cases():
    assert any(architecture.width == 192 for _, architecture in CASES.values())


def test_mistakes():
    with pytest.raises(UserError, match="must be positive"):
        ProbingBench(batch=0).run()
