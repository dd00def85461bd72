from itertools import pairwise

import numpy as np
import pytest
import torch

from bayesattn.corpora import (
    CorpusError,
    Mixture,
    NeedleMaker,
    Windows,
    load_tokenizer,
    prepare,
    windows,
)
from bayesattn.corpora.sequences import permute, window_starts

WORDS = load_tokenizer("words")
MAKER = NeedleMaker(WORDS)
LENGTH = 128
INDICES = torch.arange(1000, 1400)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return prepare("pydoc", WORDS, tmp_path_factory.mktemp("corpora"))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def is_prompt(row):
    return WORDS.decode(row).startswith("There is an important info hidden inside a lot")


def test_a_prompt_is_followed_by_the_window_as_further_documents(store):
    batch = Mixture(store, MAKER, 0.4, LENGTH, seed=3).batch(INDICES, seeded())
    text = windows(store, "train", LENGTH, INDICES, seed=3)
    tokens, documents = text.tokens, text.documents
    prompts = [is_prompt(row) for row in batch.tokens]
    assert abs(sum(prompts) - 160) < 5 * (400 * 0.4 * 0.6) ** 0.5
    used = set()
    for own, where, prompt in zip(batch.tokens, batch.documents, prompts, strict=True):
        first = int((where == 0).sum()) if prompt else 0
        same = (tokens[:, : LENGTH - first] == own[first:]).all(1)
        same &= (documents[:, : LENGTH - first] + int(prompt) == where[first:]).all(1)
        assert same.any()  # behind a prompt there may be too little to tell windows apart
        if prompt:
            used.add(first)
            key = WORDS.decode(own[:first])[-5:]
            assert key.isdigit() and WORDS.decode(own[:first]).count(key) == 3
    whole = MAKER.shortest + MAKER.answer_length
    assert used == {whole + count * MAKER.unit for count in range(3)}


@pytest.mark.parametrize("share", [0, 0.5])
def test_windows_that_are_cut_alike_stand_together(store, share):
    batch = Mixture(store, MAKER, share, LENGTH).batch(INDICES, seeded())
    cuts = [tuple(row) for row in batch.documents.tolist()]
    runs = 1 + sum(a != b for a, b in pairwise(cuts))
    assert runs == len(set(cuts)) < len(cuts)


def test_what_is_given_is_no_target(store):
    batch = Mixture(store, MAKER, 0.5, LENGTH).batch(INDICES, seeded())
    inside = batch.documents[:, 1:] == batch.documents[:, :-1]
    for row, targets, within in zip(batch.tokens, batch.targets, inside, strict=True):
        left = row[1:][within & ~targets]
        digits = WORDS.decode(left)
        assert digits.isdigit() and len(digits) == 5 if is_prompt(row) else not len(left)
        if is_prompt(row):
            assert WORDS.decode(row).count(digits) >= 3
    assert torch.equal(batch.rows(slice(3, 9)).targets, batch.targets[3:9])
    assert torch.equal(Windows(batch.tokens, batch.documents).targets, inside)


@pytest.mark.parametrize("share", [0, 1])
def test_all_or_nothing(store, share):
    mixture = Mixture(store, MAKER, share, LENGTH)
    batch = mixture.batch(INDICES, seeded())
    assert {is_prompt(row) for row in batch.tokens} == {bool(share)}


def test_a_corpus_alone_needs_no_maker(store):
    batch = Mixture(store, None, 0, LENGTH).batch(INDICES, seeded())
    text = windows(store, "train", LENGTH, INDICES)
    assert sorted(batch.tokens.tolist()) == sorted(text.tokens.tolist())
    assert sorted(batch.documents.tolist()) == sorted(text.documents.tolist())


def test_a_batch_is_a_function_of_indices_and_generator(store):
    mixture = Mixture(store, MAKER, 0.5, LENGTH)
    first, again, other = (mixture.batch(INDICES, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.documents, again.documents)
    assert not torch.equal(first.tokens, other.tokens)


def test_rows_of_a_batch():
    batch = Windows(torch.arange(12).reshape(4, 3), torch.zeros(4, 3, dtype=torch.int64))
    part = batch.rows(slice(1, 3))
    assert len(part) == 2
    assert part.tokens.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert part.documents.shape == (2, 3)
    assert part.to("meta").tokens.is_meta


@pytest.mark.parametrize(
    ("maker", "share", "length", "sentence"),
    [
        (MAKER, 1.5, 128, "between 0 and 1, not 1.5"),
        (None, 0.5, 128, "needs a maker"),
        (MAKER, 0.01, 60, "passkey prompt with its answer has at least"),
        (MAKER, 0.5, 10**9, "fewer than one window of 1,000,000,000"),
    ],
)
def test_what_cannot_be_mixed_is_refused_at_once(store, maker, share, length, sentence):
    with pytest.raises(CorpusError, match=sentence):
        Mixture(store, maker, share, length)


def keys(count, value):
    return np.full(count, value, dtype=np.uint64)


@pytest.mark.parametrize("size", [*range(1, 70), 1000, 4097])
def test_permutation_is_one(size):
    orders = [permute(np.arange(size), size, keys(size, key)) for key in (0, 1, 2**63)]
    for order in orders:
        assert sorted(order) == list(range(size))
    if size > 10:
        assert len({tuple(order) for order in orders}) == 3


def test_permutation_looks_random():
    size, trials = 64, 400
    orders = np.stack([permute(np.arange(size), size, keys(size, key)) for key in range(trials)])
    # Where the first block goes, and how far neighbours end up: uniform within 5 sigma.
    for column in (orders[:, 0], (orders[:, 1] - orders[:, 0]) % size):
        quarters = np.bincount(column // 16, minlength=4)
        assert np.abs(quarters - trials / 4).max() < 5 * np.sqrt(trials * 3 / 16)
    fixed = (orders == np.arange(size)).sum()
    assert abs(fixed - trials) < 5 * np.sqrt(trials)


@pytest.mark.parametrize(("tokens", "length"), [(10, 10), (19, 10), (20, 10), (1000, 7), (50, 1)])
def test_an_epoch_reads_every_block_once(tokens, length):
    blocks = max(1, (tokens - length + 1) // length)
    starts = window_starts(tokens, length, np.arange(5 * blocks), seed=3).reshape(5, blocks)
    for epoch in starts:
        assert epoch.min() >= 0 and epoch.max() + length <= tokens
        assert (np.diff(np.sort(epoch)) == length).all()
    if blocks > 10:
        assert len({tuple(epoch) for epoch in starts}) == 5


def test_every_shift_happens():
    starts = window_starts(19, 10, np.arange(2000), seed=0)  # one block, ten places
    counts = np.bincount(starts, minlength=10)
    assert len(counts) == 10
    assert np.abs(counts - 200).max() < 5 * np.sqrt(180)


def test_a_window_is_known_by_its_number():
    together = window_starts(10**12, 128, np.arange(100), seed=1)
    alone = [window_starts(10**12, 128, np.array([index]), seed=1)[0] for index in range(100)]
    assert together.tolist() == alone
    assert (window_starts(10**12, 128, np.arange(100), seed=2) != together).all()
