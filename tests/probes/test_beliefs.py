"""Planted beliefs are read, tables of words are not, and nulls are what they are called."""

import json
from collections import defaultdict

import pytest
import torch

from bayesattn.probes import beliefs as probe
from bayesattn.probes.beliefs import (
    ALL_LAYERS,
    FOLDS,
    belief_readout,
    best_function,
    exchanged,
    fold_words,
    measure_beliefs,
    number_words,
    read,
)
from bayesattn.probes.measured import held_out
from bayesattn.tunnels import HMM, RRXOR, Bijection, Mess3
from tests.probes.common import model_of

PROCESS = Mess3(6)
LATER = slice(2, None)
"""Steps that have words enough: of one token there are 3, of two 9, of three 27."""


@pytest.fixture(scope="module")
def batch():
    return held_out(PROCESS, 200)


@pytest.fixture(scope="module")
def exact(batch):
    return PROCESS.beliefs(batch.inputs)


@pytest.fixture(scope="module")
def words(batch):
    return number_words(batch.inputs, batch.scored)


@pytest.mark.parametrize("tunnel", [PROCESS, HMM(2, 2, 3), HMM(2, 2, 3, header="tokens")], ids=repr)
def test_words_are_the_same_where_everything_up_to_there_is(tunnel):
    batch = held_out(tunnel, 40)
    inputs = torch.cat([batch.inputs, batch.inputs[:7]])  # some sequences twice
    numbers = number_words(inputs, batch.scored)
    seen = {}
    for row, sequence in enumerate(inputs.tolist()):
        for step, at in enumerate(batch.scored.tolist()):
            number = int(numbers[row, step])
            assert seen.setdefault(str(sequence[: at + 1]), number) == number
    assert sorted(seen.values()) == list(range(len(seen)))


def test_every_word_is_in_one_fold_and_folds_are_of_like_size(words):
    folds = fold_words(words)
    parts = defaultdict(set)
    for word, fold in zip(words.flatten().tolist(), folds.flatten().tolist(), strict=True):
        parts[word].add(fold)
    assert all(len(part) == 1 for part in parts.values())
    short = {word for word, part in parts.items() if part == {-1}}
    assert short == set(range(3 + 9))  # in every fit
    sizes = torch.tensor([next(iter(parts[word])) for word in parts.keys() - short]).bincount()
    assert len(sizes) == FOLDS and sizes.min() > sum(sizes) / FOLDS / 2


def test_what_is_read_is_least_squares_on_the_other_folds(exact, words, generator):
    x = torch.randn(*exact.shape[:2], 5, generator=generator, dtype=torch.float64)
    folds = fold_words(words)
    told = read(x, exact, folds)
    for fold in range(FOLDS):
        out = folds == fold
        ones = torch.ones(int((~out).sum()), 1, dtype=torch.float64)
        # the penalty, a thousandth of the variance, moves the solution by about as much
        slow = torch.linalg.lstsq(torch.cat([x[~out], ones], 1), exact[~out]).solution
        expected = x[out] @ slow[:-1] + slow[-1]
        later = told[out[:, LATER]]
        torch.testing.assert_close(later, expected, rtol=0, atol=1e-3)


def test_exchanged_beliefs_are_those_of_words_as_long(exact, words):
    (others,) = exchanged(exact, words, 5)
    assert others.shape == (*exact.shape[:2], 5, 3)
    assert not torch.equal(others[:, :, 0], others[:, :, 1])
    for at in range(5):
        for step in range(PROCESS.length):
            own, theirs = exact[:, step], others[:, step, at]
            taken = {}  # a word takes the belief of one word, everywhere
            for word, belief in zip(words[:, step].tolist(), theirs.tolist(), strict=True):
                assert taken.setdefault(word, belief) == belief
            assert len(taken) == len(words[:, step].unique())
            pairs = (sorted(map(tuple, x)) for x in (taken.values(), own.unique(dim=0).tolist()))
            assert {*next(pairs)} == {*next(pairs)}


def test_planted_beliefs_are_read_and_stand_out_from_those_of_others(exact, words, generator):
    axes = torch.randn(3, 20, generator=generator, dtype=torch.float64)
    noise = 0.01 * torch.randn(*exact.shape[:2], 20, generator=generator)
    found = belief_readout(exact @ axes + noise, exact, words, states="here", permutations=19)
    assert (found.states, found.width) == ("here", 20)
    assert found.r_squared.value > 0.99 and found.r_squared.p == 0.05
    assert found.error.value < 0.01 and found.error.p == 0.05
    assert found.r_squared.nulls["other words"] < 0 < found.error.nulls["other words"]
    low, high = found.r_squared.interval
    assert low < found.r_squared.value < high
    scored = exact[:, LATER]
    spread = (scored - scored.mean((0, 1))).square().sum(-1).mean()
    assert found.error.value == pytest.approx((1 - found.r_squared.value) * spread.item())


def test_the_null_is_the_same_measurement_of_exchanged_beliefs(exact, words):
    x = exact[..., :2]
    found = belief_readout(x, exact, words, permutations=7)
    (others,) = exchanged(exact, words, 7)
    alone = [belief_readout(x, others[:, :, at], words) for at in range(7)]
    for kind in ("r_squared", "error"):
        expected = sum(getattr(one, kind).value for one in alone) / 7
        assert getattr(found, kind).nulls["other words"] == pytest.approx(expected)


