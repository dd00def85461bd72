"""Reading in chunks gives what one full forward gives."""

import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, MambaConfig, MambaForCausalLM

from bayesattn.attention import attend
from bayesattn.evals import prefill
from bayesattn.evals.prefill import Reader, read_rows
from bayesattn.evals.room import MARKS
from tests.attention.scenes import count_pairs
from tests.evals.language import gpt2, llama
from tests.models.common import ENCODING_NAMES, SSMAX, tiny_model, tokens

LENGTH = 67
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


def reader_of(model, chunk, batch=1, **settings):
    reader = Reader(model, batch=batch, tokens=LENGTH, **settings)
    reader.chunk = chunk
    return reader


@pytest.mark.parametrize("encoding", ENCODING_NAMES)
@pytest.mark.parametrize("ssmax", SSMAX)
@pytest.mark.parametrize("prior", ["ggd", "uniform"])
@torch.no_grad()
def test_chunks_are_the_full_forward(prior, ssmax, encoding):
    model = tiny_model(prior=prior, encoding=encoding, **SSMAX[ssmax])
    ids = tokens(2, LENGTH)
    full = model(ids).logits
    for chunk in (7, 40, LENGTH):
        pieces = list(reader_of(model, chunk, batch=2).read(ids))
        assert torch.cat([piece.asked for piece in pieces]).tolist() == list(range(LENGTH))
        torch.testing.assert_close(torch.cat([p.logits for p in pieces], dim=1), full, **CLOSE)
        asked = [0, 6, 7, 40, 66]
        made = reader_of(model, chunk, batch=2).logits(ids, asked)
        torch.testing.assert_close(made, full[:, asked], **CLOSE)


def neox():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = GPTNeoXConfig(**sizes, intermediate_size=64, vocab_size=37, use_sliding_window=False)
    return GPTNeoXForCausalLM(config).eval()


OTHERS = {
    "gpt2": lambda: gpt2(positions=LENGTH),
    "llama": llama,
    "eager llama": lambda: llama(attn_implementation="eager"),
    "neox": neox,
}


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_any_causal_model(name):
    model, ids = OTHERS[name](), tokens(2, LENGTH)
    full = model(ids).logits
    for chunk in (7, 40):
        made = reader_of(model, chunk, batch=2).logits(ids, [5, 39, 66])
        torch.testing.assert_close(made, full[:, [5, 39, 66]], **CLOSE)


@torch.no_grad()
def test_a_model_that_cannot_choose_logits(monkeypatch):
    model, ids = llama(), tokens(1, LENGTH)
    forward = model.forward

    def plain(input_ids, past_key_values=None, use_cache=None):
        return forward(input_ids, past_key_values=past_key_values, use_cache=use_cache)

    monkeypatch.setattr(model, "forward", plain)
    made = reader_of(model, 20).logits(ids, [5, 66])
    torch.testing.assert_close(made, model(ids).logits[:, [5, 66]], **CLOSE)


@torch.no_grad()
def test_reading_on_and_going_back():
    model, ids, others = tiny_model(), tokens(1, LENGTH), tokens(1, LENGTH, seed=7)
    reader = reader_of(model, 16)
    reader.logits(ids[:, :30], [29])
    reader.logits(others[:, :20], [])
    assert reader.length == 50
    assert reader.rewind(30) == 30 and reader.rewind(40) == 30
    made = reader.logits(ids[:, 30:], [0, 36])
    torch.testing.assert_close(made, model(ids).logits[:, [30, 66]], **CLOSE)


def test_what_the_iterator_is_not_asked_for_is_not_read():
    reader = reader_of(tiny_model(), 10)
    pieces = reader.read(tokens(1, LENGTH))
    assert reader.length == 0
    next(pieces)
    assert reader.length == 10 and torch.is_grad_enabled()


def test_the_model_stays_as_it_was():
    model = tiny_model().train()
    reader = reader_of(model, 40, tolerance=1e-3)
    logits = reader.logits(tokens(1, LENGTH), [66])
    assert model.training and model.config.tolerance is None and not logits.requires_grad


@torch.no_grad()
def test_a_tolerance_reaches_attention(monkeypatch):
    model, ids = tiny_model(), tokens(1, 600)
    seen = []

    def watched(*args, **options):
        seen.append(options.get("tolerance"))
        return attend(*args, **options)

    monkeypatch.setattr("bayesattn.models.layers.attend", watched)
    reader = Reader(model, batch=1, tokens=600, tolerance=1e-5)
    reader.chunk = 250
    made = reader.logits(ids, [599])
    assert set(seen) == {1e-5}
    torch.testing.assert_close(made, model(ids).logits[:, -1:], **CLOSE)


@torch.no_grad()
def test_dynamic_rope_is_read_at_once_and_never_shared():
    model = tiny_model(encoding="rope", rope_parameters=DYNAMIC, max_position_embeddings=32)
    ids = tokens(1, LENGTH)
    reader = Reader(model, batch=1, tokens=LENGTH)
    made = reader.logits(ids, [66])
    torch.testing.assert_close(made, model(ids).logits[:, -1:], **CLOSE)
    assert reader.rewind(50) == 0
    torch.testing.assert_close(reader.logits(ids, [66]), made)


def rows_that_begin_alike():
    rows = tokens(1, LENGTH).repeat(4, 1)
    for row, start in enumerate((50, 12, 60, 30)):
        rows[row, start:] = tokens(LENGTH - start, seed=row)
    return rows


