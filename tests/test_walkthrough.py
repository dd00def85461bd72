"""What a newcomer types is run, not only parsed: the whole tutorial, and the README's commands.

Settings are smaller here: they follow the command, and the last of two options holds.
"""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from bayesattn.commands.main import COMMANDS, main
from bayesattn.corpora import load_tokenizer
from tests.report.chromium import CHROMIUM, DRIVER

ROOT = Path(__file__).parent.parent
TINY = "--layers 1 --width 16 --heads 2 --steps 4 --batch-size 4 --threads 1"
SMALL = {
    "lm train": f"--size nano {TINY}",
    "lm passkey": "--lengths 1x --depths 2",
    "lm perplexity": "--length 2x",
    "lm ruler": "--lengths 512 --samples 1 --kinds niah_single_1,vt",
    "extend": "--ways yarn --texts 1 --needles 2",
    "probe": "--candidates 25 --each 3 --length 16 --draws 10 --no-control",
    "bayes": "--seeds 4 --sequences 4 --fresh 0 --no-where",
    "tunnel train": TINY,
    "tunnel fidelity": "--sequences 20",
    "tunnel show": "--sequences 20",
}
HOURS = "extend"
"""Of a model of 135M parameters: here a small one takes its place."""


def part_of_the_docs(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOK, PICTURES = part_of_the_docs("notebook"), part_of_the_docs("pictures")
SCREENSHOTS = part_of_the_docs("screenshots")
TUTORIAL = NOTEBOOK.blocks(NOTEBOOK.PAGE.read_text(encoding="utf-8"))


def run(line):
    """A line as it is typed, with small settings; its exit code."""
    words = shlex.split(line.partition(" #")[0])
    assert words.pop(0) == "bayesattn"
    name = " ".join(words[: 1 if words[0] in COMMANDS else 2])
    if name == HOURS:
        words[1] = small_model("small")
    return main([*words, *SMALL.get(name, "").split()])


def small_model(folder):
    """A Hugging Face model of two heads, without training."""
    tokenizer = load_tokenizer("words")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")
    return tmp_path


@pytest.mark.slow
def test_the_tutorial_runs_from_top_to_bottom(place):
    namespace = {}
    for kind, own in TUTORIAL:
        if kind == "python":
            exec(compile(own, "docs/tutorial.md", "exec"), namespace)
        for line in own.splitlines() if kind == "sh" else ():
            assert line.startswith("pip ") or run(line) == 0, line
    names = {path.name for path in place.iterdir()}
    pages = {"probe.html", "beliefs.svg", "passkey.svg", "page.html", "priors"}
    assert names >= {"needles", "tunnel", "exported", *pages}


def test_the_notebook_is_the_tutorial():
    made = NOTEBOOK.NOTEBOOK.read_text(encoding="utf-8")
    assert made == NOTEBOOK.written(), "run `python docs/notebook.py`"
    cells = json.loads(made)["cells"]
    assert len(cells) == len(TUTORIAL) > 15
    assert {cell["cell_type"] for cell in cells} == {"markdown", "code"}


def typed_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^    (bayesattn .*)$", text, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("line", typed_in_the_readme(), ids=lambda line: line.split(" #")[0])
def test_the_commands_of_the_readme_run(line, place, capsys):
    assert run(line) == 0
    assert capsys.readouterr().out


def test_every_picture_of_the_gallery_has_its_command_and_is_there():
    made = [name for _, names in PICTURES.commands() for name in names]
    shown = re.findall(r"\]\(images/(.*?)\)", PICTURES.PAGE.read_text(encoding="utf-8"))
    assert sorted(made) == sorted(shown) and len(shown) >= 6
    assert [name for name in made if not (ROOT / "docs" / "images" / name).exists()] == []


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
def test_screenshots_of_the_recorded_page_are_taken(tmp_path):
    SCREENSHOTS.main(tmp_path)
    sizes = {path.stem: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == SCREENSHOTS.SHOTS.keys()
    assert min(sizes.values()) > 10_000
    kept = {path.stem for path in SCREENSHOTS.IMAGES.glob("page-*.png")}
    assert kept == sizes.keys(), "run `make screenshots`"
