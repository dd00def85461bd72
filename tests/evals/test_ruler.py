"""RULER's scores: of a model that reads its prompts, and of models that do not."""

import json

import pytest

from bayesattn.commands.ruler import ruler_table
from bayesattn.corpora import encode, load_tokenizer
from bayesattn.corpora.ruler import KINDS
from bayesattn.evals.ruler import Cell, Ruler, ruler
from bayesattn.figures.language import draw_ruler
from bayesattn.models.open import LanguageModel
from tests.corpora.ruler.solve import kind_of, solve
from tests.evals.language import Oracle, gpt2, untrained

SOME = ("niah_multiquery", "vt", "fwe", "qa_hops")
TRAINED = 512


class Careful(Oracle):
    """Solves the prompt that is in its cache, writes the answer token by token, and ends.

    Of `blind` kinds it writes the same answer whatever the prompt says.
    """

    def __init__(self, tokenizer, blind=()):
        super().__init__(tokenizer)
        self.blind, self.prompt, self.answer = blind, None, []

    def _next(self, tokens):
        tokens = tokens.tolist()
        if self.prompt is None or tokens[: len(self.prompt)] != self.prompt:
            text = self.tokenizer.decode(tokens)
            kind = kind_of(text)
            solved = "1234567" if kind in self.blind else solve(kind, text)
            (self.answer,) = encode(self.tokenizer, [f" {solved}"])
            self.prompt = tokens
        written = len(tokens) - len(self.prompt)
        ended = written == len(self.answer)
        return self.tokenizer.eos_token_id if ended else self.answer[written]


def careful(**settings):
    tokenizer = load_tokenizer("words")
    return LanguageModel(Careful(tokenizer, **settings), tokenizer, TRAINED, "careful")


def test_a_model_that_reads_scores_one_and_one_that_does_not_scores_zero():
    found = ruler(careful(blind=("vt",)), "1x,1000", kinds=SOME, samples=2)
    assert {cell.kind: cell.score for cell in found.cells} == dict.fromkeys(SOME, 1.0) | {"vt": 0.0}
    assert [(cell.requested, cell.total) for cell in found.cells[::4]] == [("1x", 2), ("1000", 2)]
    assert all(cell.longest <= (512 if cell.requested == "1x" else 1000) for cell in found.cells)
    assert found.means() == {"1x": (0.75, 4), "1000": (0.75, 4)}


def test_kinds_that_do_not_fit_are_left_out_and_named():
    found = ruler(careful(), "1x", samples=1)
    assert set(found.left_out) == {"cwe"}
    assert [cell.kind for cell in found.cells] == [kind for kind in KINDS if kind != "cwe"]
    *_, said = ruler_table(found)
    assert said.startswith(f"cwe needs at least {found.left_out['cwe']:,} tokens")
    with pytest.raises(ValueError, match="A prompt of cwe has at least"):
        ruler(careful(), "1x", kinds=["cwe"], samples=1)
    with pytest.raises(ValueError, match="no kind of prompt fits into 20 tokens: choose"):
        ruler(careful(), "20", samples=1)


def test_an_untrained_model_scores_nothing_and_its_interval_says_so():
    found = ruler(untrained(), "400", kinds=["niah_single_1"], samples=2)
    (cell,) = found.cells
    assert cell.score == 0
    assert cell.interval.low == 0 < cell.interval.high < 1


def test_partial_answers_count_in_part():
    cell = Cell("vt", "1x", 500, 512, 0.4, 5)
    assert cell.interval.low < 0.4 < cell.interval.high
    assert Cell("vt", "1x", 500, 512, 0.4, 5).interval == Cell("a", "1x", 1, 1, 0.4, 5).interval


def test_a_stopped_measurement_goes_on_without_asking_again(tmp_path):
    keep = tmp_path / "answers"
    seen = []

    def stop(found, share):
        seen.append(share)
        if len(seen) == 3:
            raise KeyboardInterrupt

    settings = {"kinds": ["vt", "fwe"], "samples": 2, "keep": keep}
    with pytest.raises(KeyboardInterrupt):
        ruler(careful(), "1x", report=stop, **settings)
    again = careful()
    found = ruler(again, "1x", **settings)
    whole = careful()
    assert found == ruler(whole, "1x", kinds=["vt", "fwe"], samples=2)
    assert again.model.read < whole.model.read / 2
    assert seen == sorted(seen)


def test_mistakes_are_told_before_anything_is_read():
    model = careful()
    for settings, said in (
        ({"samples": 0}, "samples must be 1 or more"),
        ({"kinds": ["niah_singel_1"]}, "niah_single_1"),
        ({"tolerance": 0.1}, "models of bayesattn"),
        ({"corpus": "nowhere.txt"}, "There is no corpus nowhere.txt"),
    ):
        with pytest.raises(ValueError, match=said):
            ruler(model, "1x", **settings)
    assert model.model.read == 0
    small = LanguageModel(gpt2(), load_tokenizer("words"), 64, "small")
    with pytest.raises(ValueError, match="learned positions for 64 tokens"):
        ruler(small, "1x", kinds=["vt"])


def test_the_table_and_the_figure_show_every_kind_and_length():
    cells = [Cell("vt", "1x", 500, 512, 0.4, 5), Cell("fwe", "2x", 1000, 1024, 1.0, 5)]
    found = Ruler("m", 512, "pydoc", 0, None, cells, {"cwe": 2000})
    title, rows, left = ruler_table(found)
    assert "trained at 512 tokens" in title
    assert [row["kind"] for row in rows] == ["vt", "fwe", "mean"]
    assert rows[0]["2x"] == "-"
    assert rows[0]["1x"].startswith("0.40 (0.1")
    assert left.startswith("cwe needs at least 2,000")
    json.dumps(found.to_json())
    assert "1.00 at 2x" in draw_ruler(found).alt
