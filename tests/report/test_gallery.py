"""What everyone can play with: kept as data, drawn by the page, equal to what Python computes."""

import base64
import json

import numpy as np
import pytest
import torch

from bayesattn.evals.priors import decomposed
from bayesattn.ledger.ledger import Ledger
from bayesattn.ledger.study import Exhibit
from bayesattn.models.open import open_language
from bayesattn.report import gallery, page
from bayesattn.report.html import embedded
from tests.report.chromium import MARKS, complaints, open_details, script, serious_problems

KEPT = json.loads(gallery.FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made():
    """The attention of our own model, made anew."""
    return gallery.passkey()


def row(packed, heads, head, query):
    """Shares of one row, from logarithms in hundredths of a nat."""
    logs = np.frombuffer(base64.b64decode(packed), "<i2").reshape(heads, -1) / 100
    start = query * (query + 1) // 2
    return torch.tensor(logs[head, start : start + query + 1].copy()).softmax(0)


def test_the_gallery_that_comes_along_is_whole_and_small():
    assert list(KEPT) == list(gallery.MAKERS), "run `make results`"
    assert {own["kind"] for own in KEPT.values()} == {"beliefs", "attention", "simplex"}
    for own in KEPT.values():
        assert len(own["title"]) > 20 and own["caption"].endswith((".", "there."))
    assert gallery.FILE.stat().st_size < 3e6
    assert len(page.render(Ledger(), gallery.FILE.parent)) < 10e6


@torch.no_grad()
def test_what_is_kept_of_attention_is_what_the_model_attends_to(made):
    opened = open_language("zoo:passkey")
    tokens = opened.tokenizer("".join(made.data["tokens"]), return_tensors="pt")["input_ids"]
    assert tokens.shape[1] == len(made.data["tokens"])
    factors = decomposed(opened.model, tokens)
    for shown, own in zip(made.data["layers"], factors.values(), strict=True):
        heads = own.prior.shape[1]
        for head, query in ((0, 5), (heads - 1, tokens.shape[1] - 1)):
            for name in ("prior", "likelihood"):
                found = row(shown[name], heads, head, query)
                expected = getattr(own, name)[0, head, query, : query + 1].double()
                torch.testing.assert_close(found, expected, atol=0.01, rtol=0.02)
            both = row(shown["prior"], heads, head, query) * row(
                shown["likelihood"], heads, head, query
            )
            expected = own.posterior[0, head, query, : query + 1].double()
            torch.testing.assert_close(both / both.sum(), expected, atol=0.02, rtol=0.02)


class TestInABrowser:
    pytestmark = MARKS

    @pytest.fixture(scope="class")
    def opened(self, browser, tmp_path_factory):
        path = tmp_path_factory.mktemp("gallery") / "index.html"
        path.write_text(page.render(Ledger(), path.parent), encoding="utf-8")
        browser.set_window_size(1280, 900)
        browser.get(path.as_uri())
        return browser

    def test_every_part_is_drawn_without_complaint(self, opened):
        open_details(opened)
        assert complaints(opened) == []
        for name in KEPT:
            saved = "return document.querySelectorAll(`#play-${arguments[0]} .save button`).length"
            assert script(opened, saved, name) == 2, name  # SVG and PNG
        assert serious_problems(opened, "light") == []

    def test_layer_head_and_token_show_prior_times_likelihood(self, opened):
        """As Python multiplies them, for any choice."""
        for name, layer, head, token in (("passkey", 0, 1, 9), ("smollm", 2, 4, 12)):
            data = KEPT[name]["data"]
            set_to = "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
            set_to += "s.dispatchEvent(new Event('change'))"
            script(opened, set_to, f"play-{name}-layer", layer)
            script(opened, set_to, f"play-{name}-head", head)
            focus = (
                "document.querySelectorAll(`#play-${arguments[0]} .tokens button`)[arguments[1]]"
            )
            script(opened, f"{focus}.focus()", name, token)
            found = script(
                opened, "return document.getElementById(arguments[0]).found", f"play-{name}"
            )
            assert (found["layer"], found["head"], found["query"]) == (layer, head, token)
            own = data["layers"][layer]
            each = len(data["tokens"]) * (len(data["tokens"]) + 1) // 2
            heads = len(base64.b64decode(own["likelihood"])) // 2 // each
            likelihood = row(own["likelihood"], heads, head, token)
            uniform = torch.full((token + 1,), 1 / (token + 1), dtype=torch.float64)
            prior = row(own["prior"], heads, head, token) if own["prior"] else uniform
            posterior = likelihood * prior / (likelihood * prior).sum()
            for kind, expected in (
                ("likelihood", likelihood),
                ("prior", prior),
                ("posterior", posterior),
            ):
                shown = torch.tensor(found[kind]).double()
                torch.testing.assert_close(shown, expected, atol=1e-9, rtol=1e-6)

    @pytest.mark.parametrize("width", [360, 1280])
    def test_it_fits_phones_and_desks(self, opened, width):
        opened.set_window_size(width, 800)
        inner, content = script(opened, "return [innerWidth, document.documentElement.scrollWidth]")
        assert content <= inner + 1


def test_a_part_that_is_missing_leaves_a_page(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "GALLERY", tmp_path / "nothing.json")
    text = page.render(Ledger(), tmp_path)
    assert "play-" not in text and 'data-part="prior"' in text


def test_names_are_kept_out_of_the_script():
    own = Exhibit(kind="attention", title="t", caption="c", data={"tokens": ["</script>"]})
    assert "</script>" not in embedded("x", own, own.data)["data"]