@pytest.mark.parametrize("together", [10_000, 2 * LENGTH, 1])
@torch.no_grad()
def test_rows_in_any_grouping(together, monkeypatch):
    monkeypatch.setattr(prefill, "TOGETHER", together)
    model, rows = tiny_model(), rows_that_begin_alike()
    full = model(rows).logits
    seen = []
    for read in read_rows(model, rows, [60, 66], extra=3):
        torch.testing.assert_close(read.logits, full[read.indices][:, [60, 66]], **CLOSE)
        # reading on does not disturb the rows that follow
        read.reader.logits(tokens(len(read.indices), 3, seed=99), [2])
        seen += read.indices
    assert sorted(seen) == [0, 1, 2, 3]


def test_what_rows_share_is_read_once(monkeypatch):
    monkeypatch.setattr(prefill, "TOGETHER", 1)
    model, rows = tiny_model(), rows_that_begin_alike()
    counted = []
    forward = Reader._forward
    monkeypatch.setattr(
        Reader,
        "_forward",
        lambda self, t, keep: counted.append(t.numel()) or forward(self, t, keep),
    )
    list(read_rows(model, rows, [66]))
    distinct = {tuple(row[:stop].tolist()) for row in rows for stop in range(1, LENGTH + 1)}
    assert sum(counted) == len(distinct) < rows.numel() * 0.7
    # logits are computed where they are asked for, though rows may agree there
    counted.clear()
    same = rows[:1].repeat(2, 1)
    list(read_rows(model, same, [40, 66]))
    assert sum(counted) == LENGTH + LENGTH - 40


def test_refusals():
    for tolerance in (0.0, 1.0):
        with pytest.raises(ValueError, match="a share of the posterior"):
            Reader(tiny_model(), batch=1, tokens=9, tolerance=tolerance)
    with pytest.raises(ValueError, match="in models of bayesattn on a CPU only"):
        Reader(llama(), batch=1, tokens=9, tolerance=1e-3)
    config = MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=37, state_size=4)
    with pytest.raises(ValueError, match="keeps no cache of keys and values"):
        Reader(MambaForCausalLM(config), batch=1, tokens=9)


@pytest.mark.parametrize("together", [8192, 1])
def test_work_is_told_chunk_by_chunk_and_adds_up(together, monkeypatch):
    monkeypatch.setattr(prefill, "TOGETHER", together)
    monkeypatch.setattr(prefill, "chunk_size", lambda *args, **settings: 16)
    rows = torch.arange(40).repeat(3, 1) % 37
    rows[1, 25:] = 5  # shares 25 tokens with the others
    told = []
    model = llama()
    for _ in prefill.read_rows(model, rows, [39], tell=told.append):
        pass
    assert len(told) == (3 if together > 1 else 3 + 1 + 1)
    assert sum(told) == pytest.approx(prefill.reading_work(model, rows, [39]))
    later = prefill.reading_work(model, torch.zeros(1, 80, dtype=torch.long), [79])
    assert later > 2 * prefill.reading_work(model, torch.zeros(1, 40, dtype=torch.long), [39])


@pytest.mark.parametrize("window", [1, 2, 5, 9, 40])
@torch.no_grad()
def test_layers_with_a_window_keep_no_more_and_are_put_back(window):
    settings = {"num_hidden_layers": 3, "global_layers": "last", "sliding_window": window}
    model, ids = tiny_model(**settings), tokens(1, LENGTH)
    wanted = model(ids).logits
    reader = reader_of(model, 8)
    for piece in reader.read(ids):
        torch.testing.assert_close(piece.logits, wanted[:, piece.asked], **CLOSE)
    near, _, far = (layer.keys for layer in reader._cache.layers)
    assert far.shape[2] == LENGTH and (window == 1 or near.shape[2] == min(window - 1, LENGTH))
    for length, back in ((66, 64), (63, 56), (64, 56), (50, 48), (7, 0), (0, 0)):
        assert reader.rewind(length) == back == reader.length
        found = reader.logits(ids[:, back : back + 11], [9])
        torch.testing.assert_close(found, wanted[:, back + 9 : back + 10], **CLOSE)
        assert reader.rewind(back) == back


@torch.no_grad()
def test_few_of_many_lengths_are_remembered():
    model, ids = tiny_model(global_layers="last", sliding_window=3), tokens(1, 400)
    wanted = model(ids).logits
    reader = Reader(model, batch=1, tokens=400)
    reader.chunk = 2
    for _ in reader.read(ids):
        pass
    marked = list(reader._cache.layers[0].marked)
    assert MARKS // 2 <= len(marked) < MARKS and marked == reader._cache._marks
    back = reader.rewind(200)
    assert 100 < back <= 200
    found = reader.logits(ids[:, back:], [399 - back])
    torch.testing.assert_close(found, wanted[:, -1:], **CLOSE)


@torch.no_grad()
def test_a_prompt_costs_linear_time_where_only_the_last_layer_looks_far(monkeypatch):
    """Pairs of queries and keys, and keys that are kept: both grow like the prompt."""
    model = tiny_model(num_hidden_layers=3, global_layers="last", sliding_window=20)
    counted, found = count_pairs(monkeypatch), []
    for length in (2048, 4096):
        counted.update(forward=0, flat=0)
        reader = Reader(model, batch=1, tokens=length)
        reader.chunk = 512
        made = reader.logits(tokens(1, length), [length - 1])
        kept = [layer.keys.shape[2] for layer in reader._cache.layers]
        assert kept == [19, 19, length]
        found.append(counted["forward"] + counted["flat"])
    assert 0 < found[1] < 2.1 * found[0] < 2.1 * 4 * 3 * 2048 * 600
    torch.testing.assert_close(made, model(tokens(1, length)).logits[:, -1:], **CLOSE)
