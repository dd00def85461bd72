import json
import sys
from pydoc_data.topics import topics
from types import SimpleNamespace

import pytest

from bayesattn.corpora import CorpusError, documents, text
from bayesattn.corpora.text import listing, parts


def test_python_s_own_documentation_needs_no_file():
    assert list(documents("pydoc")) == [topics[name] for name in sorted(topics)]


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_a_text_file_is_one_document(tmp_path, name):
    (tmp_path / name).write_text("one\n\ntwo ü", encoding="utf-8")
    assert list(documents(str(tmp_path / name))) == ["one\n\ntwo ü"]


def test_a_line_of_jsonl_is_a_document(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one\\ntwo"}\n\n{"id": 3, "text": "é"}\n', encoding="utf-8")
    assert list(documents(str(path))) == ["one\ntwo", "é"]


def test_a_folder_is_all_its_texts_in_order(tmp_path):
    for name in ("b.txt", "a/z.md", "a/c.jsonl", "a/.hidden.txt", ".git/d.txt", "e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": name}) + "\n")
    (tmp_path / "empty.txt").touch()
    found = list(documents(str(tmp_path)))
    assert found == ["a/c.jsonl", '{"text": "a/z.md"}\n', '{"text": "b.txt"}\n']


def test_a_mark_at_the_beginning_of_a_file_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_text("one", encoding="utf-8-sig")
    (tmp_path / "b.jsonl").write_text('{"text": "two"}', encoding="utf-8-sig")
    assert list(documents(str(tmp_path))) == ["one", "two"]


@pytest.mark.parametrize("size", range(1, 12))
def test_large_files_come_in_parts_that_end_with_a_line(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text, "PART", size)
    whole = "äöü\n€uro\n\nx" * 3 + "𝄞" * 9
    (tmp_path / "a.txt").write_text(whole, encoding="utf-8", newline="")
    (tmp_path / "b.txt").write_text("last", encoding="utf-8")
    found = list(parts(str(tmp_path)))
    assert len(found) > 3
    assert max(len(part.text) for part in found) <= 2 * size + 1
    assert [part.first for part in found].count(True) == 2
    assert list(documents(str(tmp_path))) == [whole, "last"]
    if size > 6:
        assert found[0].text.endswith("\n")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_unreadable_encoding_names_file_and_byte(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "PART", 8)
    good = '{"text": "aä"}\n' * 3
    bad = '{"text": "é"}'.encode("latin-1")
    (tmp_path / name).write_bytes(good.encode() + bad)
    position = len(good.encode()) + bad.index(b"\xe9")
    with pytest.raises(CorpusError, match=f"{name} is not UTF-8 at byte {position}: convert it"):
        list(documents(str(tmp_path)))


def test_a_file_that_ends_inside_a_character_is_unreadable(tmp_path):
    (tmp_path / "a.txt").write_bytes("abc€".encode()[:-1])
    with pytest.raises(CorpusError, match="at byte 3"):
        list(documents(str(tmp_path)))


@pytest.mark.parametrize("line", ['{"content": "x"}', '{"text": 3}', '["text"]'])
def test_a_line_without_text(tmp_path, line):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' + line)
    with pytest.raises(CorpusError, match=r"Line 2 of .*a\.jsonl has no text"):
        list(documents(str(tmp_path)))


def test_a_line_that_is_no_json(tmp_path):
    (tmp_path / "a.jsonl").write_text("hello\n")
    with pytest.raises(CorpusError, match=r"Line 1 of .*a\.jsonl is no JSON"):
        list(documents(str(tmp_path)))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_an_empty_corpus(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(CorpusError, match="is empty: give one with text"):
        list(documents(str(tmp_path / name)))


def test_no_corpus_at_all(tmp_path):
    with pytest.raises(CorpusError, match="There is no corpus .*nowhere: give a file or folder"):
        list(documents(str(tmp_path / "nowhere")))
    with pytest.raises(CorpusError, match="There is no text in"):
        list(documents(str(tmp_path)))
    (tmp_path / "a.rst").write_text("x")
    with pytest.raises(CorpusError, match=r"must end in one of \.txt, \.md, \.jsonl"):
        list(documents(str(tmp_path / "a.rst")))


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("x")

    def refuse(*_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(CorpusError, match=r"Cannot read .*a\.txt \(Permission denied\)"):
        list(documents(str(path)))


def test_listing_changes_with_the_files(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x")
    before = listing(str(tmp_path))
    assert listing(str(tmp_path)) == before
    path.write_text("xy")
    assert listing(str(tmp_path)) != before
    assert listing("pydoc") != listing("hf:name")


def fake_datasets(monkeypatch, load):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("hf:org/name", ("org/name", None, "train")),
        ("hf:org/name:small", ("org/name", "small", "train")),
        ("hf:org/name:small:test", ("org/name", "small", "test")),
        ("hf:org/name::test", ("org/name", None, "test")),
    ],
)
def test_datasets_are_streamed(monkeypatch, source, asked):
    def load(name, config, *, split, streaming):
        assert (name, config, split, streaming) == (*asked, True)
        return iter([{"text": "one", "id": 1}, {"text": "two", "id": 2}])

    fake_datasets(monkeypatch, load)
    assert list(documents(source)) == ["one", "two"]


def test_datasets_that_cannot_be_used(monkeypatch):
    fake_datasets(monkeypatch, lambda *_, **__: iter([{"content": "x", "id": 1}]))
    with pytest.raises(CorpusError, match="hf:x has no column text; its columns are content, id"):
        list(documents("hf:x"))

    def fail(*_, **__):
        raise ConnectionError("no network\nand more")

    def break_off(*_, **__):
        yield {"text": "x"}
        fail()

    for broken in (fail, break_off):
        fake_datasets(monkeypatch, broken)
        with pytest.raises(CorpusError, match=r"Cannot read the dataset hf:x \(no network\)"):
            list(documents("hf:x"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CorpusError, match=r"pip install bayesattn\[data\]"):
        list(documents("hf:x"))
