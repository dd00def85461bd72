import math

import pytest
import torch
from torch import nn

from bayesattn.corpora import NeedleMaker, Prompts, Windows, load_tokenizer, windows
from bayesattn.training.language import make_task, retrieved
from tests.training.language_toy import toy_language


@pytest.fixture
def parts(corpus):
    """Task, what a run remembers of its data, and a model."""
    language, tokenizer = toy_language(corpus), load_tokenizer("words")
    return *make_task(language, tokenizer, seed=3), language.build(tokenizer, 0).eval()


def brute_loss(model, windows):
    """Each document by itself, token by token, but for those that are given."""
    total, count = 0.0, 0
    every = torch.zeros_like(windows.tokens) if windows.given is None else windows.given
    for row, tokens in enumerate(windows.tokens):
        for document in windows.documents[row].unique():
            inside = windows.documents[row] == document
            own, given = tokens[inside], every[row][inside]
            logits = model(own[None]).logits[0].double().log_softmax(-1)
            asked = [i for i in range(len(own) - 1) if not given[i + 1]]
            total -= sum(logits[i, own[i + 1]].item() for i in asked)
            count += len(asked)
    return total / count


@torch.no_grad()
def test_the_loss_is_that_of_each_document_by_itself(parts, generator):
    task, _, model = parts
    batch = task.batch(generator, 6, 0)
    assert batch.windows.documents.max() > 1  # several documents in a window
    assert batch.windows.given.any()
    assert task.loss(model, batch).item() == pytest.approx(
        brute_loss(model, batch.windows), rel=1e-5
    )


@torch.no_grad()
def test_parts_of_a_batch_have_its_loss_on_average(parts, generator):
    task, _, model = parts
    batch = task.batch(generator, 6, 0)
    counts = {int((row[1:] == row[:-1]).sum()) for row in batch.windows.documents}
    assert len(counts) > 1  # otherwise any normalisation would do
    halves = [task.loss(model, batch.rows(rows)) for rows in (slice(0, 3), slice(3, 6))]
    assert (sum(halves) / 2).item() == pytest.approx(task.loss(model, batch).item(), rel=1e-6)
    moved = batch.to("cpu")
    assert torch.equal(moved.windows.tokens, batch.windows.tokens)


def test_a_step_reads_on_where_the_last_one_ended(parts):
    task, *_ = parts

    def read(size, step):
        return task.batch(torch.Generator().manual_seed(0), size, step).windows.tokens

    first, second, both = read(3, 0), read(3, 1), read(6, 0)
    task.mixture.share = 0.0
    plain = read(6, 0)
    pieces = torch.cat([read(3, 0), read(3, 1)])
    assert sorted(pieces.tolist()) == sorted(plain.tolist())
    assert not torch.equal(first, second) and both.shape == plain.shape


@torch.no_grad()
def test_evaluation_of_a_model_that_knows_nothing(parts):
    task, data, model = parts
    nn.init.zeros_(model.lm_head.weight)
    found = task.evaluate(model)
    vocabulary = model.config.vocab_size
    assert found["heldout"] == pytest.approx(math.log(vocabulary), rel=1e-5)
    bits = math.log2(vocabulary) / task.bytes_per_token
    assert found["bits_per_byte"] == pytest.approx(bits, rel=1e-5)
    assert found["needles"] == 0.0
    assert data.keys() == {"tokenizer", "train", "heldout"}


@torch.no_grad()
def test_evaluation_is_on_other_documents_and_of_all_windows(parts):
    task, _, model = parts
    assert task.evaluate(model)["heldout"] == pytest.approx(
        brute_loss(model, task.heldout), rel=1e-5
    )
    store = task.mixture.store
    heldout = {tuple(row.tolist()) for row in task.heldout.tokens}
    train = windows(store, "train", task.mixture.length, torch.arange(200), 3).tokens
    assert heldout.isdisjoint(tuple(row.tolist()) for row in train)


class Oracle(nn.Module):
    """Knows what follows each prompt, except where it is told to be wrong."""

    def __init__(self, prompts, wrong=()):
        super().__init__()
        self.anchor = nn.Parameter(torch.zeros(1))
        self.prompts, self.wrong = prompts, wrong

    def forward(self, tokens, logits_to_keep, use_cache):
        expected = torch.cat([self.prompts.tokens, self.prompts.answers[:, :-1]], 1)
        assert torch.equal(tokens, expected)
        logits = nn.functional.one_hot(self.prompts.answers, 2000).double()
        for row, position in self.wrong:
            logits[row, position] = logits[row, position].roll(1)
        return type("Output", (), {"logits": logits})


def test_a_needle_is_found_if_every_digit_is_right():
    maker = NeedleMaker(load_tokenizer("words"), "passkey")
    prompts = maker.prompts(200, "equidistant", 4, seed=0)
    assert isinstance(prompts, Prompts) and prompts.answers.shape[1] == 6
    assert retrieved(Oracle(prompts), prompts).tolist() == [True] * 4
    # The space before the key says nothing about it; any digit does.
    wrong = [(0, 0), (1, 1), (3, 5)]
    assert retrieved(Oracle(prompts, wrong), prompts).tolist() == [True, False, True, False]


def test_without_needles_none_are_asked_for(corpus):
    language = toy_language(corpus, needle_share=0.0, length=40)  # no needle would fit
    tokenizer = load_tokenizer("words")
    task, _ = make_task(language, tokenizer, seed=0)
    with torch.no_grad():
        found = task.evaluate(language.build(tokenizer, 0).eval())
    assert found.keys() == {"heldout", "bits_per_byte"}
    assert isinstance(task.heldout, Windows)


@pytest.mark.parametrize("kind", ["noise", "essay", "multikey", "multivalue"])
def test_other_needles(corpus, kind, generator):
    language = toy_language(corpus, needles=kind, length=300)
    tokenizer = load_tokenizer("words")
    task, _ = make_task(language, tokenizer, seed=0)
    assert task.batch(generator, 3, 0).windows.tokens.shape == (3, 300)
    with torch.no_grad():
        assert 0 <= task.evaluate(language.build(tokenizer, 0).eval())["needles"] <= 1
