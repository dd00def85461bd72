"""SULA: tables of the task by enumeration, and what the sampler draws."""

import itertools
import math

import pytest
import torch

from bayesattn.probes.llm import sula
from bayesattn.probes.llm.sula import ALL_WORDS, WORDS

PAIR = ("dax", "lug")
LABELS = (*PAIR, "mip", "wug")
# k: E[H_post], E[H_pred], accuracy, E[H_post of who does not know of coins]; derived, not reported
TABLE = {
    0: (1.000000, 1.000000, 0.5, 1.0),
    1: (0.468996, 0.680077, 0.9, 0.46900),
    2: (0.257914, 0.589327, 0.9, 0.54751),
    4: (0.078061, 0.503966, 0.972, 0.42278),
    8: (0.008109, 0.472504, 0.99727, 0.31548),
}
FIXED = {
    0.6: (1.0, 0.890492, 0.646017, 0.404663, 0.230959),
    0.7: (1.0, 0.622634, 0.207439, 0.054079, 0.012758),
    0.9: (1.0, 0.095017, 0.002152, 3.9e-5, 1e-6),
}


def h2(p):
    return -sum(x * math.log2(x) for x in (p, 1 - p) if x > 0)


def by_enumeration(k, alpha):
    """All label sequences for both latent labels, one after another."""
    post, pred, right, coins = 0.0, 0.0, 0.0, 0.0
    for labels in itertools.product((0, 1), repeat=k):
        likelihood = [
            math.prod(alpha if label == latent else 1 - alpha for label in labels)
            for latent in (0, 1)
        ]
        p = likelihood[0] / sum(likelihood)
        chance = sum(likelihood) / 2
        post += chance * h2(p)
        pred += chance * h2(alpha * p + (1 - alpha) * (1 - p))
        right += max(likelihood) / 2
        coins += h2(p) / 2**k
    return post, pred, right, coins


def expectations(k, alpha=0.9):
    """The same by the formulas of the task: sums over the number of labels that are right."""
    right = torch.arange(k + 1).double()
    ways = torch.tensor([float(math.comb(k, n)) for n in range(k + 1)]).double()
    chance = ways * alpha**right * (1 - alpha) ** (k - right)
    difference = 2 * right - k
    bits = sula.binary_entropy(sula.posterior(difference, alpha))
    predicted = sula.binary_entropy(sula.predictive(difference, alpha))
    hit = (difference > 0).double() + 0.5 * (difference == 0)
    return tuple(
        float(x) for x in (chance @ bits, chance @ predicted, chance @ hit, ways @ bits / 2**k)
    )


@pytest.mark.parametrize("k", TABLE)
def test_expectations_are_the_table(k):
    found, expected = expectations(k, 0.9), TABLE[k]
    assert found[:2] == pytest.approx(expected[:2], abs=1e-6)
    assert found[2:] == pytest.approx(expected[2:], abs=1e-5)


@pytest.mark.parametrize(("k", "alpha"), [(0, 0.7), (3, 0.6), (4, 0.9), (7, 0.8)])
def test_expectations_are_sums_over_all_sequences(k, alpha):
    assert expectations(k, alpha) == pytest.approx(by_enumeration(k, alpha), abs=1e-12)


def test_an_ideal_predictor_is_wrong_about_the_posterior():
    floors = [TABLE[k][1] - TABLE[k][0] for k in TABLE]
    found = [pred - post for post, pred, *_ in map(expectations, TABLE)]
    assert found == pytest.approx(floors, abs=2e-6)
    assert sum(found) / len(found) == pytest.approx(0.2866, abs=1e-4)


@pytest.mark.parametrize("alpha", FIXED)
def test_entropies_at_fixed_length_are_the_table(alpha, generator):
    evidence = sula.sample_fixed(ALL_WORDS, generator, count=3, alpha=alpha)
    assert evidence.difference.abs().tolist() == [0] * 3 + [2] * 3 + [4] * 3 + [6] * 3 + [8] * 3
    expected = torch.tensor(FIXED[alpha]).double().repeat_interleave(3)
    assert (evidence.posterior_bits - expected).abs().max() < 6e-7


def test_entropies_follow_from_the_labels_of_each_prompt(generator):
    evidence = sula.sample(ALL_WORDS, generator, count=20, alpha=0.8)
    for at in range(len(evidence.shots)):
        shown = evidence.labels[at, : evidence.shots[at]].tolist()
        odds = math.prod(0.8 / 0.2 if label == 0 else 0.2 / 0.8 for label in shown)
        p = odds / (1 + odds)
        assert float(evidence.posterior_bits[at]) == pytest.approx(h2(p), abs=1e-12)
        predicted = 0.8 * p + 0.2 * (1 - p)
        assert float(evidence.predictive_bits[at]) == pytest.approx(h2(predicted), abs=1e-12)


def test_the_sampler_draws_from_the_task():
    generator = torch.Generator().manual_seed(3)
    evidence = sula.sample(ALL_WORDS, generator, count=40_000, shots=(0, 4), alpha=0.9)
    assert evidence.shots.tolist() == [0] * 40_000 + [4] * 40_000
    four = evidence.shots == 4
    assert float(evidence.posterior_bits[four].mean()) == pytest.approx(TABLE[4][0], abs=3e-3)
    assert float(evidence.predictive_bits[four].mean()) == pytest.approx(TABLE[4][1], abs=1e-3)
    assert float(evidence.labels[four].double().mean()) == pytest.approx(0.5, abs=0.01)
    counts = evidence.words[four].flatten().bincount(minlength=70) / (4 * 40_000)
    assert counts.min() > 0.012 and counts.max() < 0.0165  # 1/70 = 0.0143
    assert len(evidence.query[~four].unique()) == 70


