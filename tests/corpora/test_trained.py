"""Byte-pair tokenizers that are trained on a corpus."""

import json

import pytest
from transformers import AutoTokenizer

from bayesattn.corpora import CorpusError, NeedleMaker, encode, fingerprint, load_tokenizer
from bayesattn.corpora.store import is_held_out
from bayesattn.corpora.trained import SMALLEST, read, tokenizer_of, train, write

SIZE = 400
TEXT = "Priors say where to look; 1 of 20 numbers is 31415.\n\tçà et là 日本 \x00"


@pytest.fixture(scope="module")
def pydoc():
    return train("pydoc", SIZE)


def test_any_text_comes_back_and_nothing_in_it_is_special(pydoc):
    assert len(pydoc) == SIZE
    (tokens,) = encode(pydoc, [TEXT + "<bos>"])
    assert pydoc.decode(tokens) == TEXT + "<bos>"
    assert pydoc.bos_token_id not in tokens
    assert len(tokens) < len((TEXT + "<bos>").encode())


def test_needles_are_written_in_one_way(pydoc):
    pieces = pydoc.convert_ids_to_tokens(range(SIZE))
    assert {piece for piece in pieces if set(piece) & set("0123456789")} == set("0123456789")
    for kind in ("passkey", "multikey", "multivalue"):
        maker = NeedleMaker(pydoc, kind)
        prompts = maker.prompts(maker.shortest + 2 * maker.unit, samples=1)
        assert len(prompts.tokens) and prompts.length <= maker.shortest + 2 * maker.unit


def test_the_same_corpus_gives_the_same_tokenizer_again(pydoc):
    assert fingerprint(train("pydoc", SIZE)) == fingerprint(pydoc)


def test_it_is_an_ordinary_tokenizer_of_hugging_face(pydoc, tmp_path):
    write(pydoc, tmp_path / "kept")
    for again in (AutoTokenizer.from_pretrained(tmp_path / "kept"), read(tmp_path / "kept")):
        assert fingerprint(again) == fingerprint(pydoc)
        assert encode(again, [TEXT]) == encode(pydoc, [TEXT])
    write(pydoc, tmp_path / "kept")  # by another process: left as it is
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_it_is_trained_once_and_a_run_s_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    first = tokenizer_of(f"train:{SMALLEST}", "pydoc")
    monkeypatch.setattr("bayesattn.corpora.trained.train", lambda *_: 1 / 0)
    assert fingerprint(tokenizer_of(f"train:{SMALLEST}", "pydoc")) == fingerprint(first)
    write(first, tmp_path / "own")
    assert len(tokenizer_of("train:999", "nowhere", tmp_path / "own")) == SMALLEST
    assert fingerprint(tokenizer_of("words", "nowhere")) == fingerprint(load_tokenizer("words"))


def test_what_is_held_out_is_not_looked_at(tmp_path):
    texts = [f"number {count} " + chr(0x3B1 + count % 20) * 9 for count in range(60)]
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    seen = [text for number, text in enumerate(texts) if not number or not is_held_out(text)]
    (tmp_path / "seen.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in seen))
    assert len(seen) < len(texts)
    both = [train(str(path), SMALLEST + 20), train(str(tmp_path / "seen.jsonl"), SMALLEST + 20)]
    assert fingerprint(both[0]) == fingerprint(both[1])


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (SMALLEST - 1, f"too small: .* choose train:{SMALLEST} or more"),
        (5000, r"supports a tokenizer of \d+ tokens, not of 5,000: choose train:\d+ or fewer"),
    ],
)
def test_sizes_that_cannot_be(tmp_path, size, said):
    (tmp_path / "text.txt").write_text("So little text, so little to learn. " * 3)
    with pytest.raises(CorpusError, match=said):
        train(str(tmp_path / "text.txt"), size)


def test_it_needs_a_corpus():
    with pytest.raises(CorpusError, match="'train:900' is trained on a corpus"):
        load_tokenizer("train:900")


def test_a_damaged_one_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CorpusError, match=f"The tokenizer in {tmp_path} is damaged"):
        tokenizer_of("train:900", "pydoc", tmp_path)
