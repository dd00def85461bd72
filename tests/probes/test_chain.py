"""The way of a chain along the entropy axis."""

import math

import pytest
import torch

from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.chain import _way, lens, measure_chain
from bayesattn.tunnels import Hops

SMALL = Transformer(layers=2, width=16, heads=2, encoding="learned")


def model_of(tunnel):
    return build(SMALL, tunnel, 0)


def test_longest_hop_and_path():
    way = _way(torch.tensor([[0.0, 0.5, 0.25], [1.0, 1.0, 0.0]]))
    assert way.largest == pytest.approx((0.5 + 1.0) / 2)
    assert way.path == pytest.approx((0.75 + 1.0) / 2)


def test_the_last_layer_of_the_lens_is_the_prediction(generator):
    tunnel = Hops(6, 3, 4, "direct")
    model, batch = model_of(tunnel), tunnel.sample(10, generator)
    bits = lens(model, batch.inputs, tunnel.positions - 1)
    assert bits.shape == (10, 3)
    chances = model(batch.inputs)[:, -1].double().softmax(-1)
    expected = -(chances * chances.log2()).sum(-1)
    torch.testing.assert_close(bits[:, -1], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["direct", "filler"])
def test_without_scratch_the_layers_are_the_steps(mode):
    tunnel = Hops(6, 3, 4, mode)
    found = measure_chain(model_of(tunnel), tunnel, sequences=128)
    assert found.steps is None and found.order is None
    assert 0 <= found.layers.largest <= found.layers.path <= 2 * found.layers.largest


def test_one_hop_has_no_steps():
    tunnel = Hops(6, 1, 4, "cot")
    assert measure_chain(model_of(tunnel), tunnel, sequences=128).steps is None


def test_values_that_hold_the_entropy_are_read_exactly(monkeypatch):
    """Values replaced by the entropy itself, on one of several axes: c_t is the entropy."""
    tunnel = Hops(6, 4, 3, "cot")
    model = model_of(tunnel)

    def values(_, inputs, names, positions):
        posterior = tunnel.exact(inputs)
        bits = -torch.xlogy(posterior, posterior).sum(-1) / math.log(2)
        noise = torch.randn(*bits.shape, 3, generator=torch.Generator().manual_seed(0))
        return {names[0]: torch.cat([bits[..., None] * 100, noise], -1)[:, :, None]}

    monkeypatch.setattr("bayesattn.probes.chain.capture", values)
    found = measure_chain(model, tunnel, sequences=2048)
    assert found.order > 0.6  # many entropies are equal, and noise orders those
    batch = tunnel.sample(2048, torch.Generator().manual_seed(7_000_000_002))
    held_out = batch.posterior[1536:][batch.metadata["hops"][1536:] == 4]
    bits = -torch.xlogy(held_out, held_out).sum(-1) / math.log(2) / math.log2(6)
    hops = bits.diff(dim=1).abs()
    assert found.steps.largest == pytest.approx(float(hops.amax(1).mean()), abs=0.01)
    assert found.steps.path == pytest.approx(float(hops.sum(1).mean()), abs=0.02)


def test_everything_revealed_has_no_entropy_to_order():
    tunnel = Hops(5, 3, 5, "cot")
    found = measure_chain(model_of(tunnel), tunnel, sequences=128)
    assert found.order is None and found.steps is not None


def test_mistakes():
    tunnel = Hops(6, 60, 5, "direct")
    with pytest.raises(ValueError, match="none of 16 sequences asks for 60 hops"):
        measure_chain(model_of(tunnel), tunnel, sequences=16)
