"""Retrieval by length and depth, of models that know the answer and of those that do not."""

import pytest
import torch

from bayesattn.corpora import NeedleMaker, load_tokenizer
from bayesattn.evals import prefill
from bayesattn.evals.passkey import SCORINGS, Cell, Passkey, passkey
from bayesattn.models.open import LanguageModel
from tests.evals.language import gpt2, oracle, untrained


@pytest.fixture(params=[8192, 1], ids=["together", "one by one"])
def together(request, monkeypatch):
    monkeypatch.setattr(prefill, "TOGETHER", request.param)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_a_perfect_oracle_finds_every_key(scoring, together):
    found = passkey(oracle(), "1x,3x,300", depths=4, samples=2, scoring=scoring)
    assert [cell.requested for cell in found.by_length()] == ["1x", "300", "3x"]
    assert all(cell.accuracy == 1 and cell.total == 2 for cell in found.cells)
    assert [cell.depth for cell in found.cells[:4]] == pytest.approx([0, 1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("digit", [0, 2, 4])
@pytest.mark.parametrize("scoring", SCORINGS)
def test_one_wrong_digit_is_wrong(scoring, digit, together):
    known = oracle(reach=200, wrong_digit=digit)
    found = passkey(known, "1x,2x", depths=3, samples=1, scoring=scoring)
    assert [cell.correct for cell in found.by_length()] == [3, 0]


def test_real_lengths_are_measured_and_never_above_the_requested():
    maker = NeedleMaker(load_tokenizer("words"))
    found = passkey(oracle(), "1x,200,2x", depths=2, samples=1)
    for cell, asked in zip(found.by_length(), (128, 200, 256), strict=True):
        assert asked - maker.unit < cell.length <= asked


def test_intervals_are_wilsons():
    cell = Cell("1x", 128, 0.5, 10, 10)
    assert cell.interval.low == pytest.approx(10 / (10 + 1.959964**2))
    assert cell.interval.high == 1


def test_what_an_untrained_model_scores_is_its_argmax(together):
    model = untrained()
    found = passkey(model, "150", depths=3, samples=2, seed=3)
    prompts = NeedleMaker(model.tokenizer).prompts(150, [0, 0.5, 1], 2, 3)
    with torch.no_grad():
        logits = model.model(torch.cat((prompts.tokens, prompts.answers), dim=1)).logits
    guessed = logits[:, prompts.length - 1 : -1].argmax(-1)
    right = (guessed == prompts.answers)[:, prompts.scored].all(dim=1)
    assert [cell.correct for cell in found.cells] == right.view(3, 2).sum(1).tolist()


def test_depths_are_not_confused(monkeypatch):
    """A model that is right only where the key is in the second half of the prompt."""
    known = oracle()
    honest = type(known.model)._next

    def far_sighted(self, tokens):
        text = self.tokenizer.decode(tokens)
        self.reach = 0 if text.index("Remember it") < len(text) / 2 else 10**9
        return honest(self, tokens)

    monkeypatch.setattr(type(known.model), "_next", far_sighted)
    found = passkey(known, "8x", depths=5, samples=2)
    assert [cell.correct for cell in found.cells] == [0, 0, found.cells[2].correct, 2, 2]
    monkeypatch.setattr(prefill, "TOGETHER", 1)
    assert passkey(known, "8x", depths=5, samples=2) == found


def test_shared_beginnings_are_read_once(monkeypatch):
    monkeypatch.setattr(prefill, "TOGETHER", 1)
    known = oracle()
    found = passkey(known, "8x", depths=10, samples=1)
    assert known.model.read < 0.7 * 10 * found.cells[0].length


def test_giving_up():
    settings = {"depths": 2, "samples": 1}
    found = passkey(oracle(reach=130), "1x,2x,3x,4x,5x", give_up=2, **settings)
    assert [cell.requested for cell in found.by_length()] == ["1x", "2x", "3x"]
    everything = passkey(oracle(reach=130), "1x,2x,3x,4x,5x", depths=2, samples=1)
    assert [cell.correct for cell in everything.by_length()] == [2, 0, 0, 0, 0]


def test_what_is_known_is_reported_chunk_by_chunk(together):
    reported: list[tuple[Passkey, float]] = []
    found = passkey(
        oracle(), "1x,3x", depths=3, samples=2, report=lambda *news: reported.append(news)
    )
    shares = [share for _, share in reported]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] == pytest.approx(1)
    answered = [sum(cell.total for cell in known.cells) for known, _ in reported]
    assert answered == sorted(answered) and answered[0] == 0 and 6 <= answered[-1] < 12
    assert all(set(known.by_length()[:1]) <= set(found.by_length()) for known, _ in reported[-1:])


def stop_after(answers):
    def report(found, share):
        if sum(cell.total for cell in found.cells) >= answers:
            raise KeyboardInterrupt

    return report


def test_what_was_answered_before_a_stop_is_not_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(prefill, "TOGETHER", 1)
    settings = {"depths": 3, "samples": 2, "keep": tmp_path / "answers"}
    model = oracle(reach=200)  # right at 1x, wrong beyond
    whole = passkey(model, "1x,2x", depths=3, samples=2)
    everything = model.model.read
    with pytest.raises(KeyboardInterrupt):
        passkey(model, "1x,2x", **settings, report=stop_after(8))
    with (tmp_path / "answers").open("a") as file:
        file.write('["0123')  # as a kill may leave it
    model.model.read = 0
    reported: list[float] = []
    assert (
        passkey(model, "1x,2x", **settings, report=lambda _, share: reported.append(share)) == whole
    )
    assert 0 < model.model.read < everything / 2
    assert reported[0] > 0.1 and reported[-1] == pytest.approx(1)
    model.model.read = 0
    assert passkey(model, "1x,2x", **settings) == whole and model.model.read == 0
    more = passkey(model, "1x,2x", depths=3, samples=2, seed=1, keep=tmp_path / "answers")
    assert model.model.read > 0 and more.seed == 1


def test_answers_of_another_model_or_scoring_are_refused(tmp_path):
    settings = {"depths": 1, "samples": 1, "keep": tmp_path / "answers"}
    passkey(untrained(), "1x", **settings)
    passkey(untrained(), "1x", **settings)
    with pytest.raises(ValueError, match="answers with scoring 'teacher': remove it, or write"):
        passkey(untrained(), "1x", scoring="generated", **settings)
    sharper = untrained()
    sharper.model.config.ssmax_horizon = 128
    with pytest.raises(ValueError, match="answers with identity '"):
        passkey(sharper, "1x", **settings)
    changed = untrained()
    with torch.no_grad():
        changed.model.lm_head.weight[0, 0] += 1
    with pytest.raises(ValueError, match="answers with identity '"):
        passkey(changed, "1x", **settings)


def test_seeds_and_json():
    first, again, other = (
        passkey(oracle(), "1x", depths=1, samples=2, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other and first.cells[0].depth == 0.5
    found = first.to_json()
    assert found["trained"] == 128 and found["kind"] == "passkey" and found["seed"] == 1
    assert found["lengths"] == [
        {key: value for key, value in found["cells"][0].items() if key != "depth"}
    ]
    assert found["cells"][0] == {
        "requested": "1x",
        "length": first.cells[0].length,
        "depth": 0.5,
        "correct": 2,
        "total": 2,
        "accuracy": 1.0,
        "low": pytest.approx(2 / (2 + 1.959964**2)),
        "high": 1.0,
    }


def test_a_tolerance_changes_nothing_that_counts(together):
    model = untrained()
    exact, loose = (
        passkey(model, "300", depths=2, samples=1, tolerance=tolerance)
        for tolerance in (None, 1e-5)
    )
    assert exact.cells == loose.cells and loose.tolerance == 1e-5


def test_other_needles():
    tokenizer = load_tokenizer("words")
    maker = NeedleMaker(tokenizer, kind="multivalue")
    found = passkey(untrained(), "2x", depths=2, samples=1, maker=maker)
    assert isinstance(found, Passkey) and found.kind == "multivalue" and len(found.cells) == 2


def test_mistakes_are_found_before_anything_is_read(monkeypatch):
    known = oracle()
    cases = [
        ({"lengths": "20"}, "at least"),
        ({"lengths": "1x,ten"}, "a multiple such as 8x"),
        ({"scoring": "guess"}, "unknown scoring 'guess'"),
        ({"depths": 0}, "depths must be 1 or more"),
        ({"samples": 0}, "samples must be 1 or more"),
        ({"give_up": 0}, "give_up must be 1 or more"),
        ({"tolerance": 0.1}, "in models of bayesattn"),
    ]
    for change, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            passkey(known, **({"lengths": "1x"} | change))
    assert known.model.read == 0
    tokenizer = load_tokenizer("bytes")
    learned = LanguageModel(gpt2(positions=900), tokenizer, 900, "gpt2")
    with pytest.raises(ValueError, match="learned positions for 900 tokens and cannot read 1,80"):
        passkey(learned, "1x,2x")


def test_answers_must_fit_too():
    model = untrained(encoding="learned", max_position_embeddings=150)
    maker = NeedleMaker(model.tokenizer)
    assert len(passkey(model, str(150 - maker.answer_length), depths=2).cells) == 2
    with pytest.raises(ValueError, match="learned positions for 150 tokens"):
        passkey(model, "150", depths=2)
