"""The core needs numpy, safetensors, torch and transformers only: tried in a venv of its own."""

import math
import re
import subprocess
import sys
import time
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bayesattn
from bayesattn.errors import EXTRAS, missing_extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()

ABSENT = """
import sys
from importlib.util import find_spec
assert not any(map(find_spec, ("accelerate", "matplotlib", "psutil", "scipy", "tyro")))
"""
MODEL = """
import bayesattn, torch
from bayesattn import BayesConfig, BayesForCausalLM
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

size = dict(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4)
model = BayesForCausalLM(BayesConfig(**size)).eval()
ids = torch.tensor([[1, 2, 3, 4]])
model.save_pretrained(sys.argv[1])
loaded = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert torch.equal(loaded(ids).logits, model(ids).logits)
assert loaded.generate(ids, min_new_tokens=3, max_new_tokens=3, do_sample=False).shape[1] == 7

llama = LlamaForCausalLM(LlamaConfig(**size, intermediate_size=32)).eval()
before = llama(ids).logits
bayesattn.retrofit(llama, prior="ggd")
torch.testing.assert_close(llama(ids).logits, before)
assert llama.generate(ids, min_new_tokens=3, max_new_tokens=3, do_sample=False).shape[1] == 7
"""


def closure(names):
    """Distributions called `names` and all that they require, by name."""
    found, wanted = {}, list(names)
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in found:
            continue
        found[name] = distribution(name)
        needed = map(Requirement, found[name].requires or [])
        wanted += [r.name for r in needed if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def core_python(tmp_path_factory):
    """The Python of a venv that holds bayesattn and the closure of its dependencies."""
    folder = tmp_path_factory.mktemp("core") / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "bayesattn").symlink_to(ROOT / "src" / "bayesattn")
    for found in closure(Requirement(line).name for line in PROJECT["dependencies"]).values():
        for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(found.locate_file(top)).resolve())
    return folder / "bin" / "python"


def run(python, *arguments, cwd):
    command = [str(python), "-I", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_readme_model_and_retrofit_work_with_the_core_only(core_python, tmp_path):
    # rich and jinja2 come along with transformers and torch
    ten_lines = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    code = f"{ABSENT}\n{ten_lines}\n{MODEL}"
    done = run(core_python, "-c", code, tmp_path / "saved", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tensor" in done.stdout


@pytest.mark.slow
def test_the_laboratory_names_its_extra(core_python, tmp_path):
    for command in (["tunnel", "train", "hmm", "--out", "RUN"], ["lm", "zoo"], ["claims", "list"]):
        done = run(core_python, "-m", "bayesattn", *command, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.strip().endswith("pip install 'bayesattn[lab]'")
        assert len(done.stderr.splitlines()) == 1
    done = run(core_python, "-m", "bayesattn", "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(core_python, "-c", "from bayesattn import train_tunnel", cwd=tmp_path)
    assert done.stderr.strip().endswith("pip install 'bayesattn[lab]'")


def test_every_package_of_an_extra_names_it():
    modules = {"lm-eval": "lm_eval"}
    for extra in ("lab", "cluster", "data", "eval", "gguf", "track"):
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            if requirement.name not in ("bayesattn", "transformers"):
                assert EXTRAS[modules.get(requirement.name, requirement.name)] == extra
    assert "bayesattn[lab]" in str(missing_extra(ImportError(name="scipy.stats")))
    assert missing_extra(ImportError(name="json")) is None


def test_public_names_resolve_and_are_documented():
    assert sorted(bayesattn.HOMES) == sorted(bayesattn.__all__)
    documented = [word for page in ROOT.glob("docs/api/*.md") for word in page.read_text().split()]
    for name, home in bayesattn.HOMES.items():
        assert name in dir(bayesattn)
        assert getattr(bayesattn, name) is not None
        if name != "tunnels":  # a room; its tunnels are listed
            assert home in documented, f"docs/api lacks ::: {home}"
    with pytest.raises(AttributeError, match="no attribute 'attned'"):
        _ = bayesattn.attned


def test_importing_is_quick():
    """By the best of two to five rounds, since other work may slow any of them."""
    best = dict.fromkeys(("bayesattn", "torch"), math.inf)
    for attempt in range(5):
        for module in best:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
            best[module] = min(best[module], time.perf_counter() - start)
        if attempt and best["bayesattn"] < 0.3 * best["torch"]:
            return
    pytest.fail(f"importing takes {best}")
