"""bam-uniform and bam-laplace: they pass, and nothing that is nearly the same does."""

import pytest
import torch

from bayesattn import attend
from bayesattn.claims import Tier, bam_identities
from bayesattn.claims.bam_identities import (
    BamLaplace,
    BamUniform,
    Comparison,
    IdentityRecipe,
    IdentityStudy,
    alibi,
    alibi_slopes,
    bayes,
    relative_difference,
    theorem,
)
from bayesattn.priors import Laplace, Uniform
from tests.claims.outcomes import outcomes

RECIPE = IdentityRecipe(seeds=2, lengths=(3, 5), head_counts=(1, 2), head_dim=4)


class Same(IdentityStudy):
    claim = BamLaplace.claim
    recipes = {Tier.QUICK: RECIPE}  # noqa: RUF012
    stated = {"laplace": ("a", "b")}  # noqa: RUF012
    errors = {torch.float32: 1e-7, torch.float64: 1e-15}  # noqa: RUF012
    control = 0.5

    def compare(self, q, k, v):
        return Comparison({"a": 0.0, "b": self.errors[q.dtype]}, self.control)


def judged(**changes):
    return outcomes(type("Changed", (Same,), changes)(), seeds=2)


def test_rounding_in_both_precisions_holds():
    assert judged() == {"laplace": "holds", "single": "holds"}


@pytest.mark.parametrize(
    ("dtype", "error", "name"),
    [(torch.float32, 2e-6, "single"), (torch.float64, 2e-12, "laplace")],
)
def test_more_than_rounding_in_one_precision_fails(dtype, error, name):
    found = judged(errors={**Same.errors, dtype: error})
    assert found == {"laplace": "holds", "single": "holds", name: "fails"}


@pytest.mark.parametrize("bad", range(2 * 2 * 2 * 2))
def test_one_bad_case_fails(bad):
    cases = iter(range(99))

    def compare(self, q, k, v):
        error = 1e-3 if next(cases) == bad else 0.0
        return Comparison({"a": error, "b": 0.0}, 0.5)

    found = judged(compare=compare)
    assert sorted(found.values()) == ["fails", "holds"]


def test_one_weak_control_leaves_it_undecided():
    def compare(self, q, k, v):
        return Comparison({"a": 0.0, "b": 0.0}, 0.5 if q.shape[1] == 2 else 1e-10)

    assert judged(compare=compare) == {"laplace": "undecided", "single": "undecided"}


def test_inputs_are_standard_normal_and_differ_between_seeds_and_cases():
    seen = []

    def compare(self, q, k, v):
        seen.append((tuple(q.shape), q.dtype, torch.stack([q, k, v]).double()))
        return Comparison({"a": 0.0, "b": 0.0}, 0.5)

    judged(compare=compare)
    assert {shape for shape, _, _ in seen} == {(1, h, t, 4) for h in (1, 2) for t in (3, 5)}
    assert {dtype for _, dtype, _ in seen} == {torch.float32, torch.float64}
    assert len({values.flatten()[0].item() for _, _, values in seen}) == len(seen)
    pooled = torch.cat([values.flatten() for _, _, values in seen])
    assert abs(pooled.mean()) < 0.2 and abs(pooled.std() - 1) < 0.2


def test_the_difference_is_relative_to_the_largest_value():
    v = torch.tensor([1.0, -4.0])
    assert relative_difference(v, v + torch.tensor([0.0, 2.0]), v) == 0.5
    assert relative_difference(10 * v, 10 * v + 20, 10 * v) == 0.5


@pytest.mark.parametrize("error", [0.0, 1e-7])
def test_it_draws_exact_zeros_too(error):
    study = type("Zero", (Same,), {"errors": dict.fromkeys(Same.errors, error)})()
    (picture,) = study.draw(Tier.QUICK, {0: study.measure(Tier.QUICK, 0)})
    lines = picture.figure.axes[0].lines
    assert all(min(line.get_ydata()) > 0 for line in lines)  # the axis is logarithmic


SMALL = IdentityRecipe(seeds=1, lengths=(15, 64), head_counts=(1, 3))


def verdicts(monkeypatch, claim, sabotage=None):
    if sabotage:
        monkeypatch.setattr(bam_identities, "attend", sabotage)
    monkeypatch.setattr(claim, "recipes", {Tier.QUICK: SMALL})
    return outcomes(claim(), seeds=1)


@pytest.mark.parametrize("claim", [BamLaplace, BamUniform])
def test_our_attention_passes(monkeypatch, claim):
    assert set(verdicts(monkeypatch, claim).values()) == {"holds"}


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

    assert verdicts(monkeypatch, BamLaplace, tilted)["laplace"] == "fails"


def test_attention_deaf_to_its_prior_is_not_alibi(monkeypatch):
    def deaf(q, k, v, prior, **options):
        return attend(q, k, v, Uniform(q.shape[1]), **options)

    assert verdicts(monkeypatch, BamLaplace, deaf)["laplace"] == "fails"


def almost_uniform(q, k, v, prior, **options):
    if "decompose" in options:
        return attend(q, k, v, prior, **options)
    nudge = Laplace(q.shape[1], slopes=[1e-4] * q.shape[1]).to(q.dtype)
    return attend(q, k, v, prior.table(q.shape[2]) + nudge.table(q.shape[2]), **options)


def test_a_prior_that_is_nearly_uniform_does_not_pass(monkeypatch):
    found = verdicts(monkeypatch, BamUniform, almost_uniform)
    assert found == {"uniform": "fails", "theorem": "holds", "single": "fails"}


def test_attention_deaf_to_its_prior_cannot_show_anything(monkeypatch):
    def deaf(q, k, v, prior, **options):
        return attend(q, k, v, prior if "decompose" in options else None, **options)

    assert set(verdicts(monkeypatch, BamUniform, deaf).values()) == {"undecided"}


@pytest.mark.parametrize("factor", ["likelihood", "prior", "evidence", "posterior"])
def test_each_factor_of_the_theorem_counts(monkeypatch, factor):
    def off_by_a_little(q, k, v, prior, **options):
        found = attend(q, k, v, prior, **options)
        if "decompose" not in options:
            return found
        return found._replace(**{factor: getattr(found, factor) * (1 + 1e-5)})

    found = verdicts(monkeypatch, BamUniform, off_by_a_little)
    assert found == {"uniform": "holds", "theorem": "fails", "single": "fails"}


@pytest.mark.parametrize("factor", ["likelihood", "prior"])
def test_a_wrong_factor_is_found_even_if_the_evidence_makes_up_for_it(monkeypatch, factor):
    def traded(q, k, v, prior, **options):
        found = attend(q, k, v, prior, **options)
        if "decompose" not in options:
            return found
        wrong = {factor: getattr(found, factor) * 2, "evidence": found.evidence / 2}
        return found._replace(**wrong)

    found = verdicts(monkeypatch, BamUniform, traded)
    assert found == {"uniform": "holds", "theorem": "fails", "single": "fails"}


def test_the_theorem_needs_its_evidence(generator):
    q, k, v = torch.randn(3, 1, 2, 9, 4, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        error, without = theorem(q, k, v)
    assert error < 1e-14
    assert without > 0.1
