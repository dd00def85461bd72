import pytest
import torch

from bayesattn import attend
from bayesattn.claims import Tier, bam_laplace
from bayesattn.claims.bam_laplace import BamLaplace, alibi, alibi_slopes, bayes
from bayesattn.claims.identity import IdentityRecipe
from bayesattn.priors import Uniform
from bayesattn.stats import Outcome

RECIPE = IdentityRecipe(seeds=1, lengths=(15, 64), head_counts=(1, 3))


def verdict(monkeypatch, sabotage=None):
    if sabotage:
        monkeypatch.setattr(bam_laplace, "attend", sabotage)
    monkeypatch.setattr(BamLaplace, "recipes", {Tier.QUICK: RECIPE})
    study = BamLaplace()
    return study.judge(Tier.QUICK, {0: study.measure(Tier.QUICK, 0)})


def test_our_attention_passes(monkeypatch):
    assert verdict(monkeypatch).outcome is Outcome.SUPPORTED


def test_slopes_are_the_published_ones():
    assert alibi_slopes(8) == [2.0**-n for n in range(1, 9)]
    published = [0.70711, 0.5, 0.35355, 0.25, 0.17678, 0.125, 0.08839, 0.0625, 0.04419, 0.03125]
    assert alibi_slopes(16)[:10] == pytest.approx(published, abs=5e-6)
    # 12 heads: those of 8, then every second of 16.
    assert alibi_slopes(12) == pytest.approx(alibi_slopes(8) + alibi_slopes(16)[0:8:2])


def test_alibi_by_hand():
    # One head, slope 2^-8, no content: the weights of three keys are exp(-distance / 256).
    q = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    v = torch.eye(3, dtype=torch.float64)[None, None]
    weights = torch.exp(-torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64) / 256)
    for attention in (alibi, bayes):
        output = attention(q, q, v)[0, 0]
        torch.testing.assert_close(output[2], weights / weights.sum())
        torch.testing.assert_close(output[0], v[0, 0, 0])


@pytest.mark.parametrize("tilt", [1e-4, -1e-4])
def test_a_slope_off_by_a_little_does_not_pass(monkeypatch, tilt):
    def tilted(q, k, v, prior, **options):
        return attend(q, k, v, prior.table(q.shape[2]) * (1 + tilt), **options)

    assert verdict(monkeypatch, tilted).outcome is Outcome.REFUTED


def test_attention_deaf_to_its_prior_does_not_pass(monkeypatch):
    def deaf(q, k, v, prior, **options):
        return attend(q, k, v, Uniform(q.shape[1]), **options)

    assert verdict(monkeypatch, deaf).outcome is Outcome.REFUTED
