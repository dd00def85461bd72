"""Trainings that a machine cannot do are refused before they begin."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bayesattn.claims import Tier
from bayesattn.claims.registry import find_study
from bayesattn.errors import UserError
from bayesattn.ledger.demand import demand, require_possible
from bayesattn.ledger.jobs import TrainingJob


def trainings(name, tier):
    return list(find_study(name).trainings(tier, 0).values())


def test_quick_tiers_are_possible_and_cost_what_they_should():
    found = trainings("bam-retrieval", Tier.QUICK)
    one = demand(found[0])
    longer = replace(found[0], config=replace(found[0].config, steps=2 * found[0].config.steps))
    assert demand(longer).operations == 2 * one.operations
    assert demand(longer).bytes == one.bytes
    every = [*found, *trainings("tunnel-mlp", Tier.QUICK)]
    assert all(demand(training).operations > 0 for training in every)
    require_possible([TrainingJob(training) for training in every], 2)


@pytest.mark.parametrize(
    ("free", "tier", "sentence"),
    [
        (2**40, Tier.PAPER, r"These \d+ trainings would take about [\d,]+ days here"),
        (2**20, Tier.QUICK, r"needs about \d+ GiB and 0 GiB are free"),
    ],
)
def test_what_takes_days_or_does_not_fit_is_refused(monkeypatch, free, tier, sentence):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))
    jobs = [TrainingJob(training) for training in trainings("bam-retrieval", tier)]
    with pytest.raises(UserError, match=sentence):
        require_possible(jobs, 2)


def test_what_is_no_training_asks_for_nothing():
    require_possible([], 2)
    assert demand("anything").operations == 0
