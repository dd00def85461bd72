import pytest

from bayesattn.claims import Tier, bam_size
from bayesattn.claims.bam_size import BamSize, SizeRecipe, trained
from tests.claims.outcomes import outcomes


def verdicts(monkeypatch, **sabotage):
    monkeypatch.setattr(BamSize, "recipes", {Tier.QUICK: SizeRecipe(models=("l6", "l12"))})
    if sabotage:
        honest = trained
        monkeypatch.setattr(
            bam_size, "trained", lambda model, **settings: honest(model, **(settings | sabotage))
        )
    return outcomes(BamSize(), seeds=1)


def test_our_models_pass(monkeypatch):
    assert verdicts(monkeypatch) == {"prior": "holds", "ssmax": "holds"}


def test_a_shared_prior_does_not_pass(monkeypatch):
    assert verdicts(monkeypatch, shared_prior=True)["prior"] == "fails"


def test_a_frozen_ssmax_does_not_pass(monkeypatch):
    assert verdicts(monkeypatch, ssmax_learned=False) == {"prior": "holds", "ssmax": "fails"}


def test_a_count_that_cannot_see_the_location_decides_nothing(monkeypatch):
    found = verdicts(monkeypatch, prior_options={})
    assert found == {"prior": "undecided", "ssmax": "undecided"}


@pytest.mark.parametrize("model", ["l6", "l24"])
def test_counting_allocates_nothing(model):
    assert trained(model, prior="ggd", ssmax=False) > 4e7
