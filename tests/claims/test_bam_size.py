import pytest

from bayesattn.claims import Tier, bam_size
from bayesattn.claims.bam_size import BamSize, SizeRecipe, trained
from bayesattn.stats import Outcome


def verdict(monkeypatch, **sabotage):
    monkeypatch.setattr(BamSize, "recipes", {Tier.QUICK: SizeRecipe(seeds=1, models=("l6", "l12"))})
    if sabotage:
        honest = trained
        monkeypatch.setattr(
            bam_size, "trained", lambda model, **settings: honest(model, **(settings | sabotage))
        )
    study = BamSize()
    return study.verdict(Tier.QUICK, {0: study.measure(Tier.QUICK, 0)})


def test_our_models_pass(monkeypatch):
    found = verdict(monkeypatch)
    assert found.outcome is Outcome.SUPPORTED
    assert found.measured == 2 * 16 * 12
    assert found.null == 3 * 16 * 12


def test_a_shared_prior_does_not_pass(monkeypatch):
    assert verdict(monkeypatch, shared_prior=True).outcome is Outcome.REFUTED


def test_a_frozen_ssmax_does_not_pass(monkeypatch):
    found = verdict(monkeypatch, ssmax_learned=False)
    assert found.outcome is Outcome.REFUTED
    assert found.reason.startswith("SSMax: ")


def test_a_count_that_cannot_see_the_location_is_inconclusive(monkeypatch):
    found = verdict(monkeypatch, prior_options={})
    assert found.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("model", ["l6", "l24"])
def test_counting_allocates_nothing(model):
    assert trained(model, prior="ggd", ssmax=False) > 4e7
