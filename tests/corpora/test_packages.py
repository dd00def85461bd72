"""The packages of an environment that is made here, file by file."""

import ast
import inspect
import json
import sys

import pytest

from bayesattn.corpora import load_tokenizer, prepare
from bayesattn.corpora.packages import LONGEST, docstrings, package_documents, package_list
from bayesattn.corpora.store import is_held_out
from bayesattn.corpora.text import listing
from bayesattn.errors import UserError

BYTES = load_tokenizer("bytes")
NAMES = [name for name in map("one-{}".format, range(40)) if not is_held_out(name)]
KEPT, OTHER = NAMES[:2]
HELD = next(name for name in map("held-{}".format, range(99)) if is_held_out(name))
LICENCE = "# Copyright of somebody.\n# Licensed under the terms of theirs.\n\n"


def install(folder, name, files, version="1.0"):
    """What pip leaves behind: files, and a RECORD of them."""
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    (about / "RECORD").write_text("".join(f"{path},,\n" for path in files))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An environment of these packages only."""
    folder = tmp_path / "site"
    install(
        folder,
        KEPT,
        {
            "a/one.py": "one = 1\n",
            "a/two.py": LICENCE + "two  =  2\n",
            "a/_vendor/three.py": "three = 3\n",
            "a/table.py": "x = 1\n" * LONGEST,
            "a/strange.py": b"\xff\xfe",
            "a/notes.txt": "no Python\n",
            "a/empty.py": "\n",
        },
    )
    twice = "# Another licence\n\ntwo = 2\n"
    install(folder, OTHER, {"b/two.py": twice, "b/four.py": "four = 4\n"})
    install(folder, HELD, {"c/five.py": "five = 5\n" * 40, "../outside.py": "six = 6\n"})
    install(folder, "bayesattn", {"bayesattn/ours.py": "ours = 7\n"})
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def test_every_file_of_a_package_once(place):
    found = sorted((package, text.splitlines()[-1]) for text, package in documents())
    twice = [one for one in found if one[1].replace(" ", "") == "two=2"]
    assert len(twice) == 1  # the same behind two licences
    assert sorted(set(found) - set(twice)) == sorted(
        [(f"{KEPT}==1.0", "one = 1"), (f"{OTHER}==1.0", "four = 4"), (f"{HELD}==1.0", "five = 5")]
    )


def documents(source="site-packages"):
    return list(package_documents(source))


def test_packages_are_held_out_whole_and_recorded(place, tmp_path):
    store = prepare("site-packages", BYTES, tmp_path / "stores")
    (held,) = store.documents("heldout")
    assert BYTES.decode(held[1:]) == "five = 5\n" * 40
    packages = json.loads((store.folder / "about.json").read_text())["packages"]
    assert {name: one["split"] for name, one in packages.items()} == {
        f"{KEPT}==1.0": "train",
        f"{OTHER}==1.0": "train",
        f"{HELD}==1.0": "heldout",
    }
    assert packages[f"{HELD}==1.0"] == {"split": "heldout", "documents": 1, "bytes": 360}
    for split in ("train", "heldout"):
        own = [one for one in packages.values() if one["split"] == split]
        for count in ("documents", "bytes"):
            assert sum(one[count] for one in own) == store.about[split][count]


def test_the_first_document_is_held_out_too_if_its_package_is(place, tmp_path, monkeypatch):
    install(tmp_path / "alone", HELD, {"c/five.py": "five = 5\n" * 40})
    monkeypatch.setattr(sys, "path", [str(tmp_path / "alone")])
    store = prepare("site-packages", BYTES, tmp_path / "stores")
    assert store.tokens("train") == 0 < store.tokens("heldout")


def test_another_version_is_another_corpus(place, tmp_path):
    before = listing("site-packages")
    assert before == ["site-packages", *package_list()] and f"{HELD}==1.0" in before
    (place / f"{HELD.replace('-', '_')}-1.0.dist-info").rename(tmp_path / "gone")
    install(place, HELD, {"c/five.py": "five = 5\n"}, version="1.1")
    assert listing("site-packages") != before


def test_docstrings_are_those_that_python_knows(place):
    source = inspect.getsource(ast)
    found = docstrings(source)
    for thing in (ast, ast.parse, ast.NodeVisitor, ast.NodeVisitor.visit):
        assert inspect.getdoc(thing) in found
    assert "def parse" not in found
    assert docstrings("def f(:") == "" == docstrings("x = 1\n")
    assert documents("site-packages:docs") == []  # all of them too short here


def test_a_corpus_of_that_kind_that_there_is_not(tmp_path):
    with pytest.raises(UserError, match="site-packages, site-packages:docs or pydoc"):
        prepare("site-packages:comments", BYTES, tmp_path)
