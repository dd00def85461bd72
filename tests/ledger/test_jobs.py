"""Which jobs there are, and in which order they are done."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bayesattn.claims import Tier, Value
from bayesattn.claims.registry import all_studies
from bayesattn.ledger.engines import Ended, run_jobs
from bayesattn.ledger.jobs import MeasurementJob, TrainingJob, measurements, to_do
from bayesattn.ledger.measured import seed_numbers, seeds_in
from bayesattn.ledger.runner import run_claims
from bayesattn.ledger.study import PartedStudy, Recipe
from bayesattn.ledger.trained import Demand
from tests.ledger.toy import toy
from tests.ledger.work import Errand


@dataclass(frozen=True)
class Model:
    """Stands for a training."""

    folder: Path

    def demand(self):
        return Demand(1.0, 1)

    def train(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "finished.json").write_text('{"seconds": 3}')


def trained(name, *models):
    """A toy that looks at models."""
    return toy(name, trainings=lambda self, tier, seed: {m.folder.name: m for m in models})


def plan(studies, tier, folder, seeds):
    return [job for own in studies for job in measurements(own, tier, range(seeds), folder)]


class Recorder:
    """An engine that does nothing and remembers the order."""

    def __init__(self, slots=1):
        self.slots, self.order, self.busy = slots, [], []

    def start(self, job):
        assert len(self.busy) < self.slots
        self.order.append(job.name)
        self.busy.append(job)

    def wait(self, seconds):
        return [Ended(self.busy.pop(0), None)] if self.busy else []

    def close(self):
        pass


def test_a_shared_training_is_done_once_and_before_what_needs_it(tmp_path):
    shared, own = Model(tmp_path / "runs" / "shared"), Model(tmp_path / "runs" / "own")
    studies = [trained("one", shared), trained("two", shared, own), toy("three")]
    left = to_do(plan(studies, Tier.QUICK, tmp_path, 2))
    assert sorted(left) == [
        "one-quick-0",
        "one-quick-1",
        "own",
        "shared",
        "three-quick-0",
        "three-quick-1",
        "two-quick-0",
        "two-quick-1",
    ]
    engine = Recorder()
    assert len([*run_jobs(left, engine)]) == 8
    order = engine.order
    assert max(order.index("shared"), order.index("own")) < order.index("two-quick-0")
    assert order.index("shared") < order.index("one-quick-0")


def test_what_is_done_is_not_done_again(tmp_path):
    model = Model(tmp_path / "runs" / "model")
    study = trained("one", model)
    planned = plan([study], Tier.QUICK, tmp_path, 2)
    for job in to_do(planned).values():
        assert not job.done()
        job.run()
        assert job.done()
    assert to_do(planned) == {}
    (tmp_path / "measured" / "one-quick-1.json").unlink()
    assert list(to_do(planned)) == ["one-quick-1"]


def test_a_model_nobody_will_look_at_is_not_trained(tmp_path):
    study = trained("one", Model(tmp_path / "runs" / "model"))
    planned = plan([study], Tier.QUICK, tmp_path, 1)
    assert len(to_do(planned)) == 2
    planned[0].run()
    assert to_do(planned) == {}


def test_jobs_may_be_added_while_others_go_on(tmp_path):
    jobs = {"a": Errand(tmp_path, "a")}
    engine = Recorder()
    for ended in run_jobs(jobs, engine):
        if ended.job.name == "a":
            jobs["b"] = Errand(tmp_path, "b", needs=frozenset({"c"}))
            jobs["c"] = Errand(tmp_path, "c")
    assert engine.order == ["a", "c", "b"]


def test_the_next_job_is_the_first_whose_needs_are_met(tmp_path):
    jobs = {
        "a": TrainingJob(Model(tmp_path / "a")),
        "m": Errand(tmp_path, "m", needs=frozenset({"b"})),
        "b": TrainingJob(Model(tmp_path / "b")),
        "c": TrainingJob(Model(tmp_path / "c")),
    }
    engine = Recorder()
    list(run_jobs(jobs, engine))
    assert engine.order == ["a", "b", "m", "c"]


class Longer(Recipe):
    steps: int = 7


@pytest.mark.parametrize("change", ["recipe", "version", "torn", "gone", "first edition"])
def test_measured_numbers_count_only_while_recipe_and_versions_are_the_same(
    tmp_path, monkeypatch, change
):
    job = MeasurementJob(toy("one"), Tier.QUICK, 0, tmp_path)
    job.run()
    assert job.measured().numbers == {"effect": 10.0, "many": [1.0, 2.0]}
    more = toy("one", recipes={Tier.QUICK: Recipe(seeds=9)})
    assert MeasurementJob(more, Tier.QUICK, 0, tmp_path).done()  # it has other seeds only
    if change == "recipe":
        other = toy("one", recipes={Tier.QUICK: Longer(seeds=3)})
        job = MeasurementJob(other, Tier.QUICK, 0, tmp_path)
    elif change == "version":
        monkeypatch.setattr("bayesattn.ledger.measured.__version__", "99")
    elif change == "first edition":
        origin = {"claim": "one", "config": "0123", "torch": "2"}
        job.file.write_text(json.dumps({"origin": origin, "seconds": 1, "numbers": {"effect": 1}}))
    elif change == "torn":
        job.file.write_text(job.file.read_text()[:40])
    else:
        job.file.unlink()
    assert not job.done()
    job.run()
    assert job.done()


def split(tmp_path, measured):
    """A toy whose seeds are measured in two parts, each from a model of its own."""
    models = {name: Model(tmp_path / "runs" / name) for name in ("Left, slow", "Right")}

    def measure_part(self, tier, seed, part):
        measured.append((seed, part))
        return 5.0 + seed if part == "Right" else 1.0

    def values(self, tier, one):
        return {"effect": Value(one["Right"])}

    return toy(
        "split",
        PartedStudy,
        values=values,
        draw=lambda self, tier, found: [],
        measure=PartedStudy.measure,
        trainings=lambda self, tier, seed: models,
        parts=lambda self, tier: tuple(models),
        measure_part=measure_part,
    )


def test_parts_of_a_seed_wait_for_their_own_model_and_are_measured_once(tmp_path):
    measured = []
    study = split(tmp_path, measured)
    planned = plan([study], Tier.QUICK, tmp_path, 2)
    own = planned
    assert [job.name for job in own] == [
        "split-quick-left-slow-0",
        "split-quick-right-0",
        "split-quick-left-slow-1",
        "split-quick-right-1",
    ]
    assert own[0].needs == {"Left, slow"} and own[3].needs == {"Right"}
    own[1].run()
    assert [*to_do(planned)] == ["Left, slow", "Right", *(own[i].name for i in (0, 2, 3))]
    (found,) = run_claims([study], Tier.QUICK, tmp_path, 2)
    assert sorted(measured) == sorted((s, p) for s in (0, 1) for p in ("Left, slow", "Right"))
    assert found.seeds == (0, 1)
    there = seeds_in(study, Tier.QUICK, tmp_path, found.seeds)
    numbers = {seed: seed_numbers(own) for seed, own in there.items()}
    assert numbers == {seed: {"Left, slow": 1.0, "Right": 5.0 + seed} for seed in (0, 1)}


def test_no_two_parts_of_a_study_have_the_same_name():
    for study in all_studies():
        for tier in study.recipes:
            names = [job.name for job in plan([study], tier, Path(), 2)]
            assert len(set(names)) == len(names)


def test_every_training_of_a_study_is_done_for_a_part_that_needs_it():
    for study in all_studies():
        for tier in study.recipes:
            planned = {need for job in plan([study], tier, Path(), 1) for need in job.needs}
            every = study.trainings(tier, 0).values()
            assert planned == {training.folder.name for training in every}
