import re

import pytest
import torch

from bayesattn.corpora import CorpusError, NeedleMaker, encode, load_tokenizer
from bayesattn.corpora import haystacks as module
from bayesattn.corpora.haystacks import FILLERS, Haystack
from bayesattn.corpora.sentences import FILLER, WORDS, wording

WORDY = load_tokenizer("words")
LINES = "def one(x):\n    return x + 1\n\n# It is longer. It goes on.\n"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(module, "_source", lambda: LINES * 20)
    monkeypatch.setattr(module, "RANDOM_WORDS", 500)


def texts(filler, length, depths, tokenizer=WORDY, **settings):
    maker = NeedleMaker(tokenizer, haystack=filler, **settings)
    prompts = maker.prompts(length, depths, samples=1, seed=3)
    return prompts, [tokenizer.decode(row) for row in prompts.tokens]


@pytest.mark.parametrize("tokenizer", ["words", "bytes"])
@pytest.mark.parametrize("filler", FILLERS)
def test_prompts_are_filler_around_one_needle(filler, tokenizer):
    tokenizer = load_tokenizer(tokenizer)
    words = wording("passkey")
    prompts, read = texts(filler, 500, [0.0, 0.5, 0.75], tokenizer)
    bodies = []
    for text, answer in zip(read, prompts.answers, strict=True):
        key = tokenizer.decode(answer).strip()
        assert text.startswith(words.head) and text.endswith(words.question)
        inside = text[len(words.head) : -len(words.question)]
        before, after = inside.split(words.needle.format(value=key))
        bodies.append(before + after)
        if filler == "repeated":
            assert before + after == FILLER * (len(before + after) // len(FILLER))
        if filler == "words":
            assert set((before + after).split()) <= {*WORDS}
        if filler == "text":
            assert before + after in LINES * 20 and (not before or before[-1] in ".\n")
    assert len(set(bodies)) == 1  # what prompts share is read once


def test_random_words_tell_nothing_and_differ_by_seed():
    maker = NeedleMaker(WORDY, haystack="words")
    one, other = (maker.prompts(300, [0.0], 1, seed).tokens for seed in (0, 1))
    assert not torch.equal(one, other)
    again = NeedleMaker(WORDY, haystack="words").prompts(300, [0.0], 1, 0).tokens
    assert torch.equal(one, again)


def test_others_have_keys_of_their_own_and_stand_anywhere():
    maker = NeedleMaker(WORDY, distractors=3)
    assert maker.title == "passkey among 3 others"
    prompts = maker.prompts(maker.shortest + 400, "equidistant", samples=30)
    order = set()
    for tokens, answer in zip(prompts.tokens, prompts.answers, strict=True):
        text = WORDY.decode(tokens)
        found = re.findall(r"The (\w+) key is (\d{5})\. Remember it\. \2 is the \1 key\.", text)
        keys = [key for key, _ in found]
        assert keys.count("pass") == 1 and len(set(keys)) == 4
        assert {*keys} - {"pass"} <= {*WORDS}
        (own,) = re.findall(r"The pass key is (\d{5})\. Remember", text)
        assert WORDY.decode(answer) == f" {own}"
        assert len({value for _, value in found}) == 4
        order.add(keys.index("pass"))
    assert order == {0, 1, 2, 3}


def test_in_training_nothing_hidden_is_a_target():
    maker = NeedleMaker(WORDY, distractors=1, haystack="words")
    tokens, used, given = maker.training(8, 200, torch.Generator().manual_seed(0))
    for row in range(8):
        digits = WORDY.decode(tokens[row][given[row]])
        assert re.fullmatch(r"(\d{5}|[a-z ]+)+", digits.replace(" ", ""))
        assert sum(letter.isdigit() for letter in digits) == 10
        assert used[row] <= 200


def test_a_prompt_in_one_loop_begins_where_it_fits():
    loop = Haystack(torch.arange(40), 2, together=True)
    generator = torch.Generator().manual_seed(0)
    starts = [loop.sample_starts(torch.tensor([5, 5]), generator) for _ in range(60)]
    assert all(own[0] == own[1] for own in starts)  # together
    assert {int(own[0]) for own in starts} == set(range(0, 30, 2))
    # one longer than the loop begins at its start
    assert int(loop.sample_starts(torch.tensor([50]), generator)) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"haystack": "hay"}, "unknown haystack 'hay'; choose one of repeated, words, text"),
        ({"kind": "noise", "haystack": "words"}, "are for passkeys, not for noise"),
        ({"kind": "multikey", "distractors": 1}, "are for passkeys, not for multikey"),
        ({"distractors": -1}, "distractors must be 0 or more and at most 53, not -1"),
        ({"haystack": 3}, "haystack is a tensor of tokens or a name, not 3"),
        ({"kind": "essay", "haystack": "text"}, "essay needle needs a haystack of running text"),
    ],
)
def test_what_makes_no_prompt_is_refused(settings, message):
    with pytest.raises(CorpusError, match=message):
        NeedleMaker(WORDY, **settings)


def test_the_source_is_there_and_long_enough(monkeypatch):
    monkeypatch.undo()
    text = module._source()
    assert len(text) == module.LETTERS
    piece = text[: module.LETTERS // 100]
    assert 100 * len(encode(WORDY, [piece])[0]) > 1.05 * 2**20
