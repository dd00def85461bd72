"""What a measurement was made with: versions and machine, nothing that names the person."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bayesattn


def environment() -> dict[str, Any]:
    """Versions, platform and number of CPUs; no host name and no paths."""
    return {
        "bayesattn": bayesattn.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


def commit() -> str | None:
    """Commit of this source tree, with `-dirty` if files were changed since; None if installed."""
    folder = Path(bayesattn.__file__).parent
    # A virtual environment may lie in someone else's repository, whose commit would mislead.
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
