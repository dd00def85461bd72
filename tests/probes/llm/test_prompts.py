"""Prompts by rule: what they are made of, how they are chosen, what is the same in all."""

import re
from collections import Counter

import pytest
import torch

from bayesattn.probes.llm import prompts
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import (
    DOMAINS,
    SLOT,
    Window,
    _grammars,
    compose,
    every_window,
    window_ending,
    windows_with_ending,
    word_groups,
    words_of,
)
from tests.probes.llm.small import small_subject


@pytest.fixture(scope="module")
def subject():
    return small_subject()


def characters(text):
    return [ord(character) for character in text]


def test_every_slot_has_words_and_every_word_list_a_slot():
    for domain in DOMAINS:
        grammar = _grammars()[domain]
        used = {slot for text in grammar["sentences"] for slot in SLOT.findall(text)}
        assert used == set(grammar["words"]), domain
        assert set(grammar["bound"]) <= used
        assert all(len(words) > 1 for words in grammar["words"].values())


def test_composed_text_has_no_slot_left_and_depends_on_its_seed():
    for domain in DOMAINS:
        text = compose(domain, 50, seed=3)
        assert not SLOT.search(text)
        assert text == compose(domain, 50, seed=3) != compose(domain, 50, seed=4)


def test_a_bound_slot_keeps_its_word():
    text = compose("code", 400)
    loops = re.findall(r"while (\w+) < len\((\w+)\) and (\w+)\[(\w+)\]", text)
    assert len(loops) > 3
    assert all((first, second) == (fourth, third) for first, second, third, fourth in loops)


def test_the_authors_prompts_are_thirteen(subject):
    texts = prompts.released(subject).texts
    assert len(texts) == 13 and texts[0] == "The capital of France is"


def test_a_window_has_its_length_and_ends_with_its_word():
    text = "one two  three\nfour five"
    words = words_of(text)
    assert window_ending(characters, text, words, 3, 10, 0).text == "three\nfour"
    assert window_ending(characters, text, words, 4, 9, 0).text == "four five"
    assert window_ending(characters, text, words, 4, 8, 0) is None
    assert window_ending(characters, text, words, 0, 4, 0) is None  # the text begins too late


def test_windows_do_not_overlap(subject):
    text = compose("general", 60)
    found = list(every_window(subject.encode, text, 12))
    assert len(found) > 10 and all(len(window.tokens) == 12 for window in found)
    assert all(window.tokens == subject.encode(window.text) for window in found)
    end = 0
    for window in found:
        start = text.index(window.text, end)
        end = start + len(window.text)
        assert re.match(r"\s|$", text[end:]) and (start == 0 or text[start - 1].isspace())


def test_windows_of_given_last_words_do_not_overlap():
    def words(text):  # a token a word
        return [ord(word[0]) for word in text.split()]

    text = "a b the c the d e the f g the"
    found = list(windows_with_ending(words, text, 3, ["the"]))
    assert [window.text for _, window in found] == ["a b the", "d e the", "f g the"]
    assert {ending for ending, _ in found} == {"the"}


def test_words_keep_their_tokens(subject):
    window = next(every_window(subject.encode, compose("code", 20), 14))
    groups = word_groups(subject.encode, window)
    assert [token for group in groups for token in group] == window.tokens
    assert len(groups) == len(words_of(window.text))


def test_words_that_share_a_token_stay_together():
    def pairs(text):  # two characters a token
        return [hash(text[at : at + 2]) for at in range(0, len(text), 2)]

    window = Window("ab c def", pairs("ab c def"))
    groups = word_groups(pairs, window)
    assert [token for group in groups for token in group] == window.tokens


