"""Prompts of RULER: exact lengths, answers that the prompt decides, and nothing that leaks."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesattn.corpora import CorpusError, load_tokenizer
from bayesattn.corpora.ruler import KINDS, Draft, Material, TooShort, fit, make_problem
from tests.corpora.ruler.solve import solve

MATERIAL = Material()
LENGTHS = {"bytes": 6000, "words": 3500}


@cache
def counter(tokenizer):
    loaded = load_tokenizer(tokenizer)
    return lambda text: len(loaded(text)["input_ids"])


def problem(kind, tokenizer="words", length=3500, **more):
    return make_problem(kind, MATERIAL, counter(tokenizer), length, **more)


@pytest.mark.parametrize("tokenizer", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_of_the_prompt_knows_every_answer_and_a_guesser_none(kind, tokenizer):
    for number, depth in enumerate((0.0, 1.0)):
        made = problem(kind, tokenizer, LENGTHS[tokenizer], depth=depth, number=number)
        assert made.score(solve(kind, made.prompt)) == 1
        other = problem(kind, tokenizer, LENGTHS[tokenizer], number=number + 7)
        # ten common words of one prompt may be among those of another
        assert made.score(solve(kind, other.prompt)) <= (0.3 if kind == "cwe" else 0)
        assert made.score("") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_exact_and_one_more_unit_would_be_too_long(kind):
    made = problem(kind)
    assert made.tokens == counter("words")(made.prompt) <= 3500
    assert made.tokens > 3500 - 120  # a document of a question is the largest unit


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 50), st.integers(0, 2000), st.integers(0, 7))
def test_filling_finds_the_most_units_that_fit(each, fixed, length, jump):
    """Against trying all: units of `each` tokens, and `jump` more after every fifth."""

    def count(text):
        return fixed + sum(each + jump * (n % 5 == 4) for n in range(len(text)))

    draft = Draft(lambda units: "x" * units, ("a",))
    if fixed > length:
        with pytest.raises(TooShort, match=f"at least {fixed} tokens"):
            fit("kind", draft, count, length)
        return
    most = max(n for n in range(length // each + 2) if count("x" * n) <= length)
    assert fit("kind", draft, count, length).prompt == "x" * most


@pytest.mark.parametrize("kind", ["niah_single_1", "niah_single_2", "qa_facts"])
def test_depth_says_where_the_needle_stands(kind):
    places = []
    for depth in (0.0, 0.5, 1.0):
        made = problem(kind, depth=depth)
        places.append(made.prompt.index(made.answers[0]) / len(made.prompt))
    assert places[0] < 0.15 < 0.4 < places[1] < 0.6 < 0.85 < places[2]


def test_the_same_prompt_for_the_same_seed_and_another_for_another():
    assert problem("vt") == problem("vt")
    assert problem("vt").prompt != problem("vt", seed=1).prompt
    assert problem("vt").prompt != problem("vt", number=1).prompt


def test_what_does_not_fit_says_what_would():
    with pytest.raises(TooShort, match=r"A prompt of cwe has at least \d+ tokens") as error:
        problem("cwe", length=300)
    least = error.value.least
    assert problem("cwe", length=least).tokens == least
    with pytest.raises(CorpusError, match="at least"):
        problem("cwe", length=least - 1)


def test_an_unknown_kind_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="niah_single_1"):
        problem("niah_singel_1")


def test_filler_without_tokens_is_refused():
    with pytest.raises(CorpusError, match="has no tokens"):
        fit("kind", Draft(lambda units: " " * units, ("a",)), lambda text: 3, 100)


def test_a_text_of_few_words_is_repeated(tmp_path):
    (tmp_path / "a.txt").write_text("One sentence. Another one, longer than that.", "utf-8")
    made = make_problem("niah_single_2", Material(str(tmp_path)), counter("bytes"), 1500)
    assert made.tokens > 1400
    assert made.score(solve("niah_single_2", made.prompt)) == 1
