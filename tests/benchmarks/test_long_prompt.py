"""The long prompt: the authors' way is the same mathematics, and the bookkeeping is right."""

import json

import pytest
import torch

from bayesattn.corpora import NeedleMaker
from bayesattn.errors import UserError
from benchmarks import long_prompt
from benchmarks.authors_prompt import AuthorsReader
from benchmarks.long_prompt import WAYS, PromptBench, Row, run
from tests.evals.language import untrained
from tests.models.common import tiny_model, tokens


@pytest.mark.parametrize("groups", [2, 4])
@torch.no_grad()
def test_the_authors_way_gives_our_logits(groups):
    model, ids = tiny_model(num_key_value_heads=groups), tokens(1, 150)
    for layer in model.model.layers:  # a power of 1e-5 is beyond float32's digits at -0.6
        layer.self_attn.prior.theta_beta.clamp_(min=-0.3)
    full = model(ids).logits
    reader = AuthorsReader(model, 150)
    first = reader.logits(ids[:, :100], [0, 64, 99])
    second = reader.logits(ids[:, 100:], [49])
    made = torch.cat((first, second), dim=1)
    torch.testing.assert_close(made, full[:, [0, 64, 99, 149]], rtol=1e-3, atol=1e-3)
    assert reader.rewind(100) == 100
    torch.testing.assert_close(reader.logits(ids[:, 100:], [49]), second)


@pytest.mark.parametrize(
    "settings",
    [
        {"prior": "laplace"},
        {"encoding": "rope"},
        {"ssmax": False},
        {"ssmax_scope": "content"},
        {"ssmax_horizon": 64},
    ],
)
def test_other_models_are_not_the_authors(settings):
    with pytest.raises(ValueError, match="needs a model with prior ggd in every layer"):
        AuthorsReader(tiny_model(**settings), 9)


@pytest.mark.slow
def test_all_ways_read_one_prompt_in_turns(tmp_path):
    model = untrained()
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    # the answer lies on both sides of a border of segments
    prompts = NeedleMaker(model.tokenizer).prompts(400, [0.5], 1)
    segment = (prompts.length + 2) // 2
    rows = run(PromptBench(source=str(tmp_path), length=400, rounds=2), segment)
    assert [row.way for row in rows] == list(WAYS)
    for row in rows:
        assert row.length == prompts.length + 5 and row.rounds == 2 and row.seconds > 0
        assert row.same_answer and row.extra_bytes >= 0 and row.max_difference < 1e-2
    exact, _, authors = rows
    assert authors.ratio == 1 and authors.max_difference > 0 == exact.max_difference
    assert exact.ratio == authors.seconds / exact.seconds


def test_table_and_json(monkeypatch, tmp_path, capsys):
    rows = [Row(way, 64_005, 10.0, 3.2, 1, 2**30, 1e-6, True, True) for way in WAYS]
    monkeypatch.setattr(long_prompt, "run", lambda config: rows)
    file = tmp_path / "bench.json"
    assert PromptBench(json=str(file)).run() == 0
    assert [row["way"] for row in json.loads(file.read_text())] == list(WAYS)
    out = capsys.readouterr().out
    assert "64,005 tokens" in out and "3.20" in out and "1024" in out


def test_mistakes(capsys):
    with pytest.raises(UserError, match="--rounds must be 1 or more"):
        PromptBench(rounds=0).run()
    with pytest.raises(UserError, match="at least"):
        PromptBench(length=10).run()
    with pytest.raises(UserError, match="share of the posterior"):
        PromptBench(length=200, tolerance=2.0).run()
    with pytest.raises(UserError, match="allow more memory"):
        PromptBench(length=9000, memory=0.01).run()
