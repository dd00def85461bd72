"""The benchmark's bookkeeping; never its times."""

import json
import time

import pytest
import torch

from bayesattn.errors import UserError
from bayesattn.system import peak_bytes
from benchmarks.attention import AttentionBench, run
from benchmarks.measure import interleave

KEYS = {"kernel", "prior", "ssmax", "mode", "length", "ratio", "median", "extra_bytes", "max_error"}


def test_rows(tmp_path, capsys):
    file = tmp_path / "bench.json"
    bench = AttentionBench(lengths="33,70", heads=2, width=8, seconds=0.0, json=str(file),
                           kernels="strided,skipping,dense bias,flex,blocked",
                           priors="mixed,alibi,gates", ssmax="none,content+prior")  # fmt: skip
    assert bench.run() == 0
    rows = json.loads(file.read_text())
    assert all(set(row) >= KEYS for row in rows)
    kernels = {(row["kernel"], row["ssmax"], row["mode"]) for row in rows}
    assert ("sdpa", "none", "decode") in kernels
    assert ("strided", "content+prior", "backward") in kernels
    assert ("skipping", "none", "forward") in kernels
    assert ("flex", "none", "backward") not in kernels
    assert ("dense bias", "content+prior", "forward") not in kernels
    assert {"mixed", "alibi", "gates", "score"} <= {row["prior"] for row in rows}
    for row in rows:
        limit = 1e-3 if row["kernel"] == "skipping" else 1e-4
        assert row["max_error"] < limit, row
        assert row["ratio"] > 0
    assert "strided" in capsys.readouterr().out


def test_a_wrong_kernel_shows_in_the_error(monkeypatch):
    """The error column has power: a prior off by one distance is seen."""
    from benchmarks import contenders

    right = contenders.attend

    def wrong(q, k, v, prior, *, kernel, **options):
        if kernel == "dense":
            return right(q, k, v, prior, kernel=kernel, **options)
        shifted = prior.table(k.shape[2] + 1)[:, 1:]
        return right(q, k, v, shifted, kernel=kernel, **options)

    monkeypatch.setattr(contenders, "attend", wrong)
    config = AttentionBench(lengths="40", heads=2, width=8, seconds=0.0, kernels="strided",
                            priors="ggd", ssmax="none")  # fmt: skip
    for row in run(config):
        if row.kernel == "strided" and row.mode != "backward":
            assert row.max_error > 1e-3


def test_ratio_is_to_the_reference():
    calls = {"one": lambda: time.sleep(0.01), "three": lambda: time.sleep(0.03)}
    ratios = interleave(calls, "one", seconds=0.0)
    assert ratios["one"].ratio == 1.0
    assert ratios["three"].ratio > 1.5
    assert ratios["three"].rounds == 3
    assert ratios["three"].seconds >= 0.03


def test_peak_counts_what_is_held_at_once():
    x = torch.zeros(1000, 1000)
    assert 4_000_000 <= peak_bytes(lambda: x + 1) < 4_100_000
    assert 8_000_000 <= peak_bytes(lambda: (x + 1) * 2) < 8_100_000
    assert peak_bytes(lambda: [x + 1 for _ in range(3)]) >= 12_000_000


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lengths": "1k"}, "positive numbers"),
        ({"lengths": "0"}, "positive numbers"),
        ({"modes": "train"}, "choose from forward, backward, decode"),
        ({"kernels": "triton"}, "choose from sdpa, strided"),
        ({"priors": "gaussian"}, "choose from ggd, mixed"),
        ({"ssmax": "yes"}, "choose from none, content"),
    ],
)
def test_mistakes(change, message):
    with pytest.raises(UserError, match=message):
        list(run(AttentionBench(**change)))
