"""The wind-tunnel studies: tiny trainings for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import tunnel_architectures as architectures
from bayesattn.claims import tunnel_bijection as bijection
from bayesattn.claims import tunnel_hmm as hmm
from bayesattn.claims.tunnels import Errors, Extrapolation
from bayesattn.ledger.study import Tier
from bayesattn.stats import Outcome
from bayesattn.tunnels import Bijection
from tests.ledger.toy import run_study

SMALL = {"seeds": 2, "steps": 2, "layers": 1, "width": 16, "batch_size": 4, "sequences": 16}
STUDIES = {
    bijection.TunnelBijection: {"alphabet": 4, "recall_steps": 2, "sampled": True},
    hmm.TunnelHMM: {"states": 2, "length": 3, "stretch": 2},
    architectures.TunnelMLP: {"alphabet": 4, "states": 2, "length": 3},
    architectures.TunnelPrimitives: {
        "alphabet": 4,
        "states": 2,
        "length": 3,
        "pairs": 2,
        "recall_steps": 2,
        "width": 64,  # small LSTMs come in too few sizes to match
        "layers": 2,
    },
}


def small(kind):
    study = kind()
    recipe = dataclasses.replace(study.recipes[Tier.QUICK], **(SMALL | STUDIES[kind]))
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    return study


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.mark.parametrize("kind", STUDIES)
def test_a_study_trains_measures_judges_and_draws(kind, runs, tmp_path):
    study = small(kind)
    record = run_study(study, Tier.QUICK, tmp_path / "report")
    assert record.failure is None
    assert record.verdict.null is not None
    assert record.figures
    # nothing that two steps of training can do supports a claim about trained models
    assert record.verdict.outcome is not Outcome.SUPPORTED


def test_a_second_measurement_trains_nothing(runs, monkeypatch):
    study = small(bijection.TunnelBijection)
    first = study.measure(Tier.QUICK, 0)
    monkeypatch.setattr("bayesattn.training.loop.train", lambda *_, **__: pytest.fail("trained"))
    assert study.measure(Tier.QUICK, 0) == first


def test_any_difference_in_a_training_gives_it_another_run():
    recipe = small(bijection.TunnelBijection).recipes[Tier.QUICK]
    training = recipe.training(bijection.VARIANTS[0], 0)
    others = [
        dataclasses.replace(training, config=dataclasses.replace(training.config, seed=1)),
        dataclasses.replace(
            training, architecture=dataclasses.replace(training.architecture, width=32)
        ),
        dataclasses.replace(training, tunnel=Bijection(5)),
    ]
    assert len({each.folder for each in (training, *others)}) == 4
    assert recipe.training(bijection.VARIANTS[0], 0).folder == training.folder


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("task", architectures.TunnelPrimitives.tasks)
def test_everyone_has_as_many_parameters(tier, task):
    recipe = architectures.TunnelMLP.recipes[tier]
    tunnel = recipe.tunnel(task)
    sizes = {
        name: architectures.count_parameters(
            architectures.architecture(recipe, name, tunnel), tunnel
        )
        for name in ("transformer", *architectures.OTHERS, *architectures.CONTEXTS)
    }
    for size in sizes.values():
        assert size == pytest.approx(sizes["transformer"], rel=0.02)


def eliminated(error, uniform):
    others = dict.fromkeys(("mae_pos", "kl", "tv", "support", "untrained"), 0.0)
    curves = {name: [0.0] for name in ("entropy_model", "entropy_bayes", "error_by_step")}
    return bijection.Elimination(mae_tok=error, uniform=uniform, recall=None, **others, **curves)


def errors_of(error, uniform):
    others = dict.fromkeys(("kl", "mae_pos", "tv", "mode", "uniform_kl", "constant_entropy"), 0.0)
    return Errors(mae_tok=error, uniform_mae=uniform, by_step=[0.0], **others)


def by_seed(tasks, names, values, result):
    """Results of three seeds, from three values for every "task: name"."""
    return {
        seed: {
            task: {name: result(values[f"{task}: {name}"][seed]) for name in names}
            for task in tasks
        }
        for seed in range(3)
    }


@pytest.mark.parametrize(
    ("never", "again", "outcome"),
    [
        ([0.002, 0.003, 0.002], [0.004, 0.005, 0.004], Outcome.SUPPORTED),
        ([0.002, 0.003, 0.002], [0.4, 0.5, 0.4], Outcome.REFUTED),
        ([0.4, 0.5, 0.4], [0.002, 0.003, 0.002], Outcome.REFUTED),
        ([0.002, 0.003, 0.002], [0.001, 0.03, 0.001], Outcome.INCONCLUSIVE),
    ],
)
def test_bijections_must_be_tracked_with_and_without_returning_keys(never, again, outcome):
    numbers = {
        seed: {
            "keys never return": eliminated(never[seed], 1.1),
            "keys return": eliminated(again[seed], 1.8),
        }
        for seed in range(3)
    }
    found = bijection.TunnelBijection().verdict(Tier.QUICK, numbers)
    assert found.outcome is outcome
    assert found.measured == pytest.approx(max(sum(never), sum(again)) / 3)
    assert found.null == (1.8 if sum(again) > sum(never) else 1.1)


@pytest.mark.parametrize(
    ("inside", "beyond", "outcome", "unit"),
    [
        ([0.01, 0.011, 0.012], [0.012, 0.013, 0.012], Outcome.SUPPORTED, "times"),
        ([0.01, 0.011, 0.012], [0.1, 0.12, 0.11], Outcome.REFUTED, "times"),
        ([0.2, 0.21, 0.2], [0.2, 0.21, 0.2], Outcome.REFUTED, "bits inside"),
    ],
)
def test_a_filter_must_hold_inside_and_beyond(inside, beyond, outcome, unit):
    numbers = {
        seed: {
            variant: Extrapolation(
                inside=errors_of(inside[seed], 0.42), beyond=errors_of(beyond[seed], 0.42)
            )
            for variant in hmm.VARIANTS
        }
        for seed in range(3)
    }
    found = hmm.TunnelHMM().verdict(Tier.QUICK, numbers)
    assert found.outcome is outcome
    assert unit in found.unit


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ({}, Outcome.SUPPORTED),
        ({"accumulation: mlp mean": [0.01, 0.02, 0.01]}, Outcome.REFUTED),
    ],
)
def test_one_mlp_that_succeeds_refutes_that_mlps_fail(errors, outcome):
    numbers = {}
    for task in architectures.TunnelMLP.tasks:
        numbers[f"{task}: transformer"] = [0.01, 0.01, 0.01]
        for name in (architectures.BLIND, *architectures.CONTEXTS):
            numbers[f"{task}: {name}"] = [0.9, 1.0, 0.95]
    found = architectures.TunnelMLP().verdict(
        Tier.QUICK,
        by_seed(
            architectures.TunnelMLP.tasks,
            architectures.TunnelMLP.names,
            numbers | errors,
            lambda error: architectures.Failure(error=error, kl=0.0, uniform_error=1.0),
        ),
    )
    assert found.outcome is outcome
    assert "within 0.1 bits" in found.reason


@pytest.mark.parametrize(
    ("changes", "outcome", "whose"),
    [
        ({}, Outcome.SUPPORTED, "transformer"),
        ({"binding: transformer": [0.2, 0.3, 0.25]}, Outcome.REFUTED, "transformer"),
        ({"binding: lstm": [0.96, 0.97, 0.96]}, Outcome.REFUTED, "lstm"),
    ],
)
def test_only_the_transformer_must_have_all_primitives(changes, outcome, whose):
    numbers = {}
    for task in architectures.TunnelPrimitives.tasks:
        numbers[f"{task}: transformer"] = [0.97, 0.98, 0.97]
        for name in architectures.OTHERS:
            weak = task == "binding"
            numbers[f"{task}: {name}"] = [0.2, 0.21, 0.2] if weak else [0.97, 0.98, 0.97]
    found = architectures.TunnelPrimitives().verdict(
        Tier.QUICK,
        by_seed(
            architectures.TunnelPrimitives.tasks,
            architectures.TunnelPrimitives.names,
            numbers | changes,
            lambda share: architectures.Primitive(share=share, error=0.0, accuracy=0.0),
        ),
    )
    assert found.outcome is outcome
    assert found.unit == f"share of the weakest primitive of {whose}"
