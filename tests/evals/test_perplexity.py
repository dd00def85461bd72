"""Perplexity by position, against losses that are computed one prefix at a time."""

import math

import pytest
import torch

from bayesattn.evals import perplexity as module
from bayesattn.evals.perplexity import perplexity
from bayesattn.models.open import LanguageModel
from tests.evals.language import untrained
from tests.models.common import tiny_model, tokens

TRAINED = 8


def language_model(**settings):
    base = untrained()
    return LanguageModel(tiny_model(**settings), base.tokenizer, TRAINED, "tiny")


@torch.no_grad()
def loss_after(model, context, target):
    return -model(context[None]).logits[0, -1].log_softmax(-1)[target].item()


@pytest.mark.parametrize("together", [8192, 1])
@pytest.mark.parametrize("count", [29, 8, 5])
def test_losses_are_those_of_single_prefixes(count, together, monkeypatch):
    monkeypatch.setattr(module, "TOGETHER", together)
    model, rows = language_model(encoding="rope"), tokens(3, count + 1)
    found = perplexity(model, rows)
    long = [[loss_after(model.model, row[:t], row[t]) for t in range(1, count + 1)] for row in rows]
    torch.testing.assert_close(found.losses, torch.tensor(long), rtol=1e-4, atol=1e-4)
    if count <= TRAINED:
        assert torch.equal(found.short, found.losses)


def test_a_short_context_is_short_but_not_too_short():
    model, rows = language_model(encoding="none"), tokens(2, 31)
    found = perplexity(model, rows)
    for row, losses in zip(rows, found.short, strict=True):
        for t in range(1, 31):
            contexts = range(min(t, TRAINED // 2 + 1), min(t, TRAINED) + 1)
            allowed = [loss_after(model.model, row[t - c : t], row[t]) for c in contexts]
            assert min(abs(losses[t - 1].item() - one) for one in allowed) < 1e-4
            if t <= TRAINED:
                assert losses[t - 1] == pytest.approx(allowed[-1], abs=1e-4)
    assert (found.short - found.losses)[:, TRAINED:].abs().max() > 1e-2


def test_windows_and_lengths_are_means_and_exponentials():
    rows = tokens(5, 21)
    found = perplexity(language_model(), rows, window=6)
    windows = found.by_window()
    assert [(row["from"], row["to"]) for row in windows] == [(1, 6), (7, 12), (13, 18), (19, 20)]
    assert [(row["from"], row["to"]) for row in found.by_length()] == [(1, 8), (1, 16), (1, 20)]
    second = found.losses[:, 6:12].double()
    assert windows[1]["loss"] == pytest.approx(second.mean().item())
    assert windows[1]["perplexity"] == pytest.approx(second.mean().exp().item())
    spread = second.mean(1).std().item() / math.sqrt(5) * 2.7764451  # Student's t, 4 degrees
    assert windows[1]["loss_low"] == pytest.approx(windows[1]["loss"] - spread)
    assert windows[1]["perplexity_high"] == pytest.approx(math.exp(windows[1]["loss"] + spread))
    gain = (found.short - found.losses)[:, 12:18].double()
    assert windows[2]["gain"] == pytest.approx(gain.mean().item())
    assert found.by_length()[1]["loss"] == pytest.approx(found.losses[:, :16].double().mean())
    assert windows[0]["gain"] == pytest.approx(0, abs=1e-5)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    model = language_model()
    with torch.no_grad():
        model.model.lm_head.weight.zero_()
    found = perplexity(model, tokens(2, 21)).to_json()
    for row in found["windows"] + found["lengths"]:
        assert row["perplexity"] == pytest.approx(37, rel=1e-5)
    assert found["positions"] == pytest.approx([math.log(37)] * 20, rel=1e-5)
    assert found["sequences"] == 2 and found["window"] == TRAINED


def test_one_sequence_has_no_interval():
    row = perplexity(language_model(), tokens(1, 12)).by_window()[0]
    assert row["loss_low"] is None and row["perplexity_high"] is None and row["perplexity"] > 1


def test_memory_and_tolerance_change_nothing():
    model, rows = language_model(), tokens(1, 301)
    exact = perplexity(model, rows)
    again = perplexity(model, rows, tolerance=1e-7, memory=98 << 20)
    torch.testing.assert_close(exact.losses, again.losses, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(exact.short, again.short, rtol=1e-4, atol=1e-4)


def test_refusals():
    with pytest.raises(ValueError, match="window must be 1 or more"):
        perplexity(language_model(), tokens(1, 12), window=0)
    with pytest.raises(ValueError, match="cannot read 80"):
        perplexity(language_model(encoding="learned"), tokens(1, 81))
    with pytest.raises(ValueError, match="share of the posterior"):
        perplexity(language_model(), tokens(1, 12), tolerance=2.0)
