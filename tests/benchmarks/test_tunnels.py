"""The sampler benchmark's bookkeeping; never its times."""

import json
import time

import pytest
import torch

from bayesattn.benchmarks import tunnels
from bayesattn.benchmarks.tunnels import CASES, TunnelsBench, run
from bayesattn.errors import UserError
from bayesattn.tunnels import TUNNELS, Bijection


def test_every_tunnel_is_timed():
    assert {tunnel.name for tunnel in CASES.values()} == set(TUNNELS)


def test_rows(tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert TunnelsBench(batch=16, plain=2, seconds=0.0, json=str(file)).run() == 0
    rows = json.loads(file.read_text())
    assert [row["tunnel"] for row in rows] == list(CASES)
    for row in rows:
        assert row["max_error"] < 1e-10, row
        assert row["ratio"] == pytest.approx(row["per_second"] / row["plain_per_second"])
        assert row["rounds"] >= 3 and row["batch"] == 16 and row["threads"] >= 1
    assert "sticky" in capsys.readouterr().out


def test_json_alone_on_standard_output(capsys):
    bench = TunnelsBench(tunnels="revision", batch=4, plain=1, seconds=0.0, json="-")
    assert bench.run() == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["tunnel"] == "revision"


def test_a_round_counts_what_it_draws(monkeypatch):
    """A sampler that takes 20 ms for 40 sequences and plain code with 10 ms for one: 20 times."""

    class Slow(Bijection):
        def sample(self, batch_size, generator):
            time.sleep(0.02)
            return super().sample(batch_size, generator)

    class SlowOneByOne(tunnels.PER_SAMPLE["bijection"]):
        def sample(self, rng):
            time.sleep(0.01)
            return super().sample(rng)

    monkeypatch.setattr(tunnels, "CASES", {"slow": Slow(4)})
    monkeypatch.setitem(tunnels.PER_SAMPLE, "bijection", SlowOneByOne)
    (row,) = run(TunnelsBench(tunnels="bijection", batch=40, plain=3, seconds=0.0))
    assert 10 < row.ratio < 40


def test_a_wrong_posterior_shows_in_the_error(monkeypatch):
    class Wrong(Bijection):
        def _posterior(self, keys, values):
            posterior, seen = super()._posterior(keys, values)
            return torch.full_like(posterior, 1 / self.alphabet), seen

    monkeypatch.setattr(tunnels, "CASES", {"wrong": Wrong(4)})
    (row,) = run(TunnelsBench(tunnels="bijection", batch=4, plain=1, seconds=0.0))
    assert row.max_error > 0.01


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tunnels": "maze"}, "choose from bijection, hmm, recall, revision, sticky, hops, group"),
        ({"batch": 0}, "must be positive"),
        ({"plain": 0}, "must be positive"),
    ],
)
def test_mistakes(change, message):
    with pytest.raises(UserError, match=message):
        list(run(TunnelsBench(**change)))
