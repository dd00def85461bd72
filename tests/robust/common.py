"""What the attacks share: how many there are, and how a program is run."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORTURE = os.environ.get("BAYESATTN_TORTURE") == "1"
"""Set by `make torture`: all attacks, not only a few of each kind."""


def count(quick, all_of_them):
    return all_of_them if TORTURE else quick


def start(*words, **settings):
    """A Python program of this tree, on one thread; `env` is added to the environment."""
    extra = settings.pop("env", {})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **extra}
    environment = {name: value for name, value in environment.items() if value is not None}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        **{"cwd": ROOT, "env": environment, **pipes, **settings},
    )


def run(*words, timeout=240, **settings):
    """Exit code and what was printed, of a program that ends by itself."""
    process = start(*words, **settings)
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err
