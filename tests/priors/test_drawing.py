import runpy
import subprocess
import sys

import pytest
from matplotlib import pyplot

from bayesattn.priors import PRIORS, Laplace

PNG = b"\x89PNG"


@pytest.mark.parametrize("name", PRIORS)
def test_every_prior_is_drawn_by_its_name(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["priors", name])
    runpy.run_module("bayesattn.priors", run_name="__main__")
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    assert capsys.readouterr().out == f"{name}.png\n"


def test_drawing_is_quiet_and_takes_a_path(tmp_path):
    path = tmp_path / "out.png"
    command = [sys.executable, "-m", "bayesattn.priors", "laplace", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert path.read_bytes().startswith(PNG)
    assert (done.stdout, done.stderr) == (f"{path}\n", "")


def test_drawing_without_axes_makes_a_figure():
    before = pyplot.get_fignums()
    ax = Laplace(2).draw()
    assert len(pyplot.get_fignums()) == len(before) + 1
    assert len(ax.get_lines()) == 2
    assert len(ax.get_lines()[0].get_ydata()) == 128
    pyplot.close(ax.figure)
