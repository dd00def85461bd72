"""The three numbers a training loop watches."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bayesattn.evals.fidelity import quick_fidelity


def batch(posterior, positions=(0, 2)):
    """As many inputs as `posterior` has sequences, scored at two of three positions."""
    inputs = torch.arange(3).expand(posterior.shape[0], 3)
    return SimpleNamespace(inputs=inputs, scored=torch.tensor(positions), posterior=posterior)


POSTERIOR = torch.tensor(
    [[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.25, 0.75]]], dtype=torch.float64
)
H = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))


def uniform(inputs):
    return torch.zeros(*inputs.shape[:2], 2)


def test_both_errors_of_the_uniform_predictor():
    numbers = quick_fidelity(uniform, batch(POSTERIOR))
    assert numbers["mae_tok"] == pytest.approx((1 + 0 + 0 + 1 - H) / 4)
    assert numbers["kl"] == pytest.approx(numbers["mae_tok"])  # KL(p ‖ uniform) = log C - H(p)
    assert numbers["mae_pos"] == pytest.approx(numbers["mae_tok"])  # all errors have one sign


def test_errors_of_different_sequences_cancel_per_position_only():
    swapped = quick_fidelity(
        lambda inputs: POSTERIOR.flip(0).log().clamp_min(-1e9), batch(POSTERIOR, (0, 1))
    )
    assert swapped["mae_pos"] == pytest.approx(0, abs=1e-12)
    assert swapped["mae_tok"] == pytest.approx((2 * 1 + 2 * (1 - H)) / 4)


class Recorder(nn.Module):
    """A module that notes how it was called."""

    def forward(self, inputs, scored=None):
        self.called = (scored, self.training, torch.is_grad_enabled())
        return torch.zeros(inputs.shape[0], len(scored), 2)


def test_a_predictor_is_asked_for_the_scored_positions_in_evaluation_mode():
    model = Recorder().train()
    some = batch(POSTERIOR)
    quick_fidelity(model, some)
    assert torch.equal(model.called[0], some.scored) and model.called[1:] == (False, False)
    assert model.training


def test_the_mode_comes_back_after_a_failure():
    class Broken(nn.Module):
        def forward(self, inputs):
            raise RuntimeError("broken")

    model = Broken().train()
    with pytest.raises(RuntimeError, match="broken"):
        quick_fidelity(model, batch(POSTERIOR))
    assert model.training and torch.is_grad_enabled()
