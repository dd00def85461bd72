"""Mistakes of the person at the keyboard."""


class UserError(ValueError):
    """One sentence that says what to change; the command line prints it without a traceback."""


class WriteError(UserError):
    """A file could not be written."""


EXTRAS = {
    **dict.fromkeys(
        ("accelerate", "filelock", "jinja2", "matplotlib", "psutil", "rich", "scipy", "tyro"),
        "lab",
    ),
    "datasets": "data",
    "gguf": "gguf",
    "lm_eval": "eval",
    "ray": "cluster",
    "tensorboard": "track",
    "trackio": "track",
}
"""Packages that come with an extra only, and with which one."""


class MissingExtraError(UserError, ImportError):
    """A package is not installed that an extra of ours brings along."""


def missing_extra(error: ImportError) -> MissingExtraError | None:
    """A sentence with the command that installs what could not be imported; None if not ours."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return MissingExtraError(
        f"This needs {package}, which is not installed: pip install 'bayesattn[{EXTRAS[package]}]'"
    )
