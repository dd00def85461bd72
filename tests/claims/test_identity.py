import pytest
import torch

from bayesattn.claims import Claim, Tier
from bayesattn.claims.identity import (
    Comparison,
    IdentityRecipe,
    IdentityStudy,
    relative_difference,
)
from bayesattn.stats import Outcome
from tests.ledger.toy import run_study

RECIPE = IdentityRecipe(seeds=2, lengths=(3, 5), head_counts=(1, 2), head_dim=4)


class Same(IdentityStudy):
    claim = Claim(id="same", statement="Same.", source="arXiv", reported="proved")
    method = null = "none"
    recipes = {Tier.QUICK: RECIPE}  # noqa: RUF012
    errors = {torch.float32: 1e-7, torch.float64: 1e-15}  # noqa: RUF012
    control = 0.5

    def compare(self, q, k, v):
        return Comparison({"a": 0.0, "b": self.errors[q.dtype]}, self.control)


def judged(**changes):
    study = type("Changed", (Same,), changes)()
    return study.judge(Tier.QUICK, {seed: study.measure(Tier.QUICK, seed) for seed in range(2)})


def test_rounding_in_both_precisions_supports():
    verdict = judged()
    assert verdict.outcome is Outcome.SUPPORTED
    assert verdict.measured == 1e-7
    assert verdict.null == 0.5
    assert verdict.interval is None
    assert verdict.seeds == (0, 1)
    assert "1.0e-07 in float32" in verdict.reason and "1.0e-15 in float64" in verdict.reason


@pytest.mark.parametrize(
    ("dtype", "error", "name"),
    [(torch.float32, 2e-6, "float32"), (torch.float64, 2e-12, "float64")],
)
def test_more_than_rounding_in_one_precision_refutes(dtype, error, name):
    verdict = judged(errors={**Same.errors, dtype: error})
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reason.startswith(f"b, {name}: ")


@pytest.mark.parametrize("bad", range(2 * 2 * 2 * 2))
def test_one_bad_case_refutes(bad):
    cases = iter(range(99))

    def compare(self, q, k, v):
        return Comparison({"a": 1e-3 if next(cases) == bad else 0.0}, 0.5)

    assert judged(compare=compare).outcome is Outcome.REFUTED


def test_one_weak_control_makes_it_inconclusive():
    def compare(self, q, k, v):
        return Comparison({"a": 0.0}, 0.5 if q.shape[1] == 2 else 1e-4)

    assert judged(compare=compare).outcome is Outcome.INCONCLUSIVE


def test_inputs_are_standard_normal_and_differ_between_seeds_and_cases():
    seen = []

    def compare(self, q, k, v):
        seen.append((tuple(q.shape), q.dtype, torch.stack([q, k, v]).double()))
        return Comparison({"a": 0.0}, 0.5)

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
def test_it_draws_exact_zeros_too(tmp_path, error):
    study = type("Zero", (Same,), {"errors": dict.fromkeys(Same.errors, error)})()
    record = run_study(study, Tier.QUICK, tmp_path)
    assert record.failure is None
    assert len(record.figures) == 1
    (picture,) = study.draw(Tier.QUICK, study.read(record.numbers))
    lines = picture.figure.axes[0].lines
    assert all(min(line.get_ydata()) > 0 for line in lines)  # the axis is logarithmic
