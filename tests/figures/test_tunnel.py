"""The figure: what is in it, and in which files."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from bayesattn.drawing import save_picture
from bayesattn.evals.fidelity import measure_stretched
from bayesattn.figures.tunnel import MOST_OUTCOMES, beliefs, draw
from bayesattn.tunnels import HMM, Bijection, Recall
from tests.evals.toys import Bayes, uniform

TRAINED = HMM(3, 3, 4)
LONGER = TRAINED.stretched(2)


def picture(model, trained=TRAINED, longer=LONGER, examples=2):
    fidelity = measure_stretched(model, trained, longer, sequences=50)
    return draw(fidelity, beliefs(model, longer, examples, seed=1), trained.horizon, "a title")


@pytest.fixture(scope="module")
def made():
    """The figure of a uniform predictor at twice its horizon."""
    return picture(uniform(LONGER))


def panel(picture, title):
    (ax,) = [ax for ax in picture.figure.axes if ax.get_title() == title]
    return ax


def lines(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines}


def test_beliefs_of_model_and_bayes_on_the_same_sequences():
    shown = beliefs(uniform(TRAINED), TRAINED, 3, seed=5)
    batch = TRAINED.sample(3, torch.Generator().manual_seed(5))
    assert torch.equal(shown.posterior, batch.posterior)
    assert torch.equal(shown.labels, batch.labels)
    assert torch.allclose(shown.model, torch.full_like(shown.posterior, 1 / 3))


def test_every_panel_shows_its_numbers(made):
    images = [ax.images[0].get_array() for ax in made.figure.axes if ax.images]
    shown = beliefs(uniform(LONGER), LONGER, 2, seed=1)
    assert len(images) == 4
    for column in range(2):
        exact, model = images[column], images[2 + column]
        np.testing.assert_allclose(exact, shown.posterior[column].T, rtol=1e-12)
        np.testing.assert_allclose(model, shown.model[column].T, rtol=1e-12)
    curves = measure_stretched(uniform(LONGER), TRAINED, LONGER, sequences=50).parts
    entropy = lines(panel(made, "mean predictive entropy (bits)"))
    expected = [c for part in curves.values() for c in part.curves()["entropy_bayes"]]
    assert entropy["Bayes"] == pytest.approx(expected)
    errors = lines(panel(made, "mean error per token (bits)"))
    assert errors["model |ΔH|"] == pytest.approx(errors["uniform: |ΔH| = KL"])
    assert errors["model KL"] == pytest.approx(errors["uniform: |ΔH| = KL"])
    assert "KL is" in made.alt


def horizons(made):
    """Where dashed vertical lines stand, panel by panel."""
    for ax in made.figure.axes:
        upright = [line for line in ax.lines if len(set(line.get_xdata())) == 1]
        yield [line.get_xdata()[0] for line in upright if line.get_linestyle() == "--"]


def test_the_horizon_is_marked_where_there_is_something_beyond(made):
    assert [at for at in horizons(made) if at] == [[4.5]] * 6
    assert not any(horizons(picture(uniform(TRAINED), longer=TRAINED)))


@pytest.mark.parametrize(
    "trained, factor",
    [
        (TRAINED, 2),
        (Bijection(30, 29), 1),
        (Recall(pairs=4, queries=2, filler=4, keys=40, values=40), 3),
    ],
    ids=["hmm", "bijection", "recall"],
)
def test_exact_models_of_all_kinds_can_be_drawn(trained, factor, tmp_path):
    """No error, so nothing to put on a logarithmic axis, and alphabets of any size."""
    longer = trained.stretched(factor)

    def exact(inputs, scored):
        short = inputs.shape[1] == trained.positions
        return Bayes(trained if short else longer)(inputs)

    made = picture(exact, trained, longer)
    save_picture(made, tmp_path / "figure.png")
    rows = [len(ax.images[0].get_array()) for ax in made.figure.axes if ax.images]
    assert max(rows) == min(MOST_OUTCOMES, trained.outcomes)


@pytest.mark.parametrize("ending", ["svg", "PNG", "pdf"])
def test_files_are_what_their_ending_says(made, tmp_path, ending):
    path = tmp_path / "new" / f"figure.{ending}"
    save_picture(made, path)
    starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert path.read_bytes().startswith(starts[ending.lower()])
    if ending == "svg":
        assert b"currentColor" in path.read_bytes()
        ElementTree.fromstring(path.read_bytes())


def test_other_endings_are_refused(made, tmp_path):
    with pytest.raises(ValueError, match="figure.jpg must end in one of .svg, .png, .pdf"):
        save_picture(made, tmp_path / "figure.jpg")
    assert list(tmp_path.iterdir()) == []
