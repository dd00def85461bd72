import dataclasses
import json
from xml.etree import ElementTree

import pytest
import torch

from bayesattn.commands.lm import parse_head, run_of
from bayesattn.commands.main import main
from bayesattn.drawing import house_style, save_picture
from bayesattn.evals.priors import Movement, factors_on_passkey, measure_priors
from bayesattn.figures.priors import (
    CLASS_COLOURS,
    draw_curves,
    draw_factors,
    draw_movement,
    draw_shapes,
)
from tests.evals.test_priors import ALPHAS, BETAS, LENGTH, TOKENIZER, made, run

__all__ = ["run"]

STEPS = [0, 10, 100]


@pytest.fixture(scope="module")
def priors():
    found = measure_priors(made())
    paths = [torch.linspace(0, 1, 3)[:, None, None] * torch.tensor(end) for end in (ALPHAS, BETAS)]
    return dataclasses.replace(found, movement=Movement(STEPS, *paths))


def saved(picture, folder):
    path = folder / f"{picture.name}.svg"
    with house_style():
        save_picture(picture, path)
    ElementTree.fromstring(path.read_bytes())
    assert picture.caption in picture.alt
    return path


def test_a_curve_per_head_in_the_colour_of_its_class(priors, tmp_path):
    picture = draw_curves(priors)
    saved(picture, tmp_path)
    panels = picture.figure.axes
    assert [panel.get_title() for panel in panels] == ["layer 0", "layer 1", "layer 2"]
    drawn = [line for panel in panels for line in panel.lines]
    colours = [CLASS_COLOURS[head.looks] for head in priors.heads]
    assert [line.get_color() for line in drawn] == colours
    for line, density in zip(drawn, priors.density.flatten(0, 1), strict=True):
        assert line.get_xdata().tolist() == list(range(1, LENGTH + 1))
        large = density > 1e-6
        assert line.get_ydata()[large].tolist() == density[large].tolist()
    told = ", ".join(f"{count} {looks}" for looks, count in priors.counts().items())
    assert f"6 heads: {told}" in picture.alt


def test_curves_are_dotted_as_they_began(priors, tmp_path):
    began = priors.density.roll(1, 1)
    picture = draw_curves(dataclasses.replace(priors, initial=began))
    saved(picture, tmp_path)
    dotted = [
        line for ax in picture.figure.axes for line in ax.lines if line.get_linestyle() == ":"
    ]
    for line, density in zip(dotted, began.flatten(0, 1), strict=True):
        large = density > 1e-6
        assert line.get_ydata()[large].tolist() == density[large].tolist()


@pytest.mark.parametrize("layers", [1, 5])
def test_any_number_of_layers_has_its_panels(layers, tmp_path):
    picture = draw_curves(measure_priors(made(num_hidden_layers=layers, prior="student")))
    saved(picture, tmp_path)
    assert len(picture.figure.axes) == layers


def test_shapes_have_a_dot_per_head_and_a_trail(priors, tmp_path):
    picture = draw_shapes(priors)
    saved(picture, tmp_path)
    (ax,) = picture.figure.axes
    dots = [tuple(dot) for group in ax.collections for dot in group.get_offsets().tolist()]
    expected = [(head.theta_beta, head.theta_alpha) for head in priors.heads]
    assert dots == expected
    trails = [line for line in ax.lines if len(line.get_xdata()) == len(STEPS)]
    ends = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in trails]
    assert ends == [pytest.approx(dot) for dot in expected]
    borders = sorted(line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2)
    assert borders == [-0.6, 0.0]
    assert [text.get_text() for text in ax.texts] == ["aggressive", "retrieval", "local"]
    places = [text.get_position()[0] for text in ax.texts]
    assert 0 < places[0] < places[1] < places[2] < 1


