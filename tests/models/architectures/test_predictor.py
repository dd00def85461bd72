import itertools

import pytest
import torch
from torch import nn

from bayesattn.models import BayesModel
from bayesattn.models.architectures import LSTM, MLP, Mamba, Transformer, build
from bayesattn.models.architectures.base import Body
from bayesattn.tunnels import HMM, Bijection
from tests.models.architectures.common import ARCHITECTURES, SHAPES, TOKENS, Shape

each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@each_shape
@each_architecture
def test_shapes_and_gradients(name, shape):
    predictor = build(ARCHITECTURES[name], shape, seed=0)
    inputs = shape.inputs(2)
    scored = torch.tensor([1, 4, 12])
    logits = predictor(inputs, scored)
    assert logits.shape == (2, 3, shape.outcomes)
    torch.testing.assert_close(logits, predictor(inputs)[:, scored])
    logits.square().sum().backward()
    # DistributedDataParallel refuses parameters without a gradient.
    assert [n for n, p in predictor.named_parameters() if p.requires_grad and p.grad is None] == []


@each_shape
@each_architecture
@torch.no_grad()
def test_the_future_changes_nothing(name, shape):
    predictor = build(ARCHITECTURES[name], shape, seed=0).eval()
    inputs, other = shape.inputs(4), shape.inputs(4, seed=1)
    before = predictor(inputs)
    for position in range(shape.positions - 1):
        changed = torch.cat((inputs[:, : position + 1], other[:, position + 1 :]), dim=1)
        after = predictor(changed)[:, : position + 1]
        torch.testing.assert_close(after, before[:, : position + 1], rtol=1e-5, atol=1e-6)


@each_architecture
def test_only_the_position_mlp_ignores_the_past(name):
    shape = SHAPES["features"]
    predictor = build(ARCHITECTURES[name], shape, seed=0)
    inputs = shape.inputs(2).requires_grad_()
    (gradient,) = torch.autograd.grad(predictor(inputs)[:, 8].square().sum(), inputs)
    sees = gradient.abs().amax(dim=(0, 2)) > 1e-8
    assert sees[8] and not sees[9:].any()
    if name == "position":
        assert not sees[:8].any()
    else:  # a window of five reaches eight positions back through two layers
        assert sees[:8].all()


@each_architecture
def test_the_seed_decides_and_nothing_else(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build(ARCHITECTURES[name], TOKENS, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = build(ARCHITECTURES[name], TOKENS, seed=3).state_dict()
    other = build(ARCHITECTURES[name], TOKENS, seed=4).state_dict()
    for key, value in first.state_dict().items():
        assert torch.equal(value, again[key]), key
    assert not torch.equal(first.state_dict()["head.weight"], other["head.weight"])
    inputs = TOKENS.inputs(3)
    assert torch.equal(first(inputs), first(inputs))


@each_architecture
@torch.no_grad()
def test_hidden_states_are_those_of_the_forward(name):
    architecture = ARCHITECTURES[name]
    predictor = build(architecture, TOKENS, seed=0)
    inputs = TOKENS.inputs(2)
    states = predictor.hidden(inputs)
    assert len(states) == architecture.layers + 1
    assert all(state.shape == (2, 13, 16) for state in states)
    if name != "learned":
        torch.testing.assert_close(states[0], predictor.embedding(inputs), rtol=0, atol=0)
    logits = predictor.head(predictor.norm(states[-1]))
    torch.testing.assert_close(logits, predictor(inputs), rtol=0, atol=0)
    assert all((a - b).abs().max() > 1e-3 for a, b in itertools.pairwise(states))


@pytest.mark.parametrize("tunnel", [Bijection(5, 4), HMM(3, 3, 6)], ids=lambda t: t.name)
@each_architecture
@torch.no_grad()
def test_real_tunnels(name, tunnel):
    batch = tunnel.sample(3, torch.Generator().manual_seed(0))
    logits = build(ARCHITECTURES[name], tunnel, seed=0)(batch.inputs, batch.scored)
    assert logits.shape == batch.posterior.shape
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    "architecture",
    [Transformer(prior="ggd", width=16), LSTM(width=16), Mamba(width=16)]
    + [MLP(context=context, width=16) for context in ("position", "mean", "convolution")],
    ids=lambda a: getattr(a, "context", a.name),
)
@torch.no_grad()
def test_longer_inputs_than_the_tunnel_was_built_for(architecture):
    predictor = build(architecture, TOKENS, seed=0)
    inputs = Shape(positions=40).inputs(2)
    long = predictor(inputs)
    assert long.shape == (2, 40, 5)
    torch.testing.assert_close(long[:, :13], predictor(inputs[:, :13]), rtol=1e-4, atol=1e-5)


def test_a_tunnel_without_inputs():
    with pytest.raises(ValueError, match="needs a vocabulary or features, this one has neither"):
        build(LSTM(), Shape(vocabulary=None), seed=0)


def test_no_parameter_outside_the_formula():
    predictor = build(Transformer(width=16, layers=1), TOKENS, seed=0)
    names = {name.split(".")[0] for name, _ in predictor.named_parameters()}
    assert names == {"embedding", "body", "norm", "head"}
    counted = sum(p.numel() for p in predictor.parameters())
    attention, feed, norms = 4 * 16 * 16, 3 * 16 * 32, 3 * 16
    assert counted == 11 * 16 + attention + feed + norms + 16 * 5 + 5
    assert isinstance(predictor.body, Body)
    assert not any(isinstance(m, BayesModel) for m in predictor.modules())
    assert isinstance(predictor.embedding, nn.Embedding)
