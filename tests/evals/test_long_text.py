"""Long texts as tokens."""

import json

import pytest
import torch

from bayesattn.corpora import documents, encode, load_tokenizer, prepare
from bayesattn.evals.perplexity import any_text, held_out

BYTES = load_tokenizer("bytes")


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def folder(tmp_path):
    """Twelve documents of 10, 20, …, 120 characters."""
    rows = [{"text": chr(97 + n) * 10 * (n + 1)} for n in range(12)]
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def texts(tokens):
    assert (tokens[:, 0] == BYTES.bos_token_id).all()
    return [BYTES.decode(row[1:]) for row in tokens]


def test_documents_joined_and_cut_again(folder):
    everything = "".join(documents(folder))
    found = texts(any_text(folder, BYTES, 50, 1000))
    assert len(found) == 780 // 50
    assert "".join(found) == everything[: 50 * len(found)]
    assert texts(any_text(folder, BYTES, 50, 3)) == found[:3]
    assert texts(any_text(folder, BYTES, 780, 5)) == [everything]


def test_only_documents_that_are_long_enough(folder):
    found = texts(any_text(folder, BYTES, 100, 10, whole=True))
    assert found == ["j" * 100, "k" * 100, "l" * 100]


def test_held_out_text_is_held_out():
    store = prepare("pydoc", BYTES)
    found = held_out("pydoc", BYTES, 500, 4)
    assert found.shape == (4, 501) and found.dtype == torch.int64
    stream = torch.cat(list(store.documents("heldout")))
    stream = stream[stream != store.start]
    assert torch.equal(found[:, 1:].flatten(), stream[:2000])
    whole = held_out("pydoc", BYTES, 2000, 3, whole=True)
    beginnings = [d[1:2001].tolist() for d in store.documents("heldout", at_least=2001)]
    assert whole[:, 1:].tolist() == beginnings[:3]


def test_one_document_of_a_text_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Zwölf Boxkämpfer jagen Viktor. " * 20)
    (tokens,) = encode(BYTES, [path.read_text()])
    assert any_text(str(path), BYTES, 100, 9)[:, 1:].flatten().tolist() == tokens[:600]


def test_too_little_text(folder):
    with pytest.raises(ValueError, match="has fewer than 781 tokens: choose a shorter length"):
        any_text(folder, BYTES, 781, 3)
    with pytest.raises(ValueError, match="has no document of 121 tokens"):
        any_text(folder, BYTES, 121, 3, whole=True)
    with pytest.raises(ValueError, match="must be 1 or more"):
        any_text(folder, BYTES, 10, 0)
    with pytest.raises(ValueError, match="There is no corpus nowhere"):
        any_text("nowhere", BYTES, 10, 1)
