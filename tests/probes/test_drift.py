"""Trainings whose order of events is known, and the arithmetic of settling."""

import copy
import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon

from bayesattn.models.architectures import LSTM, Transformer, build
from bayesattn.probes.drift import (
    KINDS,
    Drift,
    Path,
    follow,
    jensen_shannon,
    measure_drift,
    settling_step,
    straight_path,
    subspace_overlap,
)
from bayesattn.probes.measured import NotApplicableError
from bayesattn.training import TrainConfig, train_tunnel
from bayesattn.training.schedule import checkpoint_steps
from tests.probes.common import BIJECTION, TRANSFORMERS

STEPS = [0, 100, 200, 300, 400, 500, 600]


def test_settling_by_hand():
    steps = [0, 10, 20, 40]
    assert settling_step(steps, [1.0, 0.5, 0.0, 0.0], 0.5) == 10
    assert settling_step(steps, [1.0, 0.5, 0.0, 0.0], 0.1) == pytest.approx(18)
    # to the end, which need not be 0, and from above or below
    assert settling_step(steps, [3.0, 2.0, 1.0, 1.0], 0.25) == pytest.approx(15)
    assert settling_step(steps, [0.0, 1.0, 2.0, 2.0], 0.25) == pytest.approx(15)
    # it has to stay there
    assert settling_step(steps, [1.0, 0.0, 1.0, 0.0], 0.5) == pytest.approx(30)
    # what never moves, or is there at once, settles in the first interval
    assert settling_step(steps, [0.0, 0.0, 0.0, 0.0], 0.5) == 5
    assert settling_step(steps, [1.0, 0.0, 0.0, 0.0], 0.9) == 5


def test_an_error_is_right_when_it_is_twice_its_end():
    curve = {"mae": [1.0, 0.5, 0.3, 0.1, 0.1], "attention": [1.0, 0.0, 0.0, 0.0, 0.0]}
    path = Path(steps=[0, 10, 20, 40, 80], curves=curve, layers={})
    assert path.reaching("mae") == pytest.approx(30)
    assert path.settling("attention") == pytest.approx(9)
    drift = Drift(trained=path, straight=path, frame_null=0.0)
    assert (
        drift.trained.precision() == drift.straight.precision() == pytest.approx(math.log2(30 / 9))
    )


def test_jensen_shannon_is_that_of_scipy(generator):
    p, q = torch.rand(2, 7, 5, generator=generator, dtype=torch.float64)
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    p[0], q[0] = torch.eye(5, dtype=torch.float64)[:2]
    expected = [jensenshannon(a, b, base=2) ** 2 for a, b in zip(p, q, strict=True)]
    assert jensen_shannon(p, q).tolist() == pytest.approx(expected)
    assert float(jensen_shannon(p, q)[0]) == 1 and float(jensen_shannon(p, p).max()) == 0


def test_overlap_of_subspaces(generator):
    basis = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    rows = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    first, shared = rows @ basis[:2], rows @ basis[1:3]
    assert subspace_overlap(first, 5 * first + 1, 2) == pytest.approx(1)
    assert subspace_overlap(first, shared, 2) == pytest.approx(0.5)
    assert subspace_overlap(first, rows @ basis[4:6], 2) == pytest.approx(0, abs=1e-12)
    draws = torch.randn(200, 2, 30, 8, generator=generator)
    mean = sum(subspace_overlap(x, y, 2) for x, y in draws) / 200
    assert mean == pytest.approx(2 / 8, abs=0.02)  # r/d


def moved(model, share, names):
    """A copy with `share` of a fixed displacement of the parameters that `names` are in."""
    generator = torch.Generator().manual_seed(0)
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            step = torch.randn(parameter.shape, generator=generator)
            if any(part in name for part in names):
                parameter += share(name) * 0.5 * step
    return model