def test_at_fixed_length_neither_label_nor_place_is_preferred(generator):
    evidence = sula.sample_fixed(ALL_WORDS, generator, count=4000)
    uneven = evidence.difference != 0
    assert float((evidence.difference[uneven] > 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    two = evidence.difference.abs() == 4
    fewer = (evidence.labels[two] == (evidence.difference[two] > 0).long()[:, None]).double()
    assert fewer.sum(1).unique().tolist() == [2]
    assert (fewer.mean(0) - 0.25).abs().max() < 0.03


def test_texts_are_the_authors_format():
    words = ("happy", "cruel", "calm", "tense", "serene")
    evidence = sula.Evidence(
        shots=torch.tensor([4, 0, 1]),
        words=torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0], [3, 3, 3, 3]]),
        labels=torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]]),
        query=torch.tensor([4, 2, 0]),
        alpha=0.9,
    )
    lexicon = sula.Lexicon(words, (0, 1, 2, 3, 4))
    assert evidence.texts(lexicon, PAIR) == [
        "happy: lug, cruel: lug, calm: dax, tense: lug. serene:",
        "calm:",
        "tense: dax. happy:",
    ]
    assert evidence.difference.tolist() == [-2, 0, 1]  # what stands beyond the shots is not shown
    masked = evidence.texts(lexicon, PAIR, masked_word="word", masked_label="label")
    assert masked[2] == "word: label. happy:"


def test_a_seed_repeats_and_another_does_not():
    def texts(seed):
        evidence = sula.sample(ALL_WORDS, torch.Generator().manual_seed(seed), count=5)
        return evidence.texts(ALL_WORDS, PAIR)

    assert texts(1) == texts(1) != texts(2)


def test_only_opening_words_begin_a_prompt(generator):
    lexicon = sula.Lexicon(WORDS, (3, 5))
    evidence = sula.sample(lexicon, generator, count=30)
    first = torch.where(evidence.shots > 0, evidence.words[:, 0], evidence.query)
    assert set(first.tolist()) == {3, 5}
    assert len(evidence.query[evidence.shots > 0].unique()) > 20


def test_there_are_seventy_words():
    assert len(WORDS) == len(set(WORDS)) == 70


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "1 or more prompts of each kind, not 0"),
        ({"count": 1, "alpha": 0.5}, "alpha must lie between 0.5 and 1, not 0.5"),
        ({"count": 1, "alpha": 1.0}, "alpha must lie between 0.5 and 1, not 1.0"),
        ({"count": 1, "shots": (2, -1)}, "numbers of shots must be 0 or more"),
    ],
)
def test_bad_designs_are_refused(options, message, generator):
    with pytest.raises(ValueError, match=message):
        sula.sample(ALL_WORDS, generator, **options)


@pytest.mark.parametrize("shots", [0, 3])
def test_a_fixed_number_of_pairs_is_even(shots, generator):
    with pytest.raises(ValueError, match="must be even and at least 2"):
        sula.sample_fixed(ALL_WORDS, generator, count=1, shots=shots)


@pytest.fixture
def evidence(generator):
    return sula.sample(ALL_WORDS, generator, count=300)


def made(evidence):
    generator = torch.Generator().manual_seed(9)
    return {
        name: sula.condition(name, evidence, ALL_WORDS, LABELS, generator)
        for name in (sula.MAIN, *sula.CONTROLS)
    }


def test_remap_changes_the_labels_and_nothing_else(evidence):
    found = made(evidence)
    renamed = [
        text.replace(": dax", ": mip").replace(": lug", ": wug") for text in found[sula.MAIN].texts
    ]
    assert found["remap"].texts == renamed and found["remap"].pair == ("mip", "wug")
    assert (found["remap"].posterior_bits == found[sula.MAIN].posterior_bits).all()


def test_masked_words_leave_the_evidence(evidence):
    found = made(evidence)
    for text, masked in zip(found[sula.MAIN].texts, found["mask_words"].texts, strict=True):
        *pairs, query = text.replace(". ", ", ").split(", ")
        labels = [pair.split(": ")[1] for pair in pairs]
        shown = ", ".join(f"word: {label}" for label in labels)
        assert masked == (f"{shown}. {query}" if shown else query)
    assert (found["mask_words"].posterior_bits == found[sula.MAIN].posterior_bits).all()
    assert (found["mask_words"].predictive_bits == evidence.predictive_bits).all()


def test_masked_labels_leave_none(evidence):
    found = made(evidence)["mask_labels"]
    assert not any("dax" in text or "lug" in text for text in found.texts)
    assert (found.posterior_bits == 1).all() and (found.predictive_bits == 1).all()
    assert (found.unaware_bits == evidence.posterior_bits).all()


def test_coins_tell_nothing_but_look_like_evidence(evidence):
    found = made(evidence)["shuffled"]
    assert (found.posterior_bits == 1).all() and (found.predictive_bits == 1).all()
    for k in (1, 2, 4, 8):
        expected = expectations(k)[3]
        own = float(found.unaware_bits[evidence.shots == k].mean())
        assert own == pytest.approx(expected, abs=0.08), k
    # the words are those of the task, the labels are not
    words = [[pair.split(":")[0] for pair in text.split(", ")] for text in found.texts]
    other = [
        [pair.split(":")[0] for pair in text.split(", ")]
        for text in made(evidence)[sula.MAIN].texts
    ]
    assert words[-1][:7] == other[-1][:7]
    assert found.texts != made(evidence)[sula.MAIN].texts


def test_an_unknown_condition_is_refused(evidence):
    with pytest.raises(ValueError, match="no condition 'mask': choose one of main, remap"):
        sula.condition("mask", evidence, ALL_WORDS, LABELS)
