"""The wind-tunnel studies: tiny trainings for the plumbing, made-up numbers for the verdicts."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import tunnel_architectures as architectures
from bayesattn.claims import tunnel_bijection as bijection
from bayesattn.claims import tunnel_hmm as hmm
from bayesattn.claims.tunnels import Errors, Extrapolation
from bayesattn.ledger.study import Tier
from bayesattn.tunnels import Bijection
from tests.ledger.toy import run_study

SMALL = {"seeds": 2, "steps": 2, "layers": 1, "width": 16, "batch_size": 4, "sequences": 16}
STUDIES = {
    bijection.TunnelBijection: {"alphabet": 4, "recall_steps": 2},
    hmm.TunnelHMM: {
        "states": 2,
        "length": 3,
        "steep": hmm.SteepRecipe(states=2, length=3, layers=1, width=16, steps=2),
    },
    architectures.TunnelMLP: {
        "seeds": 1,
        "alphabet": 4,
        "states": 2,
        "length": 3,
        "recall_steps": 2,
    },
    architectures.TunnelPrimitives: {
        "seeds": 1,
        "alphabet": 4,
        "states": 2,
        "length": 3,
        "pairs": 2,
        "many": 3,
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
    assert {*record.rows} == {own.name for own in study.claim.statements}
    assert record.figures


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


@pytest.mark.parametrize("tier", architectures.TunnelMLP.recipes)
@pytest.mark.parametrize("task", [*architectures.TunnelPrimitives.tasks, "lookup"])
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


def eliminated(error):
    others = dict.fromkeys(("mae_pos", "kl", "tv", "support", "untrained"), 0.0)
    curves = {name: [0.0] for name in ("entropy_model", "entropy_bayes", "error_by_step")}
    return bijection.Elimination(mae_tok=error, uniform=1.1, recall=None, **others, **curves)


def extrapolated(inside, beyond, near=None):
    def errors(error, steps):
        others = dict.fromkeys(("kl", "mae_pos", "tv", "mode", "uniform_kl", "uniform_mae"), 0.0)
        return Errors(mae_tok=error, constant_entropy=0.19, by_step=steps, **others)

    steps = [beyond if near is None else near] * 5 + [beyond] * 10
    return Extrapolation(inside=errors(inside, [inside] * 10), beyond=errors(beyond, steps))


def words(study, results):
    """The verdict on every statement, from the results of seeds."""
    said = study.said(Tier.QUICK, dict(enumerate(results)))
    found = {own.name: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    return {own.name: own.word(found[own.name].outcome) for own in study.claim.statements}


NOISE = (0.9, 1.1, 1.0, 1.05)


def test_each_kind_of_keys_and_labels_is_judged_by_itself():
    study = bijection.TunnelBijection()

    def seeds(never, again, sampled):
        return [
            {
                "keys never return": eliminated(never * noise),
                "keys return": eliminated(again * noise),
                "sampled values": eliminated(sampled * noise),
            }
            for noise in NOISE
        ]

    assert words(study, seeds(0.002, 0.4, 0.05)) == {
        "never-returning": "replicates",
        "returning": "does not replicate",
        "sampled-labels": "undecided",
    }
    other = words(study, seeds(0.4, 0.002, 0.01))
    assert [*other.values()] == ["does not replicate", "replicates", "survives"]
    assert set(words(study, seeds(0.002, 0.002, 0.002)[:3]).values()) == {"undecided"}


def filters(positions, prior, steep):
    return [
        {
            name: extrapolated(*(error * noise for error in own))
            for name, own in zip(hmm.VARIANTS, (positions, prior, steep), strict=True)
        }
        for noise in NOISE
    ]


def test_a_filter_is_judged_inside_near_and_far_beyond():
    study = hmm.TunnelHMM()
    steady = filters((0.01, 0.3, 0.02), (0.01, 0.02), (0.01, 0.009))
    found = {seed: {**one} for seed, one in enumerate(steady)}
    for (
        seed,
        one,
    ) in found.items():  # ratios that vary, which noise alone on both sides leaves equal
        own = one["steep slopes"]
        beyond = dataclasses.replace(own.beyond, mae_tok=own.beyond.mae_tok * NOISE[seed])
        found[seed]["steep slopes"] = dataclasses.replace(own, beyond=beyond)
    assert words(study, [*found.values()]) == {
        "inside": "replicates",
        "half-beyond": "replicates",
        "far-beyond": "does not replicate",
        "learned-prior": "supported",
        "ten-times": "supported",
    }


def test_a_filter_that_was_not_learnt_says_nothing_of_what_lies_beyond():
    found = words(hmm.TunnelHMM(), filters((0.3, 0.01, 0.01), (0.3, 0.01), (0.3, 0.01)))
    assert found.pop("inside") == "does not replicate"
    assert set(found.values()) == {"undecided"}


def failures(**changes):
    """Four seeds in which only the transformer succeeds, but for `changes` of a task's KL."""
    study = architectures.TunnelMLP

    def failure(task, name, noise):
        kl = 0.01 if name == "transformer" else 0.9
        kl = changes.get(f"{task}: {name}", kl) * noise
        return architectures.Failure(error=kl, kl=kl, uniform_error=1.0, uniform_kl=1.0)

    return [
        {
            task: {
                name: failure(task, name, noise if name == "transformer" else 1.0)
                for name in study.names
            }
            for task in study.tasks
        }
        for noise in NOISE
    ]


