"""Figures of retrieval and of perplexity show their numbers."""

import numpy as np
import pytest
import torch

from bayesattn.evals.passkey import Cell, Passkey
from bayesattn.evals.perplexity import Perplexity
from bayesattn.figures.language import draw_passkey, draw_perplexity

CELLS = [
    Cell(name, length, depth, correct, 4)
    for name, length, hits in (("1x", 112, (4, 4)), ("4x", 500, (3, 4)), ("8x", 1000, (0, 1)))
    for depth, correct in zip((0.0, 1.0), hits, strict=True)
]
FOUND = Passkey("a model", 128, "passkey", "teacher", 0, None, CELLS)


def test_retrieval_by_length_and_depth():
    picture = draw_passkey(FOUND)
    above, below, *_ = picture.figure.axes
    np.testing.assert_allclose(above.lines[0].get_ydata(orig=False), [1, 7 / 8, 1 / 8])
    np.testing.assert_allclose(below.images[0].get_array(), [[1, 0.75, 0], [1, 1, 0.25]])
    assert [label.get_text() for label in below.get_xticklabels()] == [
        "1x\n112",
        "4x\n500",
        "8x\n1,000",
    ]
    for ax in (above, below):  # between the first length and the second
        marks = [line for line in ax.lines if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in marks] == [0.5]
    assert "0.12 at 1,000 tokens" in picture.alt and "128 tokens" in picture.caption


def test_one_length_has_no_border():
    picture = draw_passkey(Passkey("a", 128, "passkey", "teacher", 0, None, CELLS[:2]))
    assert all(line.get_linestyle() != "--" for ax in picture.figure.axes for line in ax.lines)


@pytest.mark.parametrize("sequences", [1, 3])
def test_perplexity_by_position(sequences):
    torch.manual_seed(0)
    losses, short = torch.rand(2, sequences, 40)
    found = Perplexity("a model", 8, 10, None, losses, short)
    (ax,) = draw_perplexity(found).figure.axes
    lines = {line.get_label(): line for line in ax.lines}
    rows = found.by_window()
    np.testing.assert_allclose(
        lines["all tokens before"].get_ydata(), [row["perplexity"] for row in rows]
    )
    np.testing.assert_allclose(
        lines["at most 8 tokens of context"].get_ydata(), [row["perplexity_short"] for row in rows]
    )
    assert lines["all tokens before"].get_xdata()[0] == 5.5
    assert len(ax.collections) == (0 if sequences == 1 else 1)
    assert ax.get_xscale() == "log"
