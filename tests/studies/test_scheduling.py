"""Which jobs there are, in which order they are done, and what fits into a given time."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bayesattn.studies import Tier
from bayesattn.studies.costs import Costs
from bayesattn.studies.engines import Ended
from bayesattn.studies.jobs import MeasurementJob, TrainingJob, measurements
from bayesattn.studies.registry import all_studies
from bayesattn.studies.runner import run_studies
from bayesattn.studies.scheduling import affordable, plan, remaining, run_jobs, to_do
from bayesattn.studies.study import Recipe
from tests.studies.toy import toy
from tests.studies.work import Errand


@dataclass(frozen=True)
class Model:
    """Stands for a training."""

    folder: Path
    kind: str = "model"

    def train(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "finished.json").write_text('{"seconds": 3}')


def trained(name, *models):
    """A toy that looks at models."""
    return toy(name, trainings=lambda self, tier, seed: {m.folder.name: m for m in models})


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
    jobs = plan(studies, Tier.QUICK, [range(2)] * 3, tmp_path)
    left = to_do(jobs)
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
    assert len([*run_jobs(left, engine, Costs())]) == 8
    order = engine.order
    assert max(order.index("shared"), order.index("own")) < order.index("two-quick-0")
    assert order.index("shared") < order.index("one-quick-0")


def test_what_is_done_is_not_done_again(tmp_path):
    model = Model(tmp_path / "runs" / "model")
    study = trained("one", model)
    jobs = plan([study], Tier.QUICK, [range(2)], tmp_path)
    for job in jobs["one"]:
        assert not job.done() and job.took() is None
        job.run()
        assert job.done() and job.took() is not None
    assert to_do(jobs) == {}
    (tmp_path / "measured" / "one-quick-1.json").unlink()
    assert list(to_do(jobs)) == ["one-quick-1"]


def test_a_model_nobody_will_look_at_is_not_trained(tmp_path):
    study = trained("one", Model(tmp_path / "runs" / "model"))
    jobs = plan([study], Tier.QUICK, [range(1)], tmp_path)
    measurement = jobs["one"][1]
    assert isinstance(measurement, MeasurementJob) and isinstance(jobs["one"][0], TrainingJob)
    measurement.run()
    assert to_do(jobs) == {}


def test_long_trainings_begin_first_and_measurements_as_soon_as_they_can(tmp_path):
    costs = Costs()
    costs.here = {"short": 1.0, "long": 9.0, "measure": 5.0}
    jobs = {
        "a": TrainingJob(Model(tmp_path / "a", "short")),
        "b": TrainingJob(Model(tmp_path / "b", "long")),
        "c": TrainingJob(Model(tmp_path / "c", "short")),
        "m": Errand(tmp_path, "m", needs=frozenset({"b"}), kind="measure"),
    }
    engine = Recorder()
    list(run_jobs(jobs, engine, costs))
    assert engine.order == ["b", "m", "a", "c"]


def test_a_budget_takes_as_many_studies_as_fit_and_counts_shared_models_once(tmp_path):
    shared = Model(tmp_path / "shared", "shared")
    studies = [trained("big", Model(tmp_path / "big", "big")), trained("one", shared)]
    studies += [trained("two", shared), toy("free")]
    jobs = plan(studies, Tier.QUICK, [range(1)] * 4, tmp_path)
    costs = Costs()
    costs.here = {"shared": 60.0, "big": 300.0, **{f"{n}-quick": 1.0 for n in jobs}}
    assert affordable(jobs, 0.5, 1, costs) == []
    assert affordable(jobs, 5, 1, costs) == ["free"]
    assert affordable(jobs, 62, 1, costs) == ["one", "free"]
    assert affordable(jobs, 63, 1, costs) == ["one", "two", "free"]
    assert affordable(jobs, 32, 2, costs) == ["one", "two", "free"]
    assert affordable(jobs, 364, 1, costs) == ["big", "one", "two", "free"]


def test_time_left_is_shared_between_slots_but_no_job_is_split():
    costs = Costs()
    costs.here = {"long": 10.0, "short": 2.0}
    jobs = {str(n): Errand(Path(), str(n), kind="short") for n in range(4)}
    assert remaining(jobs, 1, costs) == 8
    assert remaining(jobs, 2, costs) == 4
    assert remaining({**jobs, "x": Errand(Path(), "x", kind="long")}, 4, costs) == 10
    assert remaining({}, 4, costs) == 0


def test_experience_is_kept_and_the_pace_of_this_machine_applies_to_what_was_recorded(
    tmp_path, monkeypatch
):
    recorded = tmp_path / "recorded.json"
    recorded.write_text('{"known": 10, "other": 40, "third": 30}')
    monkeypatch.setattr("bayesattn.studies.costs.RECORDED", recorded)
    costs = Costs(tmp_path / "here")
    known, other, new = (
        Errand(tmp_path, kind, 20.0, kind=kind) for kind in ("known", "other", "new")
    )
    assert [costs.expected(job) for job in (known, other, new)] == [10, 40, 30]
    (tmp_path / "known.ended").write_text("0")
    costs.note(known)
    assert costs.pace == 2
    assert [costs.expected(job) for job in (known, other, new)] == [20, 80, 60]
    strange = Errand(tmp_path, "strange", 700.0, kind="strange")
    (tmp_path / "strange.ended").write_text("0")
    costs.note(strange)
    assert [costs.expected(job) for job in (known, other, new)] == [20, 80, 700]
    again = Costs(tmp_path / "here")
    assert again.expected(known) == 20 and again.expected(other) == 40
    (tmp_path / "here" / "seconds.json").write_text("{nothing")
    assert Costs(tmp_path / "here").expected(known) == 10


def test_an_unknown_job_is_like_the_middle_one_of_its_sort(tmp_path, monkeypatch):
    recorded = tmp_path / "recorded.json"
    recorded.write_text('{"language-a": 200, "language-b": 300, "bam-quick": 2, "llm-quick": 4}')
    monkeypatch.setattr("bayesattn.studies.costs.RECORDED", recorded)
    costs = Costs()
    training, measurement, other = (
        Errand(tmp_path, kind, kind=kind) for kind in ("language-c", "bam-full", "tunnel-quick")
    )
    assert costs.expected(training) == 250 and costs.expected(other) == 102
    for name, seconds in {"bam-full-x": 50.0, "bam-full-y": 60.0}.items():
        done = Errand(tmp_path, name, seconds, kind=name)
        (tmp_path / f"{name}.ended").write_text("0")
        costs.note(done)
    assert [costs.expected(job) for job in (training, measurement, other)] == [250, 55, 55]
    recorded.unlink()
    assert Costs().expected(training) == 60


@dataclass(frozen=True, kw_only=True)
class Longer(Recipe):
    steps: int = 7


@pytest.mark.parametrize("change", ["recipe", "sources", "torn", "gone"])
def test_measured_numbers_count_only_while_recipe_and_code_are_the_same(
    tmp_path, monkeypatch, change
):
    job = MeasurementJob(toy("one"), Tier.QUICK, 0, tmp_path)
    job.run()
    assert job.measured()["numbers"] == {"effect": 10.0, "many": [1.0, 2.0]}
    more = toy("one", recipes={Tier.QUICK: toy().recipes[Tier.FULL]})
    assert MeasurementJob(more, Tier.QUICK, 0, tmp_path).done()  # it has other seeds only
    if change == "recipe":
        other = toy("one", recipes={Tier.QUICK: Longer(seeds=3)})
        job = MeasurementJob(other, Tier.QUICK, 0, tmp_path)
    elif change == "sources":
        monkeypatch.setattr("bayesattn.studies.jobs.digest", lambda file: "other")
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
        return {f"{part}: effect": 1.0} | ({"effect": 5.0 + seed} if part == "Right" else {})

    return toy(
        "split",
        trainings=lambda self, tier, seed: models,
        parts=lambda self, tier: tuple(models),
        measure_part=measure_part,
    )


def test_parts_of_a_seed_wait_for_their_own_model_and_are_measured_once(tmp_path):
    measured = []
    study = split(tmp_path, measured)
    jobs = plan([study], Tier.QUICK, [range(2)], tmp_path)
    own = [job for job in jobs["split"] if isinstance(job, MeasurementJob)]
    assert [job.name for job in own] == [
        "split-quick-left-slow-0",
        "split-quick-right-0",
        "split-quick-left-slow-1",
        "split-quick-right-1",
    ]
    assert own[0].needs == {"Left, slow"} and own[3].needs == {"Right"}
    own[1].run()
    assert [*to_do(jobs)] == ["Left, slow", "Right", *(own[i].name for i in (0, 2, 3))]
    (found,) = run_studies([study], Tier.QUICK, tmp_path, 2)
    assert measured == [(0, "Right"), (0, "Left, slow"), (1, "Left, slow"), (1, "Right")]
    assert found.seeds == (0, 1) and found.command.endswith("--seeds 2")
    assert found.numbers == {
        seed: {"Left, slow: effect": 1.0, "Right: effect": 1.0, "effect": 5.0 + seed}
        for seed in (0, 1)
    }


def test_no_two_parts_of_a_study_have_the_same_name():
    for study in all_studies():
        for tier, recipe in study.recipes.items():
            names = [job.name for job in measurements(study, tier, range(recipe.seeds), Path())]
            assert len(set(names)) == len(names)
            assert set(study.parts(tier)) <= set(study.trainings(tier, 0))
