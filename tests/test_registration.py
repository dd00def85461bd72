"""`import bayesattn` registers the models with transformers, in either order, and stays light."""

import subprocess
import sys

FIND = (
    "from transformers import AutoConfig; print(type(AutoConfig.for_model('bayesattn')).__name__)"
)


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_after_transformers_and_not_without_us():
    code = "from transformers import CONFIG_MAPPING; print('bayesattn' in CONFIG_MAPPING)"
    assert run(f"{code}; import bayesattn; {FIND}").split() == ["False", "BayesConfig"]


def test_before_transformers_which_keeps_its_own_loader():
    code = "import transformers; print(type(transformers.__spec__.loader).__name__)"
    assert run(f"import bayesattn; {FIND}; {code}").split() == ["BayesConfig", "SourceFileLoader"]


def test_importing_is_light_and_a_reload_does_not_pile_up_watchers():
    code = (
        "import bayesattn, importlib, sys; importlib.reload(bayesattn); "
        "print('torch' in sys.modules, 'transformers' in sys.modules); "
        "print(sum(type(f).__name__ == '_Watcher' for f in sys.meta_path))"
    )
    assert run(code).split() == ["False", "False", "1"]
