"""Labels and words for a tokenizer, by toy tokenizers whose rules are obvious."""

import re

import pytest

from bayesattn.probes.llm.sula import ALL_WORDS, WORDS
from bayesattn.probes.llm.sula_answers import (
    CANDIDATES,
    check_labels,
    choose_labels,
    even_words,
    label_tokens,
)


def encode_with(whole):
    """One token for each string of `whole` with its space, one per character otherwise."""
    known = {piece: 1000 + at for at, piece in enumerate(whole)}

    def encode(text):
        tokens = []
        while text:
            piece = max((p for p in known if text.startswith(p)), key=len, default=text[0])
            tokens.append(known.get(piece, ord(piece[0])))
            text = text[len(piece) :]
        return tokens

    return encode


def test_made_up_words_come_first_in_their_order():
    encode = encode_with([" wug", " mip", " bab", " gax", " dax"])
    assert choose_labels(encode, 4) == ("dax", "mip", "wug", "gax")


def test_then_strings_in_alphabetical_order():
    encode = encode_with([" wug", " zuz", " bed", " cab"])
    assert choose_labels(encode, 4) == ("wug", "bed", "cab", "zuz")


def test_a_candidate_is_not_found_twice():
    assert choose_labels(encode_with([" dax", " lug", " bab"]), 3) == ("dax", "lug", "bab")
    assert CANDIDATES[:2] == ("dax", "lug")


def test_too_few_labels_say_what_to_do():
    with pytest.raises(ValueError, match="only 1 of the labels that were tried .* with --labels"):
        choose_labels(encode_with([" dax"]), 2)


def test_a_label_of_two_tokens_is_refused():
    encode = encode_with([" dax", " zo"])
    with pytest.raises(
        ValueError, match="the label 'zorb' is 3 tokens .* must be one token: choose"
    ):
        check_labels(encode, ("dax", "zorb"))
    with pytest.raises(ValueError, match="labels must differ, but dax, dax do not"):
        check_labels(encode, ("dax", "dax"))
    check_labels(encode, ("dax",))


def test_a_token_for_everything_unknown_is_no_label():
    known = {"word": 0, ":": 1, " lug": 2, " wug": 3}

    def encode(text):
        pieces = re.findall(r" ?[a-z]+|[:,.]", text)
        return [known.get(piece, 99) for piece in pieces]

    assert choose_labels(encode, 2) == ("lug", "wug")
    with pytest.raises(ValueError, match="the label 'dax' is unknown to this tokenizer"):
        check_labels(encode, ("dax", "lug"))


def test_a_label_is_cut_where_it_stands():
    # a tokenizer that merges the colon with what follows predicts another token than the label's
    encode = encode_with([": dax", " lug"])
    assert len(label_tokens(encode, "lug")) == 1
    assert len(label_tokens(encode, "dax")) > 1


def test_even_words_are_one_token_and_begin_alike():
    spaced = [f" {word}" for word in WORDS[:20]]
    encode = encode_with([*spaced, *WORDS[5:20]])  # the first five have one token per letter alone
    lexicon = even_words(encode)
    assert lexicon.words == WORDS[:20]
    assert lexicon.opening == tuple(range(5, 20))


def test_with_few_words_of_one_token_all_are_used():
    assert even_words(encode_with([f" {word}" for word in WORDS[:7]])) == ALL_WORDS
