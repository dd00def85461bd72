"""Logits are the sum of their parts; a sublayer that writes nothing has no share."""

import pytest
import torch

from bayesattn.probes.attribution import contributions, logit_shares
from bayesattn.probes.measured import NotApplicableError, held_out
from tests.probes.common import BIJECTION, FILTER, language_model, model_of


@pytest.mark.parametrize("tunnel", [BIJECTION, FILTER])
@pytest.mark.parametrize("name", ["ggd", "grouped", "late"])
def test_contributions_add_up_to_the_logits(name, tunnel):
    model, batch = model_of(name, tunnel), held_out(tunnel, 16)
    with torch.no_grad():
        logits = model(batch.inputs, batch.scored).double() - model.head.bias
    parts = contributions(model, batch)
    assert len(parts) == 1 + 2 * len(model.body.layers)
    assert torch.allclose(parts.sum(0), logits, atol=1e-5)


def test_shares_are_those_of_a_loop_and_add_up_to_one():
    model, batch = model_of("ggd", BIJECTION), held_out(BIJECTION, 16)
    parts = contributions(model, batch)
    shares = []
    for part in parts:
        products = squares = 0.0
        for step in range(parts.shape[2]):
            own, whole = (
                x[:, step] - x[:, step].mean(-1, keepdim=True) for x in (part, parts.sum(0))
            )
            own, whole = own - own.mean(0), whole - whole.mean(0)
            products += float((own * whole).sum())
            squares += float((whole * whole).sum())
        shares.append(products / squares)
    found = logit_shares(model, batch)
    assert [found.embedding, *found.attention, *found.feed_forward] == pytest.approx(
        [shares[0], *shares[1::2], *shares[2::2]]
    )
    assert sum([found.embedding, *found.attention, *found.feed_forward]) == pytest.approx(1)


def test_a_silent_sublayer_writes_nothing():
    model, batch = model_of("ggd", BIJECTION), held_out(BIJECTION, 16)
    layer = model.body.layers[1]
    with torch.no_grad():
        layer.mlp.down_proj.weight.zero_()
    found = logit_shares(model, batch)
    assert found.feed_forward[1] == pytest.approx(0, abs=1e-12)
    assert found.feed_forward[0] != 0
    with torch.no_grad():
        layer.self_attn.o_proj.weight.zero_()
    assert logit_shares(model, batch).attention[1] == pytest.approx(0, abs=1e-12)


def test_only_models_of_tunnels_with_attention():
    batch = held_out(FILTER, 16)
    with pytest.raises(NotApplicableError, match="models of tunnels"):
        logit_shares(language_model(), batch)
    with pytest.raises(NotApplicableError, match="no attention"):
        logit_shares(model_of("lstm"), batch)
