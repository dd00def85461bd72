"""Heads that look at places have no bits of content; heads that look keys up are found by loops."""

import math

import pytest
import torch

from bayesattn.probes.capture import capture
from bayesattn.probes.content import content_bits, find_lookups, lookup_mass
from bayesattn.probes.focusing import attention_rows, roles
from bayesattn.probes.measured import NotApplicableError, held_out
from bayesattn.tunnels import Bijection
from tests.probes.common import BIJECTION, FILTER, model_of


def random_rows(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64).softmax(-1)


def test_bits_are_those_of_a_loop(generator):
    rows = random_rows(generator, 6, 3, 2, 5)
    found = content_bits(rows)
    for head in range(2):
        total = 0.0
        for step in range(3):
            mean = rows[:, step, head].mean(0)
            for row in rows[:, step, head]:
                total += float((row * (row / mean).log2()).sum())
        assert float(found[head]) == pytest.approx(total / 18, abs=1e-12)


def test_a_head_that_looks_at_places_has_no_bits_and_one_of_two_keys_has_one(generator):
    places = random_rows(generator, 1, 4, 1, 8).expand(10, -1, -1, -1)
    assert float(content_bits(places)) == pytest.approx(0, abs=1e-12)
    chosen = torch.eye(8)[torch.arange(10) % 2][:, None, None].expand(-1, 4, -1, -1)
    assert float(content_bits(chosen)) == pytest.approx(1.0)


def test_lookup_mass_is_that_of_a_loop(generator):
    batch = held_out(BIJECTION, 12)
    mask = roles(BIJECTION, batch)["consistent"]
    rows = random_rows(generator, *mask.shape[:2], 3, mask.shape[2])
    own = [[] for _ in range(3)]
    for n in range(12):
        for step in range(mask.shape[1]):
            others = [m for m in range(12) if m != n and mask[m, step].any()]
            if not mask[n, step].any() or not others:
                continue
            for head in range(3):
                row = rows[n, step, head]
                foreign = sum(float(row[mask[m, step]].sum()) for m in others) / len(others)
                own[head].append(float(row[mask[n, step]].sum()) - foreign)
    expected = [sum(head) / len(head) for head in own]
    assert lookup_mass(rows, mask).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_perfect_lookup_has_nearly_all_mass_and_attention_to_places_none():
    tunnel = Bijection(40, replacement=True)
    batch = held_out(tunnel, 64)
    mask = roles(tunnel, batch)["consistent"].double()
    perfect = mask / mask.sum(-1, keepdim=True).clamp(min=1)
    place = mask.mean(0, keepdim=True).expand_as(mask)
    found = lookup_mass(torch.stack([perfect, place], 2), mask.bool())
    assert float(found[0]) > 0.9
    # rows that ask for the very places where others find their pairs find their own by luck only
    assert abs(float(found[1])) < 0.05


def test_nothing_is_looked_up_where_no_key_returns():
    tunnel = Bijection(5)
    batch = held_out(tunnel, 16)
    with pytest.raises(NotApplicableError, match="no key returns"):
        find_lookups(model_of("ggd", tunnel), tunnel, batch)
    with pytest.raises(NotApplicableError, match="hmm tunnel"):
        find_lookups(model_of("ggd"), FILTER, held_out(FILTER, 16))


@pytest.mark.parametrize("name", ["ggd", "grouped"])
def test_keys_of_lookups_are_means_over_where_symbols_are_found(name):
    tunnel, model = BIJECTION, model_of(name, BIJECTION)
    batch = held_out(tunnel, 48)
    found = find_lookups(model, tunnel, batch)
    rows, right = attention_rows(model, batch), roles(tunnel, batch)["consistent"]
    masses = {layer: lookup_mass(own, right) for layer, own in rows.items()}
    most = max(float(mass.max()) for mass in masses.values())
    wanted = {
        (layer, head)
        for layer, mass in masses.items()
        for head in range(len(mass))
        if float(mass[head]) >= most / 2
    }
    assert {(one.layer, one.head) for one in found} == wanted
    keys = capture(model, batch.inputs, ["layers.*.k"])
    one = found[0]
    own = keys[f"layers.{one.layer}.k"]
    own = own[:, :, one.head * own.shape[2] // 4].double()
    even, odd = (
        float(
            lookup_mass(rows[one.layer], right & (torch.arange(own.shape[1]) % 2 == at))[one.head]
        )
        for at in (0, 1)
    )
    means = []
    for symbol in range(tunnel.alphabet):
        vectors = [
            own[n, 2 * pair + (odd > even)]
            for n in range(48)
            for pair in range(batch.metadata["keys"].shape[1])
            if batch.metadata["keys"][n, pair] == symbol and 2 * pair + (odd > even) < own.shape[1]
        ]
        means.append(torch.stack(vectors).mean(0))
    assert torch.allclose(one.keys, torch.stack(means), atol=1e-6)
    assert not math.isnan(one.mass)
