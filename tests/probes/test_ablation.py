"""What is taken away is what was asked for, and a head that is the only path is catastrophic."""

import pytest
import torch

from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.ablation import KINDS, Cut, ablated, all_cuts, errors, measure_ablations
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.measured import NotApplicableError, plain
from bayesattn.tunnels import Batch, Bijection
from tests.probes.common import FILTER, OTHERS, TRANSFORMERS, WIDTH, model_of


@pytest.fixture
def batch():
    return FILTER.sample(20, torch.Generator().manual_seed(3))


def logits(model, batch, *cuts):
    with ablated(model, batch.inputs, cuts) as call:
        return call(batch.inputs, batch.scored)


@pytest.mark.parametrize("name", [*TRANSFORMERS, *OTHERS])
def test_nothing_taken_away_changes_nothing_and_anything_does(name, batch):
    model = model_of(name)
    with torch.no_grad():
        whole = model(batch.inputs, batch.scored)
    assert torch.equal(logits(model, batch), whole)
    for cut in all_cuts(anatomy(model)):
        assert not torch.equal(logits(model, batch, cut), whole), cut
    assert torch.equal(logits(model, batch), whole)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_head_at_zero_is_a_head_without_output_weights(batch):
    model, same = model_of("grouped"), model_of("grouped")
    with torch.no_grad():
        same.body.layers[0].self_attn.o_proj.weight[:, 4:8] = 0
        expected = same(batch.inputs, batch.scored)
    found = logits(model, batch, Cut(part="head", layer=0, head=1))
    torch.testing.assert_close(found, expected)


def test_all_heads_and_feed_forward_at_zero(batch):
    for part, name in (("heads", "self_attn.o_proj"), ("mlp", "mlp.down_proj")):
        model, same = model_of("ggd"), model_of("ggd")
        with torch.no_grad():
            same.body.layers[1].get_submodule(name).weight.zero_()
            expected = same(batch.inputs, batch.scored)
        torch.testing.assert_close(logits(model, batch, Cut(part=part, layer=1)), expected)


@pytest.mark.parametrize("name", ["ggd", "lstm", "mamba"])
def test_bypassed_layers_are_all_bypassed(name, batch):
    """Several at once: the authors' code bypassed one of them only."""
    model = model_of(name)
    cuts = [Cut(part="layer", layer=layer) for layer in (0, 1)]
    with torch.no_grad():
        embedded = model.hidden(batch.inputs)[0]
        expected = model.head(model.norm(embedded[:, batch.scored]))
    torch.testing.assert_close(logits(model, batch, *cuts), expected)


@pytest.mark.parametrize("kind", ["mean", "resample"])
def test_replacements_come_from_the_whole_model(kind, batch):
    """By hand: the last layer again, with one head's outputs exchanged."""
    model = model_of("ggd")
    whole = capture(model, batch.inputs)
    own = whole["layers.1.head_outputs"][:, :, 2]
    other = own.mean(0) if kind == "mean" else own.roll(1, 0)
    cut = Cut(part="head", layer=1, head=2, kind=kind)
    torch.testing.assert_close(logits(model, batch, cut), with_head(model, whole, other, batch))
    fed = whole["layers.0.mlp"]
    fed = fed.mean(0) if kind == "mean" else fed.roll(1, 0)
    first = Cut(part="mlp", layer=0, kind=kind)
    with ablated(model, batch.inputs, [first]):
        cut_first = capture(model, batch.inputs)
    expected = whole["layers.0.residual_mid"] + fed
    torch.testing.assert_close(cut_first["layers.1.residual_before"], expected)
    # what stands in for the head is what it would have been, had nothing else been taken away
    both = with_head(model, cut_first, other, batch)
    torch.testing.assert_close(logits(model, batch, first, cut), both)


