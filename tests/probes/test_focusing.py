"""Planted focus is found where it was planted, and noise is not taken for focus."""

import pytest
import torch
from scipy.stats import binom

from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.focusing import (
    focus,
    measure_focusing,
    normalised_entropy,
    query_key_cosines,
    query_share,
    roles,
    visible_keys,
)
from bayesattn.probes.measured import NotApplicableError, held_out, plain
from bayesattn.tunnels import HMM, Bijection, Recall, Revision, StickyChain
from tests.probes.common import BIJECTION, FILTER, model_of

CAUSAL = torch.tril(torch.ones(6, 6)).bool()


def even(visible, batch=4, heads=2):
    rows = visible.double() / visible.sum(-1, keepdim=True)
    return rows[None, :, None].expand(batch, -1, heads, -1)


def test_entropy_of_even_and_of_pointed_attention():
    assert normalised_entropy(even(CAUSAL), CAUSAL) == pytest.approx(1)
    pointed = torch.eye(6)[None, :, None].double()
    assert normalised_entropy(pointed, CAUSAL)[0, :, 0].tolist() == [1, 0, 0, 0, 0, 0]
    halves = torch.zeros(1, 6, 1, 6).double()
    halves[..., :2] = 0.5
    assert float(normalised_entropy(halves, CAUSAL)[0, 3, 0]) == pytest.approx(0.5)


def test_columns_that_every_query_sees_alike_are_not_the_queries_own(generator):
    columns = torch.randn(5, 1, 2, 6, generator=generator).expand(-1, 6, -1, -1)
    assert query_share(columns, CAUSAL) == pytest.approx(0, abs=1e-12)
    noise = torch.randn(50, 6, 2, 6, generator=generator)
    assert query_share(noise, torch.ones(6, 6).bool()) == pytest.approx(5 / 6, abs=0.02)


@pytest.mark.parametrize(
    "tunnel",
    [
        Bijection(4, 9, replacement=True),
        Bijection(5),
        Recall(pairs=3, keys=5, values=6, filler=2),
        HMM(3, 4, 5),
        HMM(3, 4, 5, header="tokens"),
        Revision(4, 3, 5),
    ],
    ids=str,
)
def test_roles_by_a_loop(tunnel, generator):
    batch = tunnel.sample(6, generator)
    found = roles(tunnel, batch)
    assert not bool((found["consistent"] & found["eliminated"]).any())
    for n in range(6):
        for step, position in enumerate(batch.scored.tolist()):
            for at in range(tunnel.positions):
                role = slow_role(tunnel, batch, n, step, at)
                assert bool(found["consistent"][n, step, at]) == (role == "consistent")
                assert bool(found["eliminated"][n, step, at]) == (role == "eliminated")
                assert role is None or at < position


