"""--import: what a file of someone else adds, what is saved of that, and how it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bayesattn import plugins
from bayesattn.commands.main import main
from bayesattn.errors import UserError
from bayesattn.priors import PRIORS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "howto" / "own.md").read_text(encoding="utf-8")
MINE = PAGE.partition("MINE = '''")[2].partition("'''")[0]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(plugins.VARIABLE, raising=False)
    before, modules = dict(PRIORS), set(sys.modules)
    yield tmp_path
    for name in set(PRIORS) - set(before):
        del PRIORS[name]
    for name in set(sys.modules) - modules:
        if not name.startswith(("bayesattn", "torch", "transformers")):
            sys.modules.pop(name)
    os.environ.pop(plugins.VARIABLE, None)
    plugins.import_file.cache_clear()


def write(name, text):
    Path(name).write_text(text)
    return name


def test_the_words_are_taken_from_anywhere():
    write("a.py", "")
    rest, files = plugins.taken(["x", "--import", "a.py", "--lr", "1", "--import=a.py"])
    assert rest == ["x", "--lr", "1"] and files == [str(Path("a.py").resolve())] * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "x = 1\nraise ValueError('odd\\nthing')\n",
            "mine.py fails in line 2: ValueError: odd thing",
        ),
        ("x = (\n", "mine.py fails in line 1: SyntaxError"),
        ("import nothing_of_that_name\n", "in line 1: ModuleNotFoundError"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "in line 2: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_fails_is_told_with_its_line(capsys, text, sentence):
    write("mine.py", text)
    assert main(["prior", "draw", "ggd", "--import", "mine.py"]) == 2
    err = capsys.readouterr().err
    assert sentence in err and err.count("\n") == 1


def test_a_file_called_as_a_module_is_refused():
    write("json.py", "")
    with pytest.raises(UserError, match="'json' already; rename"):
        plugins.import_file(str(Path("json.py").resolve()))


def test_a_prior_of_a_file_can_be_named_and_its_model_says_where_it_is_from(capsys):
    write("mine.py", MINE)
    assert (
        main(["prior", "draw", "triangle", "--heads", "2", "--import", "mine.py", "-o", "a.svg"])
        == 0
    )
    from bayesattn.models import SIZES, BayesConfig, BayesForCausalLM

    config = SIZES["nano"](prior="triangle")
    BayesForCausalLM(config).save_pretrained("saved")
    assert json.loads(Path("saved/config.json").read_text())["bayesattn_import"] == "mine"
    assert BayesConfig.from_pretrained("saved").prior == "triangle"
    del PRIORS["triangle"]
    os.environ.pop(plugins.VARIABLE)
    with pytest.raises(UserError, match=r"'triangle' is defined in mine: .* --import mine.py"):
        BayesConfig.from_pretrained("saved")


def test_other_processes_import_it_too():
    write("mine.py", MINE)
    script = "from bayesattn.priors import make_prior; print(make_prior('triangle', 2))"
    run = {
        "capture_output": True,
        "text": True,
        "env": os.environ | {plugins.VARIABLE: str(Path("mine.py").resolve())},
    }
    done = subprocess.run([sys.executable, "-c", script], **run)
    assert done.stdout == "Triangle(num_heads=2)\n", done.stderr


def test_priors_of_a_file_are_checked(capsys):
    write("mine.py", MINE)
    assert main(["check-prior", "mine.py"]) == 0
    assert "✗" not in capsys.readouterr().out
    write("worse.py", MINE.replace(".floor()", ".ceil() + 1").replace('"triangle"', '"worse"'))
    assert main(["check-prior", "worse.py"]) == 1
    out = capsys.readouterr().out
    assert out.count("✗ fails") == 1 and "a scan says" in out
    write("empty.py", "x = 1\n")
    assert main(["check-prior", "empty.py"]) == 2
    assert "registers no prior" in capsys.readouterr().err


CLAIM = """
from pathlib import Path
from bayesattn.claims import Count, Recipe, Study, register
from bayesattn.ledger.typed import Stored

class Found(Stored):
    value: float

@register("mine-claim", folder=Path(__file__).parent)
class Mine(Study[Recipe, Found]):
    def measure(self, tier, seed):
        return Found(value=1.0)
"""


def test_a_claim_of_a_file_is_listed(capsys):
    own = ROOT / "src" / "bayesattn" / "claims" / "registered" / "bam-size.toml"
    write("mine-claim.toml", own.read_text(encoding="utf-8").partition("[quick]")[0])
    write("mine.py", CLAIM)
    from bayesattn.claims import registry

    try:
        assert main(["claims", "list", "--import", "mine.py"]) == 0
        assert "mine-claim" in capsys.readouterr().out
    finally:
        registry._studies.pop("mine-claim", None)
