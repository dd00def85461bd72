"""What the project says about itself is true: README, docs, examples, pins, start-up time."""

import re
import runpy
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bayesattn
from bayesattn.claims import all_studies

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "bayesattn"
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TUTORIAL = ROOT / "docs" / "tutorial.md"  # tests/test_walkthrough.py runs it, with its commands
PAGES = [ROOT / "README.md", *sorted({*ROOT.glob("docs/**/*.md")} - {TUTORIAL})]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
SHORT = {"train_needle.py": ["3"]}  # training steps


def relative(path):
    return path.relative_to(ROOT).as_posix()


def tree_entries(text):
    """Paths of a tree of names indented by two spaces a level, each followed by a comment."""
    parents = []
    for line in text.splitlines():
        name = line.split()[0]
        del parents[(len(line) - len(line.lstrip())) // 2 :]
        yield "/".join([*parents, name]).replace("//", "/")
        parents.append(name)


def documented_tree():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (tree,) = re.findall(r"```text\n(src/bayesattn/.*?)```", page, re.DOTALL)
    return [entry.rstrip("/") for entry in tree_entries(tree)]


def test_documented_tree_is_the_tree_on_disk():
    entries = set(documented_tree())
    assert [entry for entry in sorted(entries) if not (ROOT / entry).exists()] == []
    folders = {relative(init.parent) for init in PACKAGE.rglob("__init__.py")}
    assert folders - entries == set()


def test_tree_parser_sees_every_level():
    tree = "a/b/   two\n  c.py  file\n  d/    folder\n    e.py  deep\nf/  top\n"
    assert list(tree_entries(tree)) == ["a/b/", "a/b/c.py", "a/b/d/", "a/b/d/e.py", "f/"]


def test_imports_point_down_the_tree():
    rooms = [
        Path(entry).stem
        for entry in documented_tree()
        if Path(entry).parent == Path("src/bayesattn")
    ]
    upwards = []
    for room in rooms:
        above = rooms[: rooms.index(room)]
        for path in [PACKAGE / f"{room}.py", *PACKAGE.glob(f"{room}/**/*.py")]:
            code = path.read_text() if path.exists() else ""
            imported = re.findall(r"^\s*(?:from|import) bayesattn\.(\w+)", code, re.MULTILINE)
            upwards += [(relative(path), name) for name in imported if name in above]
    assert upwards == []


def test_the_package_needs_nothing_that_the_wheel_lacks():
    lacking = re.compile(r"^\s*(?:from|import) (?:benchmarks|tests|examples)\b", re.MULTILINE)
    sources = (ROOT / "src").rglob("*.py")
    assert [path for path in sources if lacking.search(path.read_text(encoding="utf-8"))] == []


def test_every_study_has_a_page():
    for study in all_studies():
        assert (ROOT / "docs" / "claims" / f"{study.claim.id}.md").exists()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_python_in_the_docs_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, relative(page), "exec"), namespace)


@pytest.mark.parametrize("example", EXAMPLES, ids=relative)
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *SHORT.get(example.name, [])])
    runpy.run_path(str(example), run_name="__main__")


def test_constraints_pin_everything_the_project_names():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    named = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    for requirement in map(Requirement, named):
        if requirement.name == PROJECT["name"]:  # one extra includes another
            continue
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_version_is_said_once():
    assert bayesattn.__version__ == PROJECT["version"]


def test_tracked_files_name_no_machine():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    texts = {name: (ROOT / name).read_bytes() for name in files if (ROOT / name).is_file()}
    machine = re.compile(rb"/(?:home|root|work|Users)/\w")
    assert [name for name, text in texts.items() if machine.search(text)] == []


def test_help_is_instant_and_imports_no_torch():
    code = "import sys; sys.argv = ['bayesattn', '--help']; "
    code += "from bayesattn.commands.main import main; main()"
    check = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); {code}"
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
        seconds.append(time.perf_counter() - start)
        assert run.returncode == 0, run.stderr
        assert run.stdout.endswith("False\n")
    assert min(seconds) < 0.5


def test_fresh_memory_is_poisoned():
    like = torch.ones(2)
    assert torch.empty(3, requires_grad=True).isnan().all()
    assert torch.empty_like(like).isnan().all()
    assert like.new_empty(3).isnan().all()
    assert torch.empty(3, dtype=torch.int64).dtype == torch.int64
    with torch.device("meta"):
        assert torch.empty(3).is_meta
        assert torch.nn.Linear(2, 2).weight.is_meta