def with_head(model, captured, other, batch):
    """Logits after the second layer if its head 2 puts out `other`."""
    heads = captured["layers.1.head_outputs"].clone()
    heads[:, :, 2] = other
    layer = model.body.layers[1]
    with torch.no_grad():
        x = captured["layers.1.residual_before"] + layer.self_attn.o_proj(heads.flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return model.head(model.norm(x[:, batch.scored]))


def test_a_subspace_of_the_residual_stream(batch, generator):
    model = model_of("ggd")
    basis = torch.randn(WIDTH, 3, generator=generator)
    projector = basis @ torch.linalg.inv(basis.T @ basis) @ basis.T
    last = capture(model, batch.inputs, ["layers.1.residual_after"])["layers.1.residual_after"]
    for kind, other in (("zero", 0.0), ("mean", last.mean(0)), ("resample", last.roll(1, 0))):
        found = logits(model, batch, Cut(part="subspace", layer=1, kind=kind, basis=basis))
        x = last - (last - other) @ projector
        expected = model.head(model.norm(x[:, batch.scored]))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    everything = Cut(part="subspace", layer=0, basis=torch.eye(WIDTH))
    nothing = logits(model, batch, everything)
    torch.testing.assert_close(nothing, nothing[:1].expand_as(nothing))


def test_losses_are_differences_on_the_same_sequences(batch):
    model = model_of("ggd")
    found = measure_ablations(model, batch)
    assert len(found.losses) == 2 * (3 * (4 + 1 + 1) + 1)
    whole = errors(model, batch)
    assert found.kl.value == pytest.approx(float(whole[0].mean()))
    assert found.mae.value == pytest.approx(float(whole[1].mean()))
    losses = {(x.name, x.kind): x for x in found.losses}
    one = losses["L1H3", "mean"]
    kl, mae = errors(model, batch, [Cut(part="head", layer=1, head=3, kind="mean")])
    assert one.kl.value == pytest.approx(float((kl - whole[0]).mean()))
    assert one.mae.value == pytest.approx(float((mae - whole[1]).mean()))
    low, high = one.kl.interval
    assert low <= one.kl.value <= high and "random subspace" in one.kl.nulls
    assert losses["L0 bypass", "bypass"].part == "layer"
    assert plain(found)["losses"][0]["name"] == "L0H0"


class OnePath:
    """A network in which one head of the first layer carries what it sees, the others a whisper.

    The posterior is defined as what the whole network says, so that the network is exact.
    """

    def __init__(self):
        tunnel = Bijection(6, 8, replacement=True)
        width = 16
        architecture = Transformer(layers=2, width=width, heads=4, prior="laplace")
        self.tunnel, self.model = tunnel, build(architecture, tunnel, 0)
        with torch.no_grad():
            for layer in self.model.body.layers:
                layer.mlp.down_proj.weight.zero_()
                layer.self_attn.o_proj.weight.zero_()
            first = self.model.body.layers[0].self_attn.o_proj.weight
            first.normal_(0, 0.01, generator=torch.Generator().manual_seed(0))
            first[:, 8:12].normal_(0, 1.0, generator=torch.Generator().manual_seed(1))

    def batch(self):
        drawn = self.tunnel.sample(64, torch.Generator().manual_seed(0))
        with torch.no_grad():
            posterior = self.model(drawn.inputs, drawn.scored).double().softmax(-1)
        return Batch(drawn.inputs, drawn.scored, posterior, drawn.labels, drawn.metadata)


def test_a_head_that_is_the_only_path():
    planted = OnePath()
    found = measure_ablations(planted.model, planted.batch())
    assert found.kl.value == pytest.approx(0, abs=1e-6)
    for kind in KINDS:
        losses = {(x.layer, x.head): x for x in found.losses if (x.part, x.kind) == ("head", kind)}
        path = losses.pop((0, 2))
        worst = max(x.kl.value for x in losses.values())
        assert path.kl.value > 100 * worst and path.kl.interval.low > worst
        assert path.kl.value > 1.5 * path.kl.nulls["random subspace"]


def test_what_cannot_be_taken_away(batch):
    model = model_of("ggd")
    for cut, sentence in (
        (Cut(part="head", layer=0, head=9), "there is no head 9: layer 0 has heads 0 to 3"),
        (Cut(part="head", layer=5, head=0), "there is no layer 5"),
        (Cut(part="head", layer=0), "say which head"),
        (Cut(part="mlp", layer=0, kind="half"), "unknown ablation 'half'; choose one of zero"),
        (Cut(part="subspace", layer=0), "needs a basis"),
    ):
        with pytest.raises(ValueError, match=sentence):
            logits(model, batch, cut)
    for part in ("head", "heads", "mlp"):
        with pytest.raises(NotApplicableError):
            logits(model_of("lstm"), batch, Cut(part=part, layer=0, head=0))
    with pytest.raises(ValueError, match="too few to tell from chance"):
        measure_ablations(model, FILTER.sample(4, torch.Generator()))
    kinds = {cut.part for cut in all_cuts(anatomy(model_of("lstm")))}
    assert kinds == {"layer"}
