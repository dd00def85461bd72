import pytest
import torch

from bayesattn import attend
from bayesattn.claims import Tier, bam_uniform
from bayesattn.claims.bam_uniform import BamUniform, theorem
from bayesattn.claims.identity import IdentityRecipe
from bayesattn.priors import Laplace
from bayesattn.stats import Outcome

RECIPE = IdentityRecipe(seeds=1, lengths=(15, 64), head_counts=(1, 3))


def verdict(monkeypatch, sabotage=None):
    if sabotage:
        monkeypatch.setattr(bam_uniform, "attend", sabotage)
    monkeypatch.setattr(BamUniform, "recipes", {Tier.QUICK: RECIPE})
    study = BamUniform()
    return study.judge(Tier.QUICK, {0: study.measure(Tier.QUICK, 0)})


def test_our_attention_passes(monkeypatch):
    assert verdict(monkeypatch).outcome is Outcome.SUPPORTED


def almost_uniform(q, k, v, prior, **options):
    if "decompose" in options:
        return attend(q, k, v, prior, **options)
    nudge = Laplace(q.shape[1], slopes=[1e-4] * q.shape[1]).to(q.dtype)
    return attend(q, k, v, prior.table(q.shape[2]) + nudge.table(q.shape[2]), **options)


def test_a_prior_that_is_nearly_uniform_does_not_pass(monkeypatch):
    found = verdict(monkeypatch, almost_uniform)
    assert found.outcome is Outcome.REFUTED
    assert found.reason.startswith("uniform prior, float32")


def test_attention_deaf_to_its_prior_cannot_show_anything(monkeypatch):
    def deaf(q, k, v, prior, **options):
        return attend(q, k, v, prior if "decompose" in options else None, **options)

    assert verdict(monkeypatch, deaf).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("factor", ["likelihood", "prior", "evidence", "posterior"])
def test_each_factor_of_the_theorem_counts(monkeypatch, factor):
    def off_by_a_little(q, k, v, prior, **options):
        found = attend(q, k, v, prior, **options)
        if "decompose" not in options:
            return found
        return found._replace(**{factor: getattr(found, factor) * (1 + 1e-5)})

    found = verdict(monkeypatch, off_by_a_little)
    assert found.outcome is Outcome.REFUTED
    assert found.reason.startswith("Theorem 1")


@pytest.mark.parametrize("factor", ["likelihood", "prior"])
def test_a_wrong_factor_is_found_even_if_the_evidence_makes_up_for_it(monkeypatch, factor):
    def traded(q, k, v, prior, **options):
        found = attend(q, k, v, prior, **options)
        if "decompose" not in options:
            return found
        wrong = {factor: getattr(found, factor) * 2, "evidence": found.evidence / 2}
        return found._replace(**wrong)

    found = verdict(monkeypatch, traded)
    assert found.outcome is Outcome.REFUTED
    assert found.reason.startswith("Theorem 1")


def test_the_theorem_needs_its_evidence(generator):
    q, k, v = torch.randn(3, 1, 2, 9, 4, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        error, without = theorem(q, k, v)
    assert error < 1e-14
    assert without > 0.1
