import json
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bayesattn.corpora import (
    CorpusError,
    TokenStore,
    encode,
    load_tokenizer,
    prepare,
    windows,
)
from bayesattn.corpora import store as building
from bayesattn.corpora.store import SALT, is_held_out
from bayesattn.corpora.text import documents
from tests.corpora.oracles import same_documentation

WORDS = load_tokenizer("words")
BYTES = load_tokenizer("bytes")
BOS = WORDS.bos_token_id
SPLITS = ("train", "heldout")


@pytest.fixture(scope="module")
def pydoc(tmp_path_factory):
    return prepare("pydoc", WORDS, tmp_path_factory.mktemp("corpora"))


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def test_a_store_holds_every_document_once(pydoc):
    held = {split: [] for split in SPLITS}
    for number, text in enumerate(documents("pydoc")):
        tokens = [BOS, *encode(WORDS, [text])[0]]
        held["heldout" if number and is_held_out(text) else "train"].append((tokens, text))
    for split in SPLITS:
        flat = [token for tokens, _ in held[split] for token in tokens]
        assert pydoc.stream(split).tolist() == flat
        assert pydoc.tokens(split) == len(flat)
        own = [document.tolist() for document in pydoc.documents(split)]
        assert own == [tokens for tokens, _ in held[split]]
        size = sum(len(text.encode()) for _, text in held[split])
        assert pydoc.bytes_per_token(split) == pytest.approx(size / len(flat))
    assert pydoc.stream("train").dtype == np.uint16


def test_the_embedded_corpus_holds_out_enough_long_text(pydoc):
    if not same_documentation():
        pytest.skip("the split was chosen for the documentation of another Python")
    assert pydoc.tokens("heldout") >= 30_000
    assert pydoc.tokens("heldout") < 0.25 * pydoc.tokens("train")
    longest = list(pydoc.documents("heldout", at_least=4097))
    assert len(longest) >= 4
    assert all(len(document) > 4096 and document[0] == BOS for document in longest)


def test_about_a_tenth_is_held_out():
    share = sum(is_held_out(f"document {number}") for number in range(5000)) / 5000
    assert 0.08 < share < 0.12
    assert SALT


@pytest.mark.parametrize("split", SPLITS)
def test_windows_are_stretches_of_the_stream(pydoc, split):
    length = 96
    indices = torch.arange(3, 200, 7)
    found = windows(pydoc, split, length, indices, seed=4)
    tokens, counted = found.tokens, found.documents
    assert tokens.shape == counted.shape == (len(indices), length)
    assert tokens.dtype == counted.dtype == torch.int64
    stream = pydoc.stream(split)
    begins = np.flatnonzero(stream == BOS)
    places = np.lib.stride_tricks.sliding_window_view(stream, length)
    for row, document in zip(tokens.numpy(), counted, strict=True):
        (start, *_) = np.flatnonzero((places == row).all(1))
        numbers = [int((begins <= start + offset).sum()) for offset in range(length)]
        assert document.tolist() == [number - numbers[0] for number in numbers]
    assert counted.max() > 0


def test_documents_of_a_window_count_from_0(tmp_path):
    store = prepare(write_lines(tmp_path / "a.jsonl", ["x"] * 50), BYTES, tmp_path)
    found = windows(store, "train", 3, torch.arange(40))
    tokens, counted = found.tokens, found.documents
    expected = {BYTES.bos_token_id: [0, 0, 1], ord("x"): [0, 1, 1]}
    assert {int(row[0]) for row in tokens} == set(expected)
    assert counted.tolist() == [expected[int(row[0])] for row in tokens]


def test_windows_of_an_epoch_do_not_overlap(pydoc):
    length, total = 64, pydoc.tokens("heldout")
    blocks = (total - length + 1) // length
    epochs = [
        windows(pydoc, "heldout", length, torch.arange(blocks) + epoch * blocks).tokens
        for epoch in range(2)
    ]
    counts = np.bincount(pydoc.stream("heldout"), minlength=len(WORDS))
    for epoch in epochs:
        seen = torch.bincount(epoch.flatten(), minlength=len(WORDS)).numpy()
        assert (seen <= counts).all()
        assert seen.sum() == blocks * length > total - 2 * length
    assert not torch.equal(*epochs)


def test_a_window_depends_on_its_number_and_the_seed_only(pydoc):
    again = TokenStore(pydoc.folder)
    copy = pickle.loads(pickle.dumps(pydoc))
    many = windows(pydoc, "train", 50, torch.arange(40), seed=1).tokens
    for index in (0, 17, 39):
        for store in (again, copy):
            alone = windows(store, "train", 50, torch.tensor([index]), seed=1).tokens
            assert torch.equal(alone[0], many[index])
    assert not torch.equal(windows(pydoc, "train", 50, torch.arange(40), seed=2).tokens, many)


