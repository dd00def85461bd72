import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesattn.corpora import CorpusError, documents, encode, fingerprint, load_tokenizer
from bayesattn.corpora.sentences import FILLER, KINDS, VALUES, WORDS, wording
from bayesattn.corpora.tokenizers import BUILT_IN, SPECIAL, WORDS_FILE, start_token
from tests.corpora.oracles import same_documentation
from tests.corpora.words import WORDS_SIZE, make_words_tokenizer

TOKENIZERS = {name: load_tokenizer(name) for name in BUILT_IN}
WORDY = TOKENIZERS["words"]


@pytest.mark.parametrize("name", BUILT_IN)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(name, text):
    tokenizer = TOKENIZERS[name]
    (tokens,) = encode(tokenizer, [text])
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("name", BUILT_IN)
def test_documentation_comes_back(name):
    texts = list(documents("pydoc"))[:40]
    assert TOKENIZERS[name].batch_decode(encode(TOKENIZERS[name], texts)) == texts


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_text_spells_a_special_token(name):
    tokenizer = TOKENIZERS[name]
    special = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    assert len(special) == 3 and None not in special
    text = "a <bos> b<eos><pad>"
    for tokens in (encode(tokenizer, [text])[0], tokenizer(text)["input_ids"]):
        assert not special & set(tokens)
        assert tokenizer.decode(tokens) == text


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_byte_is_its_own_token(text):
    assert encode(TOKENIZERS["bytes"], [text]) == [list(text.encode())]


def test_sizes():
    assert len(TOKENIZERS["bytes"]) == 256 + len(SPECIAL)
    assert len(WORDY) == WORDS_SIZE


def test_every_word_of_a_needle_is_one_token():
    for kind in KINDS:
        for values in VALUES:
            words = wording(kind, values)
            for piece in (FILLER, words.head, words.needle, words.question):
                plain = re.sub(r" ?\{\w+\}", "", piece)
                expected = re.findall(r" ?\w+|[^\w ]", plain)
                (tokens,) = encode(WORDY, [plain])
                assert WORDY.batch_decode([[token] for token in tokens]) == expected
    assert {len(tokens) for tokens in encode(WORDY, [f" {word}" for word in WORDS])} == {1}


def test_every_digit_is_one_token_apart_from_the_space():
    (tokens,) = encode(WORDY, ["is 40512.7 and 3"])
    pieces = WORDY.batch_decode([[token] for token in tokens])
    assert pieces == ["is", " ", *"40512", ".", "7", " and", " ", "3"]


def test_three_lengths_of_a_passkey_prompt_fit_into_128_tokens():
    words = wording("passkey")
    filled = [words.head, words.needle.format(value=12345), words.question, " 12345"]
    shortest = sum(map(len, encode(WORDY, filled)))
    (filler,) = encode(WORDY, [FILLER])
    assert 66 <= shortest <= 74
    assert (128 - shortest) // len(filler) == 2


def test_words_are_what_they_are_made_from():
    if not same_documentation():
        pytest.skip("words.json was learnt from the documentation of another Python")
    assert make_words_tokenizer().to_str() == WORDS_FILE.read_text(encoding="utf-8")


def test_fingerprint_tells_tokenizers_apart_and_survives_saving(tmp_path):
    prints = {name: fingerprint(tokenizer) for name, tokenizer in TOKENIZERS.items()}
    assert prints["bytes"] != prints["words"]
    for name, tokenizer in TOKENIZERS.items():
        tokenizer.save_pretrained(tmp_path / name)
        again = load_tokenizer(str(tmp_path / name))
        assert fingerprint(again) == prints[name]
        text = "The <bos> is 12 é\n\n  x"
        assert encode(again, [text]) == encode(tokenizer, [text])
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert start_token(again) == tokenizer.bos_token_id


def test_loaded_tokenizers_are_one_s_own():
    load_tokenizer("words").add_tokens(["another"])
    assert len(load_tokenizer("words")) == WORDS_SIZE


def test_unknown_tokenizer():
    with pytest.raises(CorpusError, match="no tokenizer 'wrods': use bytes or words"):
        load_tokenizer("wrods")


def test_a_tokenizer_without_marks_cannot_begin_a_document():
    tokenizer = load_tokenizer("bytes")
    tokenizer.bos_token = None
    assert start_token(tokenizer) == tokenizer.eos_token_id
    tokenizer.eos_token = None
    with pytest.raises(CorpusError, match="set its bos_token"):
        start_token(tokenizer)
