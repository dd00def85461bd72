"""The plain models and loops are what they claim to be; never their times."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from benchmarks.plain import (
    AuthorsTransformer,
    PlainTransformer,
    authors_loop,
    bare_loop,
    cosine_after_warmup,
)


def small() -> AuthorsTransformer:
    return AuthorsTransformer(8, 8, first_value=4, layers=2, width=16, heads=2)


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_authors_model_has_their_number_of_parameters():
    """Derived for alphabet 20 with 2L = 38 positions; the head is tied to the embedding."""
    with torch.device("meta"):
        assert count(AuthorsTransformer(40, 38, first_value=20)) == 2_677_440


def test_the_authors_weights_start_small_and_biases_at_zero():
    torch.manual_seed(0)
    model = AuthorsTransformer(40, 38, first_value=20, layers=1)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all(), name
        elif "norm" not in name:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name


@pytest.mark.parametrize("build", [small, lambda: PlainTransformer(8, 4, 2, 16, 2, 32)])
def test_causal(build, generator):
    torch.manual_seed(0)
    model = build()
    inputs = torch.randint(0, 8, (3, 7), generator=generator)
    changed = inputs.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 8
    positions = torch.arange(7)
    before, after = model(inputs, positions), model(changed, positions)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().max() > 1e-4


def test_scored_positions_are_a_selection(generator):
    torch.manual_seed(0)
    model = PlainTransformer(8, 4, 2, 16, 2, 32)
    inputs = torch.randint(0, 8, (3, 7), generator=generator)
    scored = torch.tensor([0, 2, 6])
    torch.testing.assert_close(model(inputs, scored), model(inputs)[:, scored])


def test_the_authors_positions_matter():
    torch.manual_seed(0)
    model = small()
    same = torch.zeros(1, 5, dtype=torch.long)
    logits = model(same, torch.arange(5))
    assert (logits[0, 0] - logits[0, 4]).abs().max() > 1e-5


def test_the_authors_outcomes_are_the_value_tokens():
    torch.manual_seed(0)
    model, scored = small(), torch.tensor([0, 2])
    inputs = torch.tensor([[0, 5, 1]])
    assert model(inputs, scored).equal(model.tokens(inputs, scored)[..., 4:])


def test_bare_loop_learns_the_posterior():
    """Two inputs with given posteriors: the loss goes to the entropy, not to zero."""
    torch.manual_seed(0)
    model = PlainTransformer(8, 4, 1, 16, 2, 32)
    inputs, scored = torch.tensor([[0], [1]]), torch.tensor([0])
    posterior = torch.tensor([[[0.5, 0.5, 0, 0]], [[0, 0, 0.25, 0.75]]], dtype=torch.float64)
    bare_loop(model, itertools.repeat((inputs, scored, posterior)), 150, 1e-2, 0.0)
    found = model(inputs, scored).softmax(-1)
    torch.testing.assert_close(found, posterior.float(), atol=0.03, rtol=0)


def test_authors_loop_learns_labels_and_stops_when_told():
    torch.manual_seed(0)
    model = small()
    inputs, scored = torch.tensor([[0], [1]]), torch.tensor([0])
    labels = torch.tensor([[2], [3]])
    batches = itertools.repeat((inputs, scored, labels))
    asked = []

    def reached(step: int) -> bool:
        asked.append(step)
        return step == 120

    assert authors_loop(model, batches, reached, steps=200, warmup=10, lr=1e-2) == 120
    assert asked == list(range(1, 121))
    assert model(inputs, scored).argmax(-1).equal(labels)
    # the loss is over all tokens: the keys are never the answer
    every = F.softmax(model.tokens(inputs, scored), -1)
    assert every[..., :4].sum(-1).max() < 0.05


def test_authors_loop_ends_by_itself():
    torch.manual_seed(0)
    batches = itertools.repeat((torch.tensor([[0]]), torch.tensor([0]), torch.tensor([[1]])))
    assert authors_loop(small(), batches, lambda _: False, steps=3, warmup=1) == 3


def test_schedule():
    factors = [cosine_after_warmup(step, 50_000, 2_000) for step in (0, 999, 1999, 2000, 26_000)]
    assert factors == pytest.approx([1 / 2000, 0.5, 1.0, 1.0, 0.5])
    assert cosine_after_warmup(50_000, 50_000, 2_000) == pytest.approx(0.0)
    assert cosine_after_warmup(14_000, 50_000, 2_000) == pytest.approx(
        0.5 + 0.5 * math.cos(math.pi / 4)
    )