def test_beliefs_of_other_sequences_are_not_read(exact, words, generator):
    axes = torch.randn(3, 20, generator=generator, dtype=torch.float64)
    others = exact[torch.randperm(len(exact), generator=generator)] @ axes
    found = belief_readout(others, exact, words, permutations=19)
    assert abs(found.r_squared.value - found.r_squared.nulls["other words"]) < 0.1
    assert found.r_squared.value < 0 and found.r_squared.p > 0.05


def test_a_table_of_words_tells_nothing_of_words_that_were_held_out(exact, words):
    """Whole sequences held out would hold words that the table knows."""
    table = torch.nn.functional.one_hot(words).double()
    found = belief_readout(table, exact, words)
    assert found.r_squared.value < 0


def test_permutations_in_small_parts_are_as_many(exact, words, monkeypatch):
    x = exact[..., :2]
    whole = belief_readout(x, exact, words, permutations=19)
    monkeypatch.setattr(probe, "AT_ONCE", 1)
    parts = belief_readout(x, exact, words, permutations=19)
    assert parts.r_squared.p == whole.r_squared.p == 0.05
    for kind in ("r_squared", "error"):
        nulls = [getattr(one, kind).nulls["other words"] for one in (whole, parts)]
        assert nulls[0] == pytest.approx(nulls[1], abs=0.03)


def test_the_best_function_of_the_next_token_is_the_mean_of_words_alike():
    process = RRXOR(6)
    batch = held_out(process, 100)
    exact = process.beliefs(batch.inputs)
    groups = defaultdict(list)
    for posterior, belief in zip(batch.posterior.flatten(0, 1), exact.flatten(0, 1), strict=True):
        groups[round(posterior[0].item(), 6)].append(belief)
    left = sum(
        (torch.stack(group) - torch.stack(group).mean(0)).square().sum()
        for group in groups.values()
    )
    spread = (exact - exact.mean((0, 1))).square().sum()
    found = best_function(batch.posterior, exact)
    assert found.r_squared.value == pytest.approx(float(1 - left / spread), abs=1e-12)
    assert found.error.value == pytest.approx(float(left / 600), abs=1e-12)


def layers_of(found):
    return {one.states: one for one in found.readouts}


def test_every_layer_of_a_network_beside_its_nulls(batch, exact):
    model, initial = model_of("ggd", PROCESS), model_of("ggd", PROCESS, seed=1)
    found = measure_beliefs(model, PROCESS, batch, initial, permutations=3)
    by_name = layers_of(found)
    assert [*by_name] == ["embedding", "layer 0", "layer 1", ALL_LAYERS]
    assert found.whole is by_name[ALL_LAYERS] and found.whole.width == 3 * 16
    assert torch.equal(found.exact, exact[:, LATER]) and found.steps == [2, 3, 4, 5]
    same = measure_beliefs(initial, PROCESS, batch, permutations=1)
    for name, one in by_name.items():
        assert (
            {*one.r_squared.nulls}
            == {*one.error.nulls}
            == {
                "other words",
                "next token",
                "function of next token",
                "own logits",
                "untrained",
            }
        )
        other = layers_of(same)[name]
        assert one.r_squared.nulls["untrained"] == pytest.approx(other.r_squared.value)
        assert one.error.nulls["untrained"] == pytest.approx(other.error.value)
    assert same.untrained is None
    torch.testing.assert_close(same.trained, found.untrained)
    error = (found.trained - found.exact).square().sum(-1).mean().item()
    assert found.whole.error.value == pytest.approx(error, rel=1e-12)
    assert json.loads(json.dumps(found.to_json()))["words"] == found.words


def test_the_embedding_knows_the_last_token_only(batch, exact, words):
    found = measure_beliefs(model_of("uniform", PROCESS), PROCESS, batch, permutations=1)
    last = torch.nn.functional.one_hot(batch.inputs).double()
    expected = belief_readout(last, exact, words).r_squared.value
    assert found.readouts[0].r_squared.value == pytest.approx(expected, abs=0.01)
    assert found.readouts[0].r_squared.value < found.whole.r_squared.value


def test_the_next_token_tells_all_in_mess3_and_a_part_in_rrxor(batch):
    nulls = measure_beliefs(model_of("ggd", PROCESS), PROCESS, batch, permutations=1).whole
    assert nulls.r_squared.nulls["next token"] > 0.999
    assert nulls.r_squared.nulls["function of next token"] == pytest.approx(1)
    process = RRXOR(6)
    found = measure_beliefs(model_of("ggd", process), process, held_out(process, 200))
    nulls = found.whole.r_squared.nulls
    assert nulls["next token"] < nulls["function of next token"] < 0.6


@pytest.mark.parametrize("name", ["lstm", "mamba", "mlp"])
def test_layers_without_attention_are_read_as_well(name):
    tunnel = HMM(3, 3, 4)
    found = measure_beliefs(model_of(name, tunnel), tunnel, held_out(tunnel, 64), permutations=1)
    assert found.whole.r_squared.nulls["next token"] > 0.999  # what is asked for is the belief
    assert found.whole.r_squared.value < 1


def test_what_cannot_be_measured_is_refused_in_one_sentence():
    bijection = Bijection(4)
    with pytest.raises(ValueError, match="not defined in the bijection tunnel: take one of hmm"):
        measure_beliefs(model_of("ggd", bijection), bijection, held_out(bijection, 50))
    with pytest.raises(ValueError, match="sequences: 3 is too few"):
        measure_beliefs(model_of("ggd", PROCESS), PROCESS, held_out(PROCESS, 3))
    short = Mess3(1)
    with pytest.raises(ValueError, match="words of one length: 3 is too few"):
        measure_beliefs(model_of("ggd", short), short, held_out(short, 50))
