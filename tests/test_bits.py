"""Distances in bits against sums written out."""

import math

import pytest
import torch

from bayesattn.bits import (
    entropy,
    entropy_errors,
    kl_divergence,
    log_probabilities,
    total_variation,
)


def by_hand(p, q):
    """(KL, total variation, entropy of q, entropy of p) of two lists, term by term."""
    kl = sum(a * (math.log2(a) - math.log2(b)) for a, b in zip(p, q, strict=True) if a > 0)
    tv = max(abs(a - b) for a, b in zip(subset_sums(p), subset_sums(q), strict=True))
    return kl, tv, *(-sum(a * math.log2(a) for a in r if a > 0) for r in (q, p))


def subset_sums(p):
    """P(event) of every event: total variation is the largest difference of these."""
    return [sum(a for i, a in enumerate(p) if event >> i & 1) for event in range(2 ** len(p))]


@pytest.mark.parametrize("seed", range(20))
def test_against_sums_written_out(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(6, generator=generator)
    weights = torch.rand(6, generator=generator, dtype=torch.float64)
    weights[: seed % 6] = 0.0  # impossible outcomes
    p, lq = weights / weights.sum(), log_probabilities(logits)
    kl, tv, h_q, h_p = by_hand(p.tolist(), lq.exp().tolist())
    assert float(kl_divergence(p, lq)) == pytest.approx(kl, abs=1e-13)
    assert float(total_variation(p, lq)) == pytest.approx(tv, abs=1e-13)
    assert float(entropy(p)) == pytest.approx(h_p, abs=1e-13)
    assert float(entropy_errors(lq, p)) == pytest.approx(h_q - h_p, abs=1e-13)


def test_a_wrong_distribution_of_the_right_entropy_has_no_entropy_error_but_a_divergence():
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    lq = p.flip(0).log()
    assert abs(float(entropy_errors(lq, p))) < 1e-15
    assert float(kl_divergence(p, lq)) == pytest.approx(0.6 * math.log2(7), abs=1e-12)


def test_zeros_are_exact():
    certain = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert float(entropy(certain)) == 0.0
    assert float(kl_divergence(certain, certain.log())) == 0.0
    assert float(total_variation(certain, certain.log())) == 0.0
    assert float(kl_divergence(certain, certain.flip(0).log())) == math.inf
    assert float(kl_divergence(torch.tensor([0.5, 0.5]).double(), certain.log())) == math.inf


def test_half_precision_logits_are_normalised_in_float64():
    lq = log_probabilities(torch.randn(4, 50).bfloat16())
    assert lq.dtype == torch.float64
    assert (lq.exp().sum(-1) - 1).abs().max() < 1e-14