def test_movement_has_a_line_per_head(priors, tmp_path):
    picture = draw_movement(priors)
    saved(picture, tmp_path)
    for ax, paths in zip(
        picture.figure.axes, (priors.movement.theta_beta, priors.movement.theta_alpha), strict=True
    ):
        lines = [line for line in ax.lines if len(line.get_xdata()) == len(STEPS)]
        assert [line.get_ydata().tolist() for line in lines] == paths.flatten(1).T.tolist()


def test_what_cannot_be_drawn(priors):
    with pytest.raises(ValueError, match="no run with a ggd prior"):
        draw_movement(dataclasses.replace(priors, movement=None))
    with pytest.raises(ValueError, match="The laplace prior has no theta_alpha"):
        draw_shapes(measure_priors(made(prior="laplace")))


def test_factors_are_three_matrices_and_the_mass_of_all_heads(tmp_path):
    factors = factors_on_passkey(made())
    picture = draw_factors(factors, (1, 0), "toy")
    saved(picture, tmp_path)
    images = [ax.images[0].get_array() for ax in picture.figure.axes[:4]]
    parts = factors.layers[1]
    for image, part in zip(images, (parts.likelihood, parts.prior, parts.posterior), strict=False):
        large = part[0, 0] > 1e-4
        assert torch.equal(torch.tensor(image.data)[large], part[0, 0][large])
    assert torch.equal(torch.tensor(images[3].data), factors.mass())
    assert "head 0 of layer 1" in picture.figure.get_suptitle()
    (frame,) = picture.figure.axes[3].patches
    assert frame.get_xy() == (-0.5, 0.5)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESATTN_DEBUG", raising=False)
    return tmp_path


def test_the_command_on_a_run(run, here, capsys):
    words = ("--json", "p.json", "--figures", "figures")
    assert main(["lm", "priors", str(run.folder), *words]) == 0
    out = capsys.readouterr().out
    found = json.loads((here / "p.json").read_text())
    assert found["classes"] == {"local": 4} or sum(found["classes"].values()) == 4
    for head in found["heads"]:
        line = f"{head['layer']} {head['head']} {head['looks']} {head['half']}"
        assert line in [" ".join(text.split()[:4]) for text in out.splitlines()]
    names = ["prior-curves", "prior-factors", "prior-movement", "prior-shapes"]
    assert sorted(path.stem for path in (here / "figures").iterdir()) == names
    assert all(f"figures/{name}.svg" in out for name in names)


def test_the_command_on_a_folder_of_hugging_face(here, capsys):
    made(prior="laplace").model.save_pretrained("model")
    TOKENIZER.save_pretrained("model")
    assert main(["lm", "priors", "model", "--json", "-", "--figures", "f", "--head", "2.1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["prior"], len(found["heads"]), found["movement"]) == ("laplace", 6, None)
    assert sorted(path.stem for path in (here / "f").iterdir()) == ["prior-curves", "prior-factors"]
    assert "head 1 of layer 2" in (here / "f" / "prior-factors.svg").read_text()


def test_mistakes_are_one_sentence(run, here, capsys):
    for words, sentence in (
        (["nowhere/at/all"], "is no file or folder here"),
        ([str(run.folder), "--head", "7.1"], "There is no head '7.1': heads are LAYER.HEAD"),
        ([str(run.folder), "--step", "12345"], "has no step 12345"),
    ):
        assert main(["lm", "priors", *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and sentence in err and err.count("\n") == 1


def test_heads_by_name(priors):
    assert parse_head("2.1", priors) == (2, 1)
    for text in ("2.2", "3.0", "2", "x", "-1.0"):
        with pytest.raises(ValueError, match=r"such as 2\.1, the last one"):
            parse_head(text, priors)


def test_runs_are_told_from_models(run, tmp_path):
    assert run_of(str(run.folder)).folder == run.folder
    made().model.save_pretrained(tmp_path)
    assert run_of(str(tmp_path)) is None
    assert run_of("some/model") is None
