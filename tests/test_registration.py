"""`import bayesattn` registers the models with transformers, in either order, and stays light."""

import subprocess
import sys

import pytest

FIND = (
    "from transformers import AutoConfig; print(type(AutoConfig.for_model('bayesattn')).__name__)"
)


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


@pytest.mark.parametrize("order", ["import bayesattn", "import transformers, bayesattn"])
def test_registered_in_either_order(order):
    assert run(f"{order}; {FIND}") == "BayesConfig"


def test_transformers_keeps_its_own_loader():
    code = "import bayesattn, transformers; print(type(transformers.__spec__.loader).__name__)"
    assert run(code) == "SourceFileLoader"


def test_not_registered_without_us():
    code = "from transformers import CONFIG_MAPPING; print('bayesattn' in CONFIG_MAPPING)"
    assert run(code) == "False"


def test_importing_loads_neither_torch_nor_transformers():
    code = "import bayesattn, sys; print('torch' in sys.modules, 'transformers' in sys.modules)"
    assert run(code) == "False False"


def test_reload_does_not_pile_up_watchers():
    code = (
        "import bayesattn, importlib, sys; importlib.reload(bayesattn); "
        "print(sum(type(f).__name__ == '_Watcher' for f in sys.meta_path))"
    )
    assert run(code) == "1"
