"""A task in words is read as token by token; what cannot be is refused in one sentence."""

import pytest
import torch

from bayesattn.models.open import open_tunnel
from bayesattn.probes.bayes.readers import TunnelReader, pick_outcomes, put_into_words
from bayesattn.probes.bayes.tasks import language_tasks, list_text, sula_text
from tests.probes.llm.small import small_subject
from tests.probes.llm.sula_toys import subject

COIN = list_text("throws:")


def reader(kind="llama", count=2, length=6, write=COIN):
    model = subject(kind)
    return put_into_words(model, write, pick_outcomes(model, count), length)


def test_texts():
    assert COIN(["A", "B"]) == "throws: A, B"
    words = sula_text(3)(["A", "B", "A"])
    assert words.count(": A") == 2 and words.count(", ") == 2
    assert sula_text(3)(["A"]) == words.partition(",")[0]


@pytest.mark.parametrize("kind", ["llama", "neox", "gpt2"])
@pytest.mark.parametrize("write", [COIN, sula_text(0)], ids=["list", "sula"])
def test_predictions_are_those_of_the_texts_one_by_one(kind, write):
    own = reader(kind, count=3, write=write)
    inputs = torch.randint(3, (4, 5))
    scored = torch.tensor([0, 2, 4])
    reading = own.read(inputs, scored)
    model, labels = own.subject, pick_outcomes(own.subject, 3)
    for row, drawn in enumerate(inputs.tolist()):
        for at, step in enumerate(scored.tolist()):
            shown = [labels[x] for x in drawn[: step + 1]]
            text = write([*shown, labels[0]]).removesuffix(f" {labels[0]}")
            tokens = torch.tensor([model.tokenizer(text)["input_ids"]])
            with torch.no_grad():
                p = model.model(tokens).logits[0, -1].double().softmax(-1)[own.labels]
            torch.testing.assert_close(reading.mass[row, at], p.sum(), atol=1e-5, rtol=1e-5)
            expected = (p / p.sum()).log()
            torch.testing.assert_close(reading.log_probs[row, at], expected, atol=1e-4, rtol=1e-4)


def test_a_reader_says_what_the_tokenizer_says():
    own = reader(count=3)
    labels = pick_outcomes(own.subject, 3)
    inputs = torch.tensor([[0, 2, 1, 1]])
    text = COIN([labels[x] for x in (0, 2, 1, 1, 0)]).removesuffix(f" {labels[0]}")
    assert own.encode(inputs)[0].tolist() == own.subject.tokenize(text)


def test_the_residual_stream_is_heard_where_predictions_are_read():
    own = reader()
    assert len(own.sites()) == len(own.sites("values")) == 4
    assert own.places(torch.tensor([0, 1])).tolist() == (own.slots[1:3] - 1).tolist()
    model, _ = open_tunnel("zoo:bijection-10")
    assert len(TunnelReader(model).sites()) == len(TunnelReader(model).sites("values")) == 2


def test_words_of_the_vocabulary_where_it_knows_no_letters():
    own = small_subject()
    labels = pick_outcomes(own, 4)
    assert len(set(labels)) == 4
    assert [task.name for task in language_tasks(own, length=6)] == ["coin", "die", "chain", "SULA"]
    for task in language_tasks(own, length=6):
        inputs = task.tunnel.sample(2, torch.Generator().manual_seed(0)).inputs
        reading = task.reader(0).read(inputs, task.tunnel.scored)
        assert reading.log_probs.shape == (2, task.tunnel.horizon, task.tunnel.outcomes)


def test_labels_that_are_not_one_token_are_refused():
    with pytest.raises(ValueError, match=r"'zorb' is unknown to this tokenizer"):
        pick_outcomes(subject(), 2, ("dax", "zorb"))
    with pytest.raises(ValueError, match="takes 4 labels or more, not 2"):
        pick_outcomes(subject(), 4, ("dax", "lug"))
    with pytest.raises(ValueError, match="not one token each wherever they stand"):
        put_into_words(subject(), COIN, ("dax", "dax lug"), 4)
    with pytest.raises(ValueError, match="not one token each"):
        put_into_words(subject(), lambda labels: labels[-1], ("dax", "lug"), 4)


def test_prompts_beyond_the_context_are_refused():
    with pytest.raises(ValueError, match="reads no more than 64: shorten it"):
        reader(length=60)


def test_a_model_that_gives_nan_is_refused():
    own = reader()
    weight = own.subject.model.lm_head.weight
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[own.labels[0]] = float("nan")
        with pytest.raises(ValueError, match="llama predicts NaN or an impossible outcome"):
            own.read(torch.zeros(2, 3, dtype=torch.long), torch.tensor([2]))
    finally:
        with torch.no_grad():
            weight.copy_(before)