def test_a_store_is_written_once(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "a.jsonl", ["one", "two"])
    first = prepare(source, WORDS, tmp_path / "stores")
    with monkeypatch.context() as patch:
        patch.setattr(building, "_build", lambda *_: pytest.fail("built again"))
        assert prepare(source, WORDS, tmp_path / "stores").folder == first.folder
    other = {
        prepare(source, BYTES, tmp_path / "stores").folder,
        prepare(source, WORDS, tmp_path / "stores", tokens=3).folder,
    }
    write_lines(tmp_path / "a.jsonl", ["one", "two", "three"])
    other.add(prepare(source, WORDS, tmp_path / "stores").folder)
    assert len(other | {first.folder}) == 4


def test_stores_are_kept_beside_runs(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "a.jsonl", ["one", "two"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_RUNS", raising=False)
    assert prepare(source, WORDS).folder.parent.resolve() == tmp_path / "runs" / "corpora"
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "elsewhere"))
    assert prepare(source, WORDS).folder.parent == tmp_path / "elsewhere" / "corpora"


def test_a_limit_is_exact(tmp_path):
    texts = [f"document number {number} with ä" * 5 for number in range(50)]
    source = write_lines(tmp_path / "a.jsonl", texts)
    whole = prepare(source, BYTES, tmp_path)
    cut = prepare(source, BYTES, tmp_path, tokens=1234)
    assert cut.tokens("train") + cut.tokens("heldout") == 1234
    for split in SPLITS:
        count = cut.tokens(split)
        assert cut.stream(split).tolist() == whole.stream(split)[:count].tolist()
    starts = sum(int((cut.stream(split) == BYTES.bos_token_id).sum()) for split in SPLITS)
    size = sum(cut.bytes_per_token(split) * cut.tokens(split) for split in SPLITS)
    assert round(size) == 1234 - starts


def test_parts_of_a_large_document_stay_together(tmp_path, monkeypatch):
    from bayesattn.corpora import text

    whole = "".join(f"line {number}\n" for number in range(300))
    (tmp_path / "a.txt").write_text(whole)
    (tmp_path / "b.txt").write_text("another\n" * 9)
    plain = prepare(str(tmp_path), BYTES, tmp_path / "plain")
    monkeypatch.setattr(text, "PART", 100)
    monkeypatch.setattr(building, "BATCH", 64)
    parted = prepare(str(tmp_path), BYTES, tmp_path / "parted")
    for split in SPLITS:
        assert parted.stream(split).tolist() == plain.stream(split).tolist()
    assert parted.about == plain.about


def test_a_corpus_is_never_whole_in_memory(tmp_path, monkeypatch):
    from bayesattn.corpora import text

    monkeypatch.setattr(text, "PART", 2**14)
    monkeypatch.setattr(building, "BATCH", 2**14)
    (tmp_path / "a.txt").write_text("0123456789abcde\n" * 2**15)  # 512 KiB
    write_lines(tmp_path / "b.jsonl", ["0123456789abcde\n" * 2**9] * 2**6)  # as much
    BYTES("warm up")
    tracemalloc.start()
    store = prepare(str(tmp_path), BYTES, tmp_path / "store")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert store.tokens("train") + store.tokens("heldout") > 2**20
    # A list of all tokens has 8 bytes for each, even if small integers cost nothing.
    assert peak < 2**22


def test_one_document_keeps_its_end_for_evaluation(tmp_path):
    text = "".join(chr(ord("a") + number % 26) for number in range(1000))
    (tmp_path / "a.txt").write_text(text)
    store = prepare(str(tmp_path / "a.txt"), BYTES, tmp_path)
    train, heldout = (store.stream(split).tolist() for split in SPLITS)
    assert train[0] == heldout[0] == BYTES.bos_token_id
    assert BYTES.decode(train[1:] + heldout[1:]) == text
    assert len(heldout) == 101
    assert [len(document) for document in store.documents("heldout")] == [101]
    assert [len(document) for document in store.documents("train")] == [901]