def slow_role(tunnel, batch, n, step, at):
    inputs = batch.inputs[n]
    if isinstance(tunnel, Bijection):
        if at >= 2 * step:
            return None
        key = int(inputs[at if at % 2 == 0 else at - 1])
        return "consistent" if key == int(inputs[2 * step]) else "eliminated"
    if isinstance(tunnel, Recall):
        if at >= 4 * tunnel.pairs:
            return None
        asked = int(inputs[int(batch.scored[step]) - 1])
        return "consistent" if int(inputs[at // 4 * 4 + 1]) == asked else "eliminated"
    if isinstance(tunnel, Revision):
        about = at if at < tunnel.hypotheses else None
    elif tunnel.header == "rows":
        about = at % tunnel.states if at < 2 * tunnel.states else None
    else:
        about = None
        if 1 <= at <= 9:
            about = (at - 1) // 3
        elif 11 <= at <= 22:
            about = (at - 11) // 4
    if about is None:
        return None
    likely = float(batch.posterior[n, step, about]) > 1 / tunnel.outcomes
    return "consistent" if likely else "eliminated"


def planted(batch, masks, share, visible):
    """Attention with `share` of its mass on what is consistent, where something is."""
    rest = visible & ~masks["consistent"]
    on = masks["consistent"] / masks["consistent"].sum(-1, keepdim=True).clamp(min=1)
    off = rest / rest.sum(-1, keepdim=True)
    some = masks["consistent"].any(-1, keepdim=True)
    return torch.where(some, share * on + (1 - share) * off, off)[:, :, None].double()


@pytest.mark.parametrize("share", [0.9, 0.4])
def test_planted_mass_is_found(share, generator):
    tunnel = Bijection(6, 9, replacement=True)
    batch = tunnel.sample(64, generator)
    masks = roles(tunnel, batch)
    visible = torch.tril(torch.ones(17, 17)).bool()[batch.scored]
    attention = planted(batch, masks, share, visible)
    noise = torch.randn(64, 9, 1, 17, generator=generator)
    cosine = 0.1 * noise + 0.5 * masks["consistent"][:, :, None]
    found = focus(attention, cosine, masks, visible, permutations=99)
    mass = found.mass["consistent"]
    assert mass.value == pytest.approx(share) and mass.p == 0.01
    assert mass.interval == pytest.approx((share, share))
    assert mass.nulls["other sequences"] < share
    assert found.alignment.value == pytest.approx(0.5, abs=0.02) and found.alignment.p == 0.01
    assert abs(found.alignment.nulls["other sequences"]) < 0.25
    steps = found.by_step["consistent"]
    assert steps[0] != steps[0] and steps[-1] == pytest.approx(share)
    assert plain(found)["by_step"]["consistent"][0] is None


def test_attention_to_places_is_not_focus(generator):
    """At level 5%: rows that depend on the step alone, or on nothing, are called focused 10 times
    in 200."""
    tunnel = Bijection(4, 5, replacement=True)
    visible = torch.tril(torch.ones(9, 9)).bool()[tunnel.scored]
    called = aligned = 0
    for draw in range(200):
        batch = tunnel.sample(24, generator)
        masks = roles(tunnel, batch)
        local = 1.5 if draw % 2 else 0.0
        scores = torch.randn(24, 5, 1, 9, generator=generator) + local * torch.arange(9.0)
        attention = scores.masked_fill(~visible[None, :, None], -torch.inf).softmax(-1)
        found = focus(attention, scores, masks, visible, permutations=39, seed=draw)
        called += found.mass["consistent"].p <= 0.05
        aligned += found.alignment.p <= 0.05
    for count in (called, aligned):
        assert binom.ppf(0.001, 200, 0.05) <= count <= binom.ppf(0.999, 200, 0.05)


def test_every_layer_and_head_beside_its_nulls():
    model, initial = model_of("grouped", BIJECTION), model_of("grouped", BIJECTION, seed=1)
    found = measure_focusing(
        model, BIJECTION, held_out(BIJECTION, 32), initial=initial, permutations=9
    )
    assert [(f.layer, f.head) for f in found] == [
        (layer, head) for layer in (0, 1) for head in (None, 0, 1, 2, 3)
    ]
    for layer in (0, 1):
        together, *heads = [f for f in found if f.layer == layer]
        mean = sum(f.mass["consistent"].value for f in heads) / 4
        assert together.mass["consistent"].value == pytest.approx(mean)
        assert together.entropy.value == pytest.approx(sum(f.entropy.value for f in heads) / 4)
        assert {"even", "other sequences", "untrained"} <= together.mass["eliminated"].nulls.keys()
        assert together.entropy.nulls["even"] == 1 and len(together.by_step["entropy"]) == 6
    itself = measure_focusing(
        model, BIJECTION, held_out(BIJECTION, 32), initial=model, permutations=9
    )[0]
    assert itself.entropy.nulls["untrained"] == pytest.approx(itself.entropy.value)


def test_cosines_by_a_loop():
    model = model_of("grouped", BIJECTION)
    batch = BIJECTION.sample(3, torch.Generator().manual_seed(0))
    found = query_key_cosines(model, batch)[1]
    captured = capture(model, batch.inputs)
    q, k = captured["layers.1.q"], captured["layers.1.k"]
    for n, step, head, key in ((0, 0, 0, 3), (1, 4, 3, 2), (2, 5, 2, 10)):
        one, other = q[n, 2 * step, head], k[n, key, head // 2]
        expected = float(one @ other / (one.norm() * other.norm()))
        assert float(found[n, step, head, key]) == pytest.approx(expected, abs=1e-5)


def test_a_window_is_all_a_query_sees():
    model = model_of("window")
    batch = FILTER.sample(4, torch.Generator().manual_seed(0))
    visible = visible_keys(anatomy(model), 0, batch)
    assert visible.sum(-1).tolist() == [5] * 6
    assert visible[0].nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6]


def test_without_roles_there_is_entropy_only():
    tunnel = StickyChain(length=6)
    (first, *_) = measure_focusing(model_of("ggd", tunnel), tunnel, held_out(tunnel, 16))
    assert first.mass == {} and first.alignment is None and 0 < first.entropy.value <= 1
    never = measure_focusing(
        model_of("ggd", Bijection(5)), Bijection(5), held_out(Bijection(5), 16)
    )[0]
    assert "consistent" not in never.mass and never.alignment is None


def test_what_does_not_apply():
    with pytest.raises(NotApplicableError, match="an mlp has no attention"):
        measure_focusing(model_of("mlp"), FILTER, held_out(FILTER, 16))
    with pytest.raises(ValueError, match="too few to tell from chance, take 16"):
        measure_focusing(model_of("ggd"), FILTER, held_out(FILTER, 8))
