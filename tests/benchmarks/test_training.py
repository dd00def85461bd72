"""The training benchmark's bookkeeping; never its times."""

import functools
import json
import math

import pytest
import torch

from bayesattn.errors import UserError
from bayesattn.training import TrainConfig, TunnelTask
from bayesattn.tunnels import Bijection
from benchmarks import training
from benchmarks.plain import AuthorsTransformer
from benchmarks.training import TrainingBench, _labels, quick_recipe
from tests.tunnels.oracles import expected_entropies


@pytest.fixture
def small(monkeypatch):
    """Both recipes at a size for tests."""
    authors = functools.partial(AuthorsTransformer, layers=1, width=12, heads=2)
    monkeypatch.setattr(training, "AuthorsTransformer", authors)
    monkeypatch.setattr(training, "AUTHORS_BATCH", 8)


def test_overhead(tmp_path, capsys):
    file = tmp_path / "bench.json"
    bench = TrainingBench(measure="overhead", alphabet=4, steps=3, seconds=0.0, json=str(file))
    assert bench.run() == 0
    found = json.loads(file.read_text())
    assert set(found) == {"threads", "overhead"}
    overhead = found["overhead"]
    assert overhead["ratio"] == pytest.approx(overhead["per_second"] / overhead["bare_per_second"])
    assert overhead["rounds"] >= 3 and overhead["steps"] == 3
    assert overhead["parameters"] == overhead["bare_parameters"]
    assert "our loop / bare loop" in capsys.readouterr().out


def test_time_to_fidelity_with_a_cap(small, tmp_path, capsys):
    """Ours arrives; the authors' recipe is stopped, so the ratio is a lower bound."""
    file = tmp_path / "bench.json"
    bench = TrainingBench(
        measure="fidelity", alphabet=4, target=0.1, seeds=2, cap=1e-9, json=str(file)
    )
    assert bench.run() == 0
    found = json.loads(file.read_text())["fidelity"]
    first, authors, second = found["arrivals"]
    assert [first["recipe"], authors["recipe"], second["recipe"]] == ["ours", "authors", "ours"]
    assert [first["seed"], second["seed"]] == [0, 1]
    assert max(first["mae"], second["mae"]) <= 0.1 < authors["mae"]
    assert first["steps"] % training.OUR_CHECK == 0
    assert found["is_lower_bound"] and not authors["reached"] and authors["steps"] == 1
    ours = [first["seconds"], second["seconds"]]
    assert found["ratio"] == pytest.approx(authors["seconds"] / (sum(ours) / 2))
    assert found["ratio_low"] == pytest.approx(authors["seconds"] / max(ours))
    assert found["ratio_high"] == pytest.approx(authors["seconds"] / min(ours))
    assert "at least" in capsys.readouterr().out


def test_the_authors_recipe_can_arrive(small, tmp_path, capsys):
    """A target that needs no learning: it is noticed at the first evaluation."""
    file = tmp_path / "bench.json"
    bench = TrainingBench(measure="fidelity", alphabet=4, target=2.0, seeds=1, json=str(file))
    assert bench.run() == 0
    found = json.loads(file.read_text())["fidelity"]
    assert not found["is_lower_bound"]
    assert found["arrivals"][1]["reached"]
    assert found["arrivals"][1]["steps"] == training.AUTHORS_CHECK
    assert "at least" not in capsys.readouterr().out


def test_both_are_evaluated_on_the_same_sequences(small, monkeypatch):
    seen = {"ours": [], "authors": []}
    evaluate = TunnelTask.evaluate

    def noted(self, model):
        key = "authors" if isinstance(model, AuthorsTransformer) else "ours"
        seen[key].append(torch.cat([batch.inputs for batch in self._watched]))
        return evaluate(self, model)

    monkeypatch.setattr(TunnelTask, "evaluate", noted)
    TrainingBench(measure="fidelity", alphabet=4, target=2.0, seeds=1, json="-").run()
    assert len(seen["ours"]) == len(seen["authors"]) == 1
    assert seen["ours"][0].equal(seen["authors"][0])


def test_an_uninformed_authors_model_is_the_uniform_predictor():
    """The value slice is what is scored: equal logits give log2 V at every step."""
    tunnel = Bijection(10)
    model = AuthorsTransformer(20, 18, first_value=10, layers=1, width=12, heads=2)
    with torch.no_grad():
        model.norm.weight.zero_()
        found = TunnelTask(tunnel, "sampled").evaluate(model)["mae"]
    assert found == pytest.approx(math.log2(10) - expected_entropies(tunnel).mean().item())


def test_authors_batches_are_sequences_of_the_tunnel():
    tunnel = Bijection(5)
    batches = _labels(tunnel)
    inputs, scored, labels = next(batches)
    assert inputs.shape == (256, tunnel.positions) and scored.equal(tunnel.scored)
    assert labels[:, :-1].equal(inputs[:, 1::2] - 5)  # the truth is what comes next
    assert not next(batches)[0].equal(inputs)


def test_a_target_out_of_reach_is_told(small, monkeypatch):
    def short(alphabet, seed):
        tunnel, architecture, _ = quick_recipe(alphabet, seed)
        return tunnel, architecture, TrainConfig(steps=2, seed=seed)

    monkeypatch.setattr(training, "quick_recipe", short)
    with pytest.raises(UserError, match="choose a --target it can reach, not 1e-09"):
        TrainingBench(measure="fidelity", alphabet=4, target=1e-9).run()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "--steps must be positive, not 0"),
        ({"seeds": 0}, "--seeds must be positive"),
        ({"cap": 0.0}, "--cap must be positive"),
        ({"target": -1.0}, "--target must be positive, not -1"),
        ({"alphabet": 1}, "--alphabet must be at least 2"),
    ],
)
def test_mistakes(change, message):
    with pytest.raises(UserError, match=message):
        TrainingBench(**change).run()
