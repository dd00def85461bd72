"""The probing benchmark's bookkeeping; never its times."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bayesattn.corpora import load_tokenizer
from bayesattn.errors import UserError
from bayesattn.models.architectures import Transformer, build
from bayesattn.probes.llm.subject import Subject
from bayesattn.tunnels import Bijection
from benchmarks import probing
from benchmarks.probing import (
    CASES,
    NAMES,
    ProbingBench,
    measure,
    measure_prompts,
    prompts_of,
)

SMALL = (Bijection(4), Transformer(width=16, layers=1))


def test_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(probing, "CASES", {"small": SMALL})
    monkeypatch.setattr(probing, "load", language_model)
    file = tmp_path / "bench.json"
    assert ProbingBench(batch=8, seconds=0.0, json=str(file)).run() == 0
    rows = json.loads(file.read_text())
    assert [row["names"] for row in rows] == [*NAMES, "everything"]
    assert rows[0]["tensors"] == 11 and rows[1]["tensors"] == 1 and rows[2]["tensors"] == 3
    assert all(row["rounds"] >= 3 for row in rows)
    assert [row["batch"] for row in rows] == [8, 8, 8, 75] and rows[3]["tensors"] == 13
    assert "small" in capsys.readouterr().out


def language_model(_):
    torch.manual_seed(0)
    tokenizer = load_tokenizer("bytes")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    return Subject.of(LlamaForCausalLM(config), tokenizer)


def test_prompts_are_read_on_both_sides():
    subject, seen = language_model("small"), []
    hook = subject.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    prompts = prompts_of(subject, 3, 5)
    assert [len(prompt) for prompt in prompts] == [5, 5, 5] and prompts[0] != prompts[1]
    measure_prompts("small", subject, prompts, 0.0)
    hook.remove()
    assert len(seen) >= 8 and all(tokens.tolist() == prompts for tokens in seen)


def test_both_sides_see_the_same_batch(monkeypatch):
    seen = []
    tunnel, architecture = SMALL
    model = build(architecture, tunnel, 0).eval()
    forward = model.forward

    def spy(inputs, scored=None):
        seen.append((inputs, scored))
        return forward(inputs, scored)

    monkeypatch.setattr(model, "forward", spy)
    measure("small", model, tunnel, 6, 0.0)
    assert len(seen) >= 16
    for inputs, scored in seen:
        assert torch.equal(inputs, seen[0][0]) and torch.equal(scored, tunnel.scored)


def test_the_authors_size_is_among_the_cases():
    assert any(architecture.width == 192 for _, architecture in CASES.values())


def test_mistakes():
    with pytest.raises(UserError, match="must be positive"):
        ProbingBench(batch=0).run()
