"""The sampler benchmark's bookkeeping; never its times."""

import json
import time

import pytest

from bayesattn.errors import UserError
from bayesattn.tunnels import TUNNELS, Bijection
from benchmarks.tunnels import CASES, TunnelsBench, measure, measure_all


def test_every_tunnel_is_timed():
    assert {tunnel.name for tunnel in CASES.values()} == set(TUNNELS)


def test_rows(tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert TunnelsBench(batch=16, seconds=0.0, json=str(file)).run() == 0
    rows = json.loads(file.read_text())
    assert [row["tunnel"] for row in rows] == list(CASES)
    for row in rows:
        assert row["ratio"] == pytest.approx(row["per_second"] / row["single_per_second"])
        assert row["rounds"] >= 3 and row["batch"] == 16 and row["threads"] >= 1
    assert "sticky" in capsys.readouterr().out


def test_json_alone_on_standard_output(capsys):
    assert TunnelsBench(tunnels="revision", batch=4, seconds=0.0, json="-").run() == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["tunnel"] == "revision"


def test_a_round_counts_what_it_draws():
    """A call takes 10 ms whatever it draws, so batches of 40 are 40 times as fast."""

    class Slow(Bijection):
        def sample(self, batch_size, generator):
            time.sleep(0.01)
            return super().sample(batch_size, generator)

    assert 20 < measure("slow", Slow(4), batch=40, seconds=0.0).ratio < 80


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"tunnels": "maze"},
            f"choose from {', '.join(TUNNELS)}",
        ),
        ({"batch": 0}, "must be positive"),
    ],
)
def test_mistakes(change, message):
    with pytest.raises(UserError, match=message):
        list(measure_all(TunnelsBench(**change)))