def test_as_many_from_each_fifth(generator):
    bits = torch.randn(50, generator=generator)
    places = prompts.stratify(bits, 4, generator)
    order = bits.argsort().argsort()
    assert Counter((order[places] // 10).tolist()) == dict.fromkeys(range(5), 4)
    assert len({*places}) == 20


def test_entropy_is_that_of_the_next_token(subject):
    tokens = [[1, 2, 3], [5, 6, 7], [9]]
    found = prompts.next_token_entropy(subject, tokens)
    for bits, prompt in zip(found, tokens, strict=True):
        with torch.no_grad():
            logits = subject.model(torch.tensor([prompt])).logits[0, -1].double()
        p = logits.softmax(-1)
        assert float(bits) == pytest.approx(float(-(p * p.log2()).sum()), abs=1e-5)
    assert float(prompts.entropy_of(torch.tensor([[0.0, -torch.inf]]))) == 0
    assert float(prompts.entropy_of(torch.zeros(1, 8))) == pytest.approx(3)


def test_a_draw_is_stratified_and_its_endings_differ(subject):
    found = prompts.sample(subject, length=10, candidates=40, each=4)
    assert len(found) == 20 and {len(tokens) for tokens in found.tokens} == {10}
    assert found.tokens == [subject.encode(text) for text in found.texts]
    about = found.about()
    assert about["prompts"] == 20 and about["most prompts with one last token"] <= 2
    again = prompts.sample(subject, length=10, candidates=40, each=4)
    assert again == found


def test_last_tokens_take_turns():
    windows = [Window(str(n), [0, last]) for n, last in enumerate([5, 5, 5, 6, 7, 7, 6])]
    times = Counter({7: 1})
    found = prompts.take_turns(windows, 5, times)
    assert [window.text for window in found] == ["0", "3", "1", "4", "6"]
    assert times == {5: 2, 6: 2, 7: 2}


def test_endings_differ_over_all_sources_together(subject):
    found = prompts.sample(subject, length=10, candidates=40, each=8)
    assert len(found) == 40
    assert found.about()["distinct last tokens"] > 35


@pytest.mark.parametrize("source", ["pydoc", "philosophy"])
def test_seeds_share_no_prompt_and_none_comes_twice(subject, source):
    draws = [prompts.stretch(prompts._windows(subject, source, 6), 60, seed) for seed in range(3)]
    tokens = [tuple(window.tokens) for windows in draws for window in windows]
    assert len(tokens) == 180 == len({*tokens})


def test_matched_sets_of_other_seeds_share_no_prompt(subject):
    draws = [prompts.matched_sets(subject, each=3, length=6, seed=seed) for seed in range(3)]
    for domain in DOMAINS:
        texts = [text for found in draws for text in found[domain].texts]
        assert len(texts) == 45 == len({*texts}), domain


def test_short_text_is_refused(subject, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("a few words only")
    with pytest.raises(ValueError, match="has 0 pieces of exactly 10 tokens left for seed 0"):
        prompts.sample(subject, str(path), length=10, candidates=10, each=2)
    with pytest.raises(ValueError, match="5 × 4 prompts cannot be drawn from 10 candidates"):
        prompts.sample(subject, length=10, candidates=10, each=4)


def test_matched_sets_end_alike(subject):
    found = prompts.matched_sets(subject, each=4, length=12)
    assert [*found] == list(DOMAINS)
    endings = [[text.split()[-1] for text in own.texts] for own in found.values()]
    assert endings == [[word for word in prompts.ENDINGS for _ in range(4)]] * 4
    last = [[tokens[-1] for tokens in own.tokens] for own in found.values()]
    assert all(own == last[0] for own in last) and len({*last[0]}) == len(prompts.ENDINGS)
    assert {len(tokens) for own in found.values() for tokens in own.tokens} == {12}


def test_shuffled_prompts_have_the_same_tokens(subject):
    own = prompts.matched_sets(subject, each=4, length=12)["general"]
    found = prompts.shuffle_words(subject, own)
    for before, after in zip(own.tokens, found.tokens, strict=True):
        assert sorted(before) == sorted(after) and before[-1] == after[-1]
    assert sum(a != b for a, b in zip(own.tokens, found.tokens, strict=True)) > 15
    assert found == prompts.shuffle_words(subject, own)


def test_prompts_of_a_file(tmp_path, subject):
    (tmp_path / "a.txt").write_text("one two\n\nthree\n")
    assert prompts.read_prompts(tmp_path / "a.txt") == ["one two", "three"]
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo"}\n')
    assert prompts.read_prompts(tmp_path / "a.jsonl") == ["one\ntwo"]
    (tmp_path / "b.jsonl").write_text("[]\n")
    with pytest.raises(ValueError, match="every line of .*b.jsonl must be"):
        prompts.read_prompts(tmp_path / "b.jsonl")
    with pytest.raises(ValueError, match="1 prompts are too few"):
        prompts.given(subject, ["one"], "a", "rule")
    found = prompts.given(subject, ["the grass"] * 8, "a", "rule")
    assert capture_prompts(subject, found.tokens, ["logits"]).logits.shape[0] == 8


def test_a_short_context_limits_prompts_but_not_the_search_for_them():
    subject = small_subject(max_position_embeddings=12)
    found = prompts.sample(subject, length=12, candidates=20, each=4)
    assert {len(tokens) for tokens in found.tokens} == {12}
    with pytest.raises(ValueError, match="reads no more than 12 tokens"):
        prompts.sample(subject, length=13, candidates=20, each=4)
