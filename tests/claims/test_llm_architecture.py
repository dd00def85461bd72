"""llm-architecture: a few steps for the plumbing, made-up numbers for the verdict."""

import dataclasses
from types import MappingProxyType

import pytest

from bayesattn.claims import llm_architecture as architecture
from bayesattn.ledger.study import Tier
from bayesattn.probes.measured import Measured
from bayesattn.stats import Outcome
from tests.ledger.toy import run_study

FULL, OTHERS = architecture.FULL, architecture.OTHERS


def test_variants_differ_in_one_thing():
    recipe = architecture.LLMArchitecture.recipes[Tier.QUICK]
    full = recipe.training(FULL, 0)
    changes = {
        "grouped heads": {"num_key_value_heads": 2},
        "one key head": {"num_key_value_heads": 1},
        "sliding window": {"sliding_window": recipe.window},
        "experts": {"num_experts": 4, "intermediate_size": recipe.width},
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
        seeds=2, alphabet=5, window=4, steps=2, width=16, batch_size=4, sequences=32
    )
    study.recipes = MappingProxyType({Tier.QUICK: recipe})
    record = run_study(study, Tier.QUICK, tmp_path / "report")
    assert record.failure is None, record.failure
    assert record.figures and record.verdict.outcome is Outcome.INCONCLUSIVE
    assert record.verdict.reason.startswith("Nothing to judge by")  # two steps teach nothing
    assert len([*(tmp_path / "runs").iterdir()]) == 2 * len((FULL, *OTHERS))


def measured(value, untrained):
    return Measured(value=value, nulls={"untrained": untrained})


def made_up(focusing=0.3, order=0.8, error=0.01):
    """Full heads focus by 0.8 with order 0.8; the last variant as the arguments say."""
    share = measured(0.5, 0.2)
    found = {}
    for seed in range(3):
        wobble = 0.005 * seed
        for name in (FULL, *OTHERS):
            last = name == OTHERS[-1]
            own = 0.8 + wobble if name == FULL else focusing if last else 0.3
            states = architecture.Geometry(
                share=share,
                order=measured(order + wobble if last else 0.8, 0.0),
                participation=share,
            )
            found.setdefault(seed, {})[name] = architecture.ArchitectureFound(
                error=error if last else 0.01 + wobble / 10,
                uniform=1.5,
                values=states,
                outputs=states,
                residual=states,
                entropy=[measured(1.0, 1.0), measured(1 - own, 1.0)],
                mass=[measured(0.5, 0.5)] * 2,
            )
    return found


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.SUPPORTED),
        ({"focusing": 0.78}, Outcome.REFUTED),  # as sharp as with full heads
        ({"focusing": 0.95}, Outcome.REFUTED),
        ({"order": 0.4}, Outcome.REFUTED),
        ({"error": 0.5}, Outcome.INCONCLUSIVE),
    ],
)
def test_geometry_must_stay_and_focusing_must_not(changes, outcome):
    found = architecture.LLMArchitecture().verdict(Tier.QUICK, made_up(**changes))
    assert found.outcome is outcome, found.reason
    assert found.null == pytest.approx((0.005 + 0.005 + 0.01) / 3)