@pytest.mark.parametrize("early", ["routing", "content"])
def test_the_order_of_events_is_found(early):
    """Queries and keys move first and values later, or the other way round."""
    start = build(Transformer(width=16, layers=1), BIJECTION, 0)
    routing, content = ("q_proj", "k_proj"), ("v_proj", "o_proj")
    first = routing if early == "routing" else content

    def at(step):
        def share(name):
            soon = any(part in name for part in first)
            return min(1.0, step / 200) if soon else max(0.0, (step - 300) / 300)

        return moved(start, share, routing + content)

    batch = BIJECTION.sample(64, torch.Generator().manual_seed(1))
    found = follow(STEPS, [at(step) for step in STEPS], batch)
    sooner, later = ("attention", "values") if early == "routing" else ("values", "attention")
    assert found.trained.settling(sooner) <= 200 < 400 < found.trained.settling(later)
    sign = 1 if early == "routing" else -1
    assert sign * found.trained.dissociation("values") > 1
    # on the straight path both move together
    assert abs(found.straight.dissociation("values")) < 0.5
    assert found.trained.curves["attention"][-1] == 0
    assert found.trained.curves["values"][-1] == pytest.approx(0, abs=1e-6)
    summary = found.summary()
    assert {*summary} == {*KINDS}
    assert summary[sooner]["half-life"] < summary[sooner]["settled"]
    assert found.summaries()["dissociation"]["values"] == found.trained.dissociation("values")


def test_straight_path_goes_as_far_as_the_training():
    models = [build(TRANSFORMERS["ggd"], BIJECTION, seed) for seed in range(3)]
    path = list(straight_path(models))
    ends = [
        torch.nn.utils.parameters_to_vector(m.parameters()).detach()
        for m in (models[0], models[-1])
    ]
    own = torch.nn.utils.parameters_to_vector(models[1].parameters()).detach()
    middle = torch.nn.utils.parameters_to_vector(path[1].parameters()).detach()
    left = min(1.0, float((own - ends[1]).norm() / (ends[0] - ends[1]).norm()))
    torch.testing.assert_close(middle, ends[1] + left * (ends[0] - ends[1]))
    for model, found in ((models[0], path[0]), (models[-1], path[-1])):
        for old, new in zip(model.parameters(), found.parameters(), strict=True):
            torch.testing.assert_close(new, old)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    config = TrainConfig(steps=30, batch_size=4, dynamics=True, checkpoint_every=7, threads=1)
    sparse = TrainConfig(steps=2, batch_size=4, checkpoint_every=2, threads=1)
    small = TRANSFORMERS["ggd"]
    return {
        "dynamics": train_tunnel(BIJECTION, small, config, folder / "dynamics", progress=False),
        "sparse": train_tunnel(BIJECTION, small, sparse, folder / "sparse", progress=False),
        "lstm": train_tunnel(BIJECTION, LSTM(width=8), config, folder / "lstm", progress=False),
    }


def test_a_run_is_followed_through_its_checkpoints(runs):
    found = measure_drift(runs["dynamics"], sequences=16)
    # that of step 28 is there only because it was the last but one
    assert {*runs["dynamics"].steps()} == {*checkpoint_steps(30), 28}
    assert found.trained.steps == checkpoint_steps(30)
    for kind, curve in found.trained.curves.items():
        assert len(curve) == len(found.trained.steps) and all(map(math.isfinite, curve))
        assert found.straight.curves[kind][0] == pytest.approx(curve[0], abs=1e-5)
        assert found.straight.curves[kind][-1] == pytest.approx(curve[-1], abs=1e-5)
    assert len(found.trained.layers["attention"][0]) == 2
    assert found.frame_null == 0.75


def test_what_cannot_be_followed(runs):
    with pytest.raises(NotApplicableError, match="train with --dynamics"):
        measure_drift(runs["sparse"])
    with pytest.raises(NotApplicableError, match="lstm has no attention"):
        measure_drift(runs["lstm"])
