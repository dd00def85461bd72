"""llm-architecture: a few steps for the plumbing, made-up numbers for the verdict."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import llm_architecture as architecture
from bayesattn.ledger.study import Tier
from bayesattn.probes.measured import Measured
from bayesattn.verdicts import Outcome
from tests.ledger.toy import run_study

FULL, OTHERS = architecture.FULL, architecture.OTHERS


def test_variants_differ_in_one_thing():
    recipe = architecture.LLMArchitecture.recipes[Tier.QUICK]
    full = recipe.training(FULL, 0)
    changes = {
        "grouped heads": {"num_key_value_heads": 2},
        "sliding window": {"sliding_window": recipe.window},
    }
    assert set(changes) == set(OTHERS)
    for variant, change in changes.items():
        other = recipe.training(variant, 0)
        assert other.architecture == dataclasses.replace(full.architecture, **change)
        assert (other.tunnel, other.config) == (full.tunnel, full.config)
        assert other.folder != full.folder
    assert recipe.window < full.tunnel.positions


def test_the_study_trains_measures_judges_and_draws(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    study = architecture.LLMArchitecture()
    recipe = architecture.ArchitectureRecipe(
        seeds=2, alphabet=5, layers=2, window=4, steps=2, width=16, batch_size=4, sequences=32
    )
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    record = run_study(study, Tier.QUICK, tmp_path / "report")
    assert record.failure is None, record.failure
    assert record.figures
    assert len([*(tmp_path / "runs").iterdir()]) == 2 * len((FULL, *OTHERS))


def measured(value, untrained):
    return Measured(value=value, nulls={"untrained": untrained})


def made_up(focusing=0.3, order=0.8, error=0.01):
    """Full heads focus by 0.8 with order 0.8; the others as the arguments say."""
    share = measured(0.5, 0.2)
    found = {}
    for seed in range(4):
        wobble = 0.005 * seed
        for name in (FULL, *OTHERS):
            full = name == FULL
            own = 0.8 + wobble if full else focusing
            states = architecture.Geometry(
                share=share,
                order=measured(0.8 if full else order + wobble, 0.0),
                participation=share,
            )
            found.setdefault(seed, {})[name] = architecture.ArchitectureFound(
                error=0.01 if full else error,
                uniform=1.5,
                values=states,
                outputs=states,
                residual=states,
                entropy=[measured(1.0, 1.0), measured(1 - own, 1.0)],
                mass=[measured(0.5, 0.5)] * 2,
            )
    return found


YES, NO, UNDECIDED = Outcome.YES, Outcome.NO, Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("changes", "order", "focusing"),
    [
        ({}, YES, YES),
        ({"focusing": 0.78}, YES, NO),  # as sharp as with full heads
        ({"focusing": 0.95}, YES, NO),
        ({"order": 0.4}, NO, YES),
        ({"error": 0.5}, UNDECIDED, UNDECIDED),
    ],
)
def test_each_contrast_is_judged_by_itself(changes, order, focusing):
    study = architecture.LLMArchitecture()
    said = study.said(Tier.QUICK, made_up(**changes))
    found = {own.name: own.judge([*said[own.name].values()]) for own in study.claim.statements}
    assert {name: one.outcome for name, one in found.items()} == {
        "grouped-order": order,
        "grouped-focusing": focusing,
        "window-focusing": focusing,
    }