def test_an_mlp_without_context_and_those_with_it_are_judged_apart():
    study = architectures.TunnelMLP()
    assert set(words(study, failures()).values()) == {"replicates", "survives"}
    found = words(study, failures(**{"accumulation: mlp mean": 0.005}))
    assert found.pop("accumulation-in-context") == "does not survive"
    assert set(found.values()) == {"replicates", "survives"}


def test_where_the_transformer_did_not_learn_nothing_is_judged():
    found = words(architectures.TunnelMLP(), failures(**{"lookup: transformer": 0.5}))
    assert found == {
        "bijection": "undecided",
        "filter": "replicates",
        "accumulation-in-context": "survives",
        "binding-in-context": "undecided",
        "transport-in-context": "survives",
    }


def primitives(**changes):
    """Four seeds as the authors report them, but for `changes` of a share and of an error."""
    study = architectures.TunnelPrimitives

    def made(task, name, noise):
        share, error = (0.2, 0.4) if name in ("lstm", architectures.BLIND) else (0.98, 0.03)
        share, error = changes.get(f"{task}: {name}", (share, error))
        return architectures.Primitive(share=share - noise / 100, error=error * noise, accuracy=0.0)

    return [
        {task: {name: made(task, name, noise) for name in study.names} for task in study.tasks}
        for noise in NOISE
    ]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"binding: transformer": (0.3, 0.3)}, "transformer-binds"),
        ({"transport: mamba": (0.1, 0.4)}, "mamba-transports"),
        ({"transport: lstm": (0.98, 0.03)}, "lstm-does-not-transport"),
    ],
)
def test_each_primitive_is_judged_by_itself(change, name):
    study = architectures.TunnelPrimitives()
    assert {*words(study, primitives()).values()} <= {"replicates", "supported", "undecided"}
    found = words(study, primitives(**change))
    assert found[name] == "does not replicate"


def test_many_pairs_are_judged_where_the_transformer_binds_them():
    study = architectures.TunnelPrimitives()
    task = architectures.MANY
    seeds = primitives()
    for at, one in enumerate(seeds):
        one[task]["lstm"] = dataclasses.replace(one[task]["lstm"], share=0.2 + 0.01 * at)
    assert words(study, seeds)["lstm-binds-fewer"] == "supported"
    for one in seeds:
        one[task]["transformer"] = dataclasses.replace(one[task]["transformer"], share=0.5)
    assert words(study, seeds)["lstm-binds-fewer"] == "undecided"
