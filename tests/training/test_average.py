import torch
from torch import nn

from bayesattn.training.learner import Average


def test_the_average_is_its_formula():
    model = nn.Linear(2, 1)
    average = Average(model, 0.9)
    expected = model.weight.detach().clone()
    for step in range(200):
        with torch.no_grad():
            model.weight.add_(0.1)
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    torch.testing.assert_close(average.tensors()["weight"], expected)


def test_it_is_applied_and_taken_back():
    model = nn.Linear(2, 1)
    average = Average(model, 0.5)
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    weight = model.weight.detach().clone()
    try:
        with average.applied():
            assert torch.equal(model.weight, before)
            raise RuntimeError
    except RuntimeError:
        pass
    assert torch.equal(model.weight, weight)
    assert list(average.tensors()) == ["weight", "bias"]
