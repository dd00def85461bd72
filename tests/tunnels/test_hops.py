"""Hops against every completion of the revealed pairs, in exact fractions."""

import math
from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest
import torch
from torch import Generator

from bayesattn.bits import entropy
from bayesattn.tunnels import Hops
from bayesattn.tunnels.walks import belief, orders_of, walk

MODES = ("direct", "cot", "filler", "shuffled", "short")


def completions(known, size):
    """All permutations that hold the known pairs."""
    keys = [key for key in range(size) if key not in known]
    values = [value for value in range(size) if value not in known.values()]
    for order in permutations(values):
        yield {**known, **dict(zip(keys, order, strict=True))}


def hop(permutation, symbol, count):
    for _ in range(count):
        symbol = permutation[symbol]
    return symbol


def by_enumeration(known, size, start, hops, told=()):
    """Posterior of π^hops(start), given that π^m(start) = s for each (m, s) of `told`."""
    found = Counter(
        hop(permutation, start, hops)
        for permutation in completions(known, size)
        if all(hop(permutation, start, m) == symbol for m, symbol in told)
    )
    return [Fraction(found[symbol], found.total()) for symbol in range(size)]


def parse(tunnel, row):
    """Pairs, query, number of hops and scratch of one sequence, by its layout in words."""
    size, tokens = tunnel.alphabet, row.tolist()
    pairs, rest = tokens[: 2 * tunnel.revealed], tokens[2 * tunnel.revealed :]
    query, answer, blank = (2 * size + tunnel.hops + mark for mark in range(3))
    assert rest[0] == query and rest[-1] == answer
    known = {key: value - size for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
    assert len(known) == len(set(known.values())) == tunnel.revealed
    scratch = [None if token == blank else token for token in rest[3:-1]]
    return known, rest[1], rest[2] - 2 * size + 1, scratch


def same(found, expected):
    """Equal as fractions: floats name the fraction of a small denominator that they stand for."""
    return [Fraction(p).limit_denominator(10**6) for p in found] == expected


def test_every_completion_agrees_with_the_recursion(generator):
    """More than 500 cases, from nothing but one pair to everything revealed."""
    cases = 0
    for size in range(2, 8):
        for revealed in range(1, size + 1):
            tunnel = Hops(size, 6, revealed, "direct")
            batch = tunnel.sample(25, generator)
            for row, posterior in zip(batch.inputs, batch.posterior[:, 0], strict=True):
                known, query, hops, scratch = parse(tunnel, row)
                assert query in known and scratch == []
                assert same(posterior.tolist(), by_enumeration(known, size, query, hops))
                cases += 1
    assert cases >= 500


@pytest.mark.parametrize("mode, stride", [("cot", 1), ("short", 2)])
def test_every_written_place_has_its_own_posterior(mode, stride, generator):
    cases = 0
    for size, revealed in ((3, 1), (4, 2), (5, 1), (5, 3), (6, 2), (6, 4), (6, 6)):
        tunnel = Hops(size, 6, revealed, mode)
        batch = tunnel.sample(80, generator)
        for row, posterior in zip(batch.inputs, batch.posterior, strict=True):
            known, query, hops, scratch = parse(tunnel, row)
            told = []
            for place, symbol in enumerate(scratch):
                at = stride * (place + 1)
                if at >= hops:
                    assert symbol is None
                    assert posterior[place].tolist() == [0.0] * size + [1.0]
                    continue
                expected = by_enumeration(known, size, query, at, told)
                assert same(posterior[place].tolist(), [*expected, Fraction(0)])
                told.append((at, symbol))
                cases += 1
            expected = by_enumeration(known, size, query, hops, told)
            assert same(posterior[-1].tolist(), [*expected, Fraction(0)])
    assert cases >= 500


def test_scratch_of_another_sequence_tells_of_that_one_only(generator):
    """Over all permutations and first keys of the other; the answer is as if there were none."""
    size = 4
    tunnel = Hops(size, 5, 2, "shuffled")
    batch = tunnel.sample(60, generator)
    others = [
        [hop(order, start, m) for m in range(6)]
        for order in permutations(range(size))
        for start in range(size)
    ]
    for row, posterior in zip(batch.inputs, batch.posterior, strict=True):
        known, query, hops, scratch = parse(tunnel, row)
        possible = others
        for place, symbol in enumerate(scratch[: hops - 1]):
            found = Counter(chain[place + 1] for chain in possible)
            expected = [Fraction(found[s], found.total()) for s in range(size)]
            assert same(posterior[place].tolist(), [*expected, Fraction(0)])
            possible = [chain for chain in possible if chain[place + 1] == symbol]
        alone = by_enumeration(known, size, query, hops)
        assert same(posterior[-1].tolist(), [*alone, Fraction(0)])


def test_the_first_unit_vector():
    """Revealed 0→1, 1→2 of four symbols, from 0."""
    expected = {1: {1: 1}, 2: {2: 1}, 3: {0: 0.5, 3: 0.5}, 4: {0: 0.5, 1: 0.5}, 5: {1: 0.5, 2: 0.5}}
    bits = {1: 0.0, 2: 0.0, 3: 1.0, 4: 1.0, 5: 1.0}
    tunnel = Hops(4, 5, 2, "direct")
    for hops, posterior in expected.items():
        inputs = torch.tensor([[0, 4 + 1, 1, 4 + 2, 13, 0, 8 + hops - 1, 14]])
        found = tunnel.exact(inputs)[0, 0]
        assert found.tolist() == [posterior.get(symbol, 0.0) for symbol in range(4)]
        assert abs(float(entropy(found)) - bits[hops]) < 1e-12


@pytest.mark.parametrize("revealed, bits", [(4, 2.6887), (8, 1.5), (12, 0.5), (14, 0.125)])
def test_two_hops_in_closed_form(revealed, bits, generator):
    """E[H] = (V - n) / V · log2(V - n)."""
    assert (16 - revealed) / 16 * math.log2(16 - revealed) == pytest.approx(bits, abs=1e-4)
    batch = Hops(16, 2, revealed, "direct").sample(4000, generator)
    entropies = entropy(batch.posterior)[:, 0]
    assert (entropies[batch.metadata["hops"] == 1] == 0).all()
    two = entropies[batch.metadata["hops"] == 2]
    assert two.mean().item() == pytest.approx(bits, abs=4 * two.std().item() / math.sqrt(len(two)))


@pytest.mark.parametrize(
    "hops, revealed, bits, error, cases",
    [
        (2, 4, 2.703, 0.024, 3000),
        (2, 12, 0.506, 0.014, 3000),
        (4, 4, 3.615, 0.019, 1000),
        (4, 8, 2.970, 0.021, 3000),
        (4, 12, 1.273, 0.013, 4000),
        (4, 14, 0.318, 0.005, 6000),
        (8, 8, 3.41, 0.08, 60),
        (8, 12, 2.044, 0.014, 4000),
        (8, 14, 0.554, 0.006, 6000),
    ],
)
def test_expected_entropies_of_sixteen_symbols(hops, revealed, bits, error, cases, generator):
    """The specification's table, itself a Monte Carlo with the given standard error."""
    tunnel = Hops(16, hops, revealed, "direct")
    order = torch.stack([torch.randperm(16, generator=generator) for _ in range(cases)])
    keys = torch.stack([torch.randperm(16, generator=generator) for _ in range(cases)])
    known = torch.full((cases, 16), -1)
    shown = keys[:, :revealed]
    known.scatter_(1, shown, order.gather(1, shown))
    entropies = []
    for rows in torch.arange(cases).split(max(1, 400_000 // len(orders_of(16 - revealed, hops)))):
        paths = walk(known[rows], shown[rows, 0], hops, orders_of(tunnel.unrevealed, hops))
        posterior = belief(paths[..., hops], torch.ones_like(paths[..., 0]), 16)
        entropies.append(entropy(posterior))
    found = torch.cat(entropies)
    spread = math.hypot(error, found.std().item() / math.sqrt(cases))
    assert found.mean().item() == pytest.approx(bits, abs=4 * spread)


@pytest.mark.parametrize("mode", MODES)
def test_the_layout(mode, generator):
    tunnel = Hops(6, 5, 4, mode)
    batch = tunnel.sample(200, generator)
    places = {"direct": 0, "cot": 4, "filler": 4, "shuffled": 4, "short": 2}[mode]
    assert tunnel.places == places
    assert tunnel.positions == 8 + 3 + places + 1
    assert set(batch.metadata["hops"].tolist()) == {1, 2, 3, 4, 5}
    written = [] if mode in ("direct", "filler") else list(range(11, 11 + places))
    assert tunnel.written.tolist() == written
    assert tunnel.scored.tolist() == [at - 1 for at in written] + [tunnel.positions - 1]
    assert tunnel.outcomes == (7 if written else 6)
    for number, row in enumerate(batch.inputs):
        known, query, hops, scratch = parse(tunnel, row)
        permutation = batch.metadata["permutation"][number].tolist()
        assert all(permutation[key] == value for key, value in known.items())
        assert hops == batch.metadata["hops"][number]
        assert batch.labels[number, -1] == hop(permutation, query, hops)
        stride = 2 if mode == "short" else 1
        if mode in ("cot", "short"):
            truth = [hop(permutation, query, stride * (m + 1)) for m in range(places)]
            shown = [s if stride * (m + 1) < hops else None for m, s in enumerate(truth)]
            assert scratch == shown
        elif mode == "filler":
            assert scratch == [None] * 4
        labels = [6 if symbol is None else symbol for symbol in scratch]
        assert batch.labels[number, :-1].tolist() == (labels if written else [])


def test_shuffled_scratch_is_that_of_the_next_sequence(generator):
    tunnel = Hops(7, 5, 5, "shuffled")
    batch = tunnel.sample(50, generator)
    for number in range(49):
        *_, hops, scratch = parse(tunnel, batch.inputs[number])
        following = batch.metadata["chain"][number + 1, 1:hops].tolist()
        assert scratch[: hops - 1] == following


@pytest.mark.parametrize("mode", ["cot", "short"])
def test_a_symbol_that_contradicts_the_pairs_is_believed(mode):
    """Revealed 0→1, 1→2, 2→0, 3→4 of six symbols: a written 3 leads to 4, and on from there."""
    tunnel = Hops(6, 4, 4, mode)
    pairs = [0, 6 + 1, 1, 6 + 2, 2, 6 + 0, 3, 6 + 4]
    query, answer, blank = 16, 17, 18
    scratch = [3, 4, 5] if mode == "cot" else [3]
    inputs = torch.tensor([[*pairs, query, 0, 12 + 3, *scratch, answer]])
    found = tunnel.exact(inputs)[0]
    told = [(1, 4), (2, 5)] if mode == "cot" else []
    known = {0: 1, 1: 2, 2: 0, 3: 4}
    rest = 3 if mode == "cot" else 2
    expected = by_enumeration(known, 6, 3, rest, told)
    assert same(found[-1].tolist(), [*expected, Fraction(0)])
    nothing = torch.tensor([[*pairs, query, 0, 12 + 3, *[blank] * len(scratch), answer]])
    assert torch.equal(tunnel.exact(nothing)[0, -1], tunnel.marginal(inputs)[0])
    assert tunnel.marginal(inputs)[0].tolist() == [0, 1, 0, 0, 0, 0, 0]


def test_marginal_is_what_direct_predicts(generator):
    cot = Hops(6, 4, 3, "cot").sample(40, generator)
    direct, filler = Hops(6, 4, 3, "direct"), Hops(6, 4, 3, "filler")
    found = Hops(6, 4, 3, "cot").marginal(cot.inputs)
    assert (found[:, 6] == 0).all()
    without = torch.cat([cot.inputs[:, :9], cot.inputs[:, -1:]], dim=1)
    assert torch.equal(direct.exact(without)[:, 0], found[:, :6])
    filled = cot.inputs.clone()
    filled[:, 9:-1] = filler.vocabulary - 1
    assert torch.equal(filler.exact(filled)[:, 0], found[:, :6])


def test_outcomes_are_spelled_as_tokens(generator):
    tunnel = Hops(5, 4, 3, "cot")
    batch = tunnel.sample(30, generator)
    assert torch.equal(tunnel.spell(batch.labels[:, :-1]), batch.inputs[:, tunnel.written])


def test_one_sequence_is_enough(generator):
    for mode in MODES:
        assert len(Hops(5, 4, 3, mode).sample(1, generator).inputs) == 1


def test_training_and_evaluation_share_no_sequence():
    tunnel = Hops(8, 4)
    one = tunnel.sample(200, Generator().manual_seed(1)).inputs
    other = tunnel.sample(200, Generator().manual_seed(7_000_000_002)).inputs
    assert not {tuple(row) for row in one.tolist()} & {tuple(row) for row in other.tolist()}


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"alphabet": 16, "revealed": 4, "hops": 8}, "3,991,680 ways to go 8 hops.*50,000 at most"),
        ({"alphabet": 6, "revealed": 7}, "no 7 pairs to reveal: choose revealed from 1 to 6"),
        ({"revealed": 0}, "revealed must be an integer of at least 1, not 0"),
        ({"hops": 0}, "hops must be an integer of at least 1"),
        ({"mode": "loud"}, "mode must be one of direct, cot, filler, shuffled, short, not 'loud'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(fields, message):
    with pytest.raises(ValueError, match=message):
        Hops(**fields)


def test_more_hops_than_there_are_tokens_for():
    with pytest.raises(ValueError, match="asks for at most 4 hops and has no tokens for more"):
        Hops(8, 4).stretched(2)
    assert Hops(8, 4).stretched(1) == Hops(8, 4)


@pytest.mark.parametrize("mode", MODES)
def test_sequences_a_few_at_a_time_have_the_same_posteriors(mode, generator, monkeypatch):
    tunnel = Hops(6, 4, 3, mode)
    batch = tunnel.sample(50, generator)
    monkeypatch.setattr("bayesattn.tunnels.hops.ROOM", 6 * 6 * 7)  # seven sequences of six walks
    assert torch.equal(tunnel.exact(batch.inputs), batch.posterior)
    assert len(tunnel.marginal(batch.inputs)) == 50