def test_the_end_that_is_held_out_is_never_whole_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BATCH", 2**14)
    tokens = (np.arange(2**21) % 250).astype("<u2")
    tokens.tofile(tmp_path / "train.tokens")
    np.zeros(1, "<i8").tofile(tmp_path / "train.starts")
    counts = {split: {"tokens": 0, "documents": 0, "bytes": 0} for split in SPLITS}
    counts["train"] = {"tokens": len(tokens), "documents": 1, "bytes": len(tokens)}
    tracemalloc.start()
    building._hold_out_the_end(tmp_path, counts, 7, "<u2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**18
    kept, end = np.split(tokens, [len(tokens) - len(tokens) // 10])
    held = np.fromfile(tmp_path / "heldout.tokens", "<u2")
    assert np.array_equal(held, [7, *end[end != 7]])
    assert np.array_equal(np.fromfile(tmp_path / "train.tokens", "<u2"), kept)
    assert [counts[split]["tokens"] for split in SPLITS] == [len(kept), len(held)]


def test_several_documents_of_which_none_is_held_out_by_its_hash(tmp_path):
    texts = [text for text in (f"text {number}" for number in range(30)) if not is_held_out(text)]
    store = prepare(write_lines(tmp_path / "a.jsonl", texts), BYTES, tmp_path)
    kept = b"".join(bytes(document[1:].tolist()) for document in store.documents("train"))
    held = b"".join(bytes(document[1:].tolist()) for document in store.documents("heldout"))
    assert (kept + held).decode() == "".join(texts)
    assert held
    assert all((document[0] == BYTES.bos_token_id) for document in store.documents("train"))


def test_large_vocabularies_need_more_room(tmp_path):
    vocabulary = {f"w{number}": number for number in range(70_000)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="w1")
    store = prepare(write_lines(tmp_path / "a.jsonl", ["w69999 w2 w65536"]), fast, tmp_path)
    assert store.stream("train").tolist() == [1, 69_999, 2, 65_536]


def test_nothing_is_left_of_a_store_that_could_not_be_written(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "a.jsonl", ["one", "two"])
    root = tmp_path / "stores"

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(building, "_append", full)
        with pytest.raises(CorpusError, match=r"Cannot write .*No space left.*: make room"):
            prepare(source, WORDS, root)
    assert list(root.iterdir()) == []
    assert prepare(source, WORDS, root).tokens("train") > 0
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"no": 1}\n')
    with pytest.raises(CorpusError, match="Line 2"):
        prepare(str(tmp_path / "b.jsonl"), WORDS, root)
    assert len(list(root.iterdir())) == 1


def test_what_a_killed_writer_left_is_removed_after_a_while(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "a.jsonl", ["one", "two"])
    left = tmp_path / "stores" / ".tmp-something-1"
    left.mkdir(parents=True)
    (left / "train.tokens").write_bytes(b"half")
    prepare(source, WORDS, tmp_path / "stores")
    assert left.exists()  # its writer may be alive
    monkeypatch.setattr(building, "ABANDONED", -1.0)
    prepare(source, BYTES, tmp_path / "stores")
    assert not left.exists()


def test_two_writers_of_the_same_store_agree(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "a.jsonl", ["one", "two"])
    real = building._write

    def slow(folder, *rest):
        about = real(folder, *rest)
        with monkeypatch.context() as patch:  # meanwhile, another process
            patch.setattr(building, "_write", real)
            patch.setattr(building.os, "getpid", lambda: 1)
            prepare(source, WORDS, tmp_path / "stores")
        return about

    monkeypatch.setattr(building, "_write", slow)
    store = prepare(source, WORDS, tmp_path / "stores")
    assert [path.name for path in (tmp_path / "stores").iterdir()] == [store.folder.name]


def test_corpora_shorter_than_a_window(tmp_path):
    store = prepare(write_lines(tmp_path / "a.jsonl", ["abcd"]), BYTES, tmp_path)
    assert windows(store, "train", 5, torch.arange(9)).tokens.shape == (9, 5)
    with pytest.raises(CorpusError, match="has 5 train tokens, fewer than one window of 6:"):
        windows(store, "train", 6, torch.arange(9))
    with pytest.raises(CorpusError, match="has no heldout tokens"):
        store.stream("heldout")
    with pytest.raises(CorpusError, match="must be 1 or more, not 0"):
        windows(store, "train", 0, torch.arange(9))


def test_bad_stores(tmp_path):
    with pytest.raises(CorpusError, match="no tokens of a corpus in"):
        TokenStore(tmp_path)
    with pytest.raises(CorpusError, match="tokens must be 1 or more"):
        prepare("pydoc", WORDS, tmp_path, tokens=0)
    store = prepare(write_lines(tmp_path / "a.jsonl", ["one", "two"]), BYTES, tmp_path)
    (store.folder / "train.tokens").write_bytes(b"")
    with pytest.raises(CorpusError, match="are damaged .*: delete that folder"):
        TokenStore(store.folder).stream("train")
