"""dynamics-routing and dynamics-values: they pass, and wrong laws do not."""

import dataclasses
from functools import cached_property

import pytest
import torch

from bayesattn.claims.dynamics_laws import (
    EVERYTHING,
    RANDOM,
    TRAINED,
    DynamicsRouting,
    DynamicsValues,
    LawRecipe,
    shuffled,
)
from bayesattn.dynamics.model import LayerDynamics
from bayesattn.dynamics.routing import Routing
from bayesattn.ledger.study import Tier
from tests.claims.outcomes import outcomes

STUDIES = (DynamicsRouting, DynamicsValues)
RECIPE = LawRecipe(lengths=(5, 12), sequences=3)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for study in STUDIES:
        monkeypatch.setattr(study, "recipes", {Tier.QUICK: RECIPE})


def verdicts(study):
    return outcomes(study(), seeds=2)


@pytest.mark.parametrize("study", STUDIES)
def test_the_laws_pass_on_every_head_and_are_drawn(study):
    assert verdicts(study) == {"law": "holds", "step": "holds"}
    found = study().measure(Tier.QUICK, 0)
    assert len(study().draw(Tier.QUICK, {0: found})) == 1
    heads = {name: len(place.law) for name, place in found.places.items()}
    # two lengths, with and without mask and prior; two layers of four heads, or two groups
    groups = 2 if study is DynamicsValues else 4
    assert heads == {RANDOM: 8, EVERYTHING: 2 * groups, **dict.fromkeys(TRAINED, 8)}


def broken(monkeypatch, name, law):
    changed = cached_property(law)
    changed.__set_name__(Routing, name)
    monkeypatch.setattr(Routing, name, changed)


@pytest.mark.parametrize("error", [1e-7, -1.0])
def test_another_row_mean_does_not_pass(monkeypatch, error):
    broken(
        monkeypatch,
        "score_gradient",
        lambda r: r.alpha * (r.compatibility - (1 + error) * r.row_mean[..., None]),
    )
    assert verdicts(DynamicsRouting)["law"] == "fails"


def test_other_responsibilities_do_not_pass(monkeypatch):
    broken(monkeypatch, "weighted_error", lambda r: (r.alpha**1.0001).mT @ r.upstream)
    assert verdicts(DynamicsValues)["law"] == "fails"


def test_groups_that_are_not_added_up_do_not_pass(monkeypatch):
    changed = cached_property(lambda r: r.weighted_error[:, :: r.alpha.shape[1] // r.kv_heads])
    changed.__set_name__(LayerDynamics, "value_gradient")
    monkeypatch.setattr(LayerDynamics, "value_gradient", changed)
    assert verdicts(DynamicsValues) == {"law": "fails", "step": "holds"}
    places = DynamicsValues().measure(Tier.QUICK, 0).places
    assert [name for name, place in places.items() if max(place.law) > 1e-10] == [EVERYTHING]


@pytest.mark.parametrize("share", [1e-4, 1e-2])
@pytest.mark.parametrize("study", STUDIES)
def test_a_loss_that_moves_otherwise_does_not_pass(study, share, monkeypatch):
    honest = study.loss_after

    def loss_after(self, head, step):
        return head.loss + (1 + share) * (honest(self, head, step) - head.loss)

    monkeypatch.setattr(study, "loss_after", loss_after)
    assert verdicts(study) == {"law": "holds", "step": "fails"}


@pytest.mark.parametrize("study", STUDIES)
def test_without_a_control_nothing_is_shown(study, monkeypatch):
    def measure(self, tier, seed):
        found = honest(self, tier, seed)
        place = found.places[TRAINED[0]]
        nothing = {name: [0.0] * len(place.law) for name in place.wrong}
        places = {**found.places, TRAINED[0]: dataclasses.replace(place, wrong=nothing)}
        return dataclasses.replace(found, places=places)

    honest = study.measure
    monkeypatch.setattr(study, "measure", measure)
    assert verdicts(study) == {"law": "undecided", "step": "holds"}


def test_shuffling_stays_within_what_a_query_sees(generator):
    x = torch.arange(1.0, 37.0).view(6, 6)
    visible = torch.ones(6, 6, dtype=torch.bool).tril()
    masked = x.masked_fill(~visible, 0.0)
    mixed = shuffled(masked, visible, generator)
    assert torch.equal(mixed.sort(-1).values, masked.sort(-1).values)
    assert (mixed[~visible] == 0).all()
    assert not torch.equal(mixed, masked)
    free = shuffled(x, None, generator)
    assert torch.equal(free.sort(-1).values, x)
    assert not torch.equal(free, x)


def test_every_seed_draws_its_own_heads():
    first, second = (DynamicsRouting().measure(Tier.QUICK, seed) for seed in range(2))
    assert first != second
    assert DynamicsRouting().measure(Tier.QUICK, 0) == first
    assert dataclasses.asdict(RECIPE)["lengths"] == (5, 12)
