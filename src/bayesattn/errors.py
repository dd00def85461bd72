"""What goes wrong through no mistake of the program, each in one sentence to act on."""


class UserError(ValueError):
    """One sentence that says what to change; the command line prints it without a traceback."""


class WriteError(UserError):
    """A file could not be written."""


class TrainingError(UserError):
    """Something is wrong with a run or its surroundings."""


class RunError(TrainingError):
    """The folder holds no such run, or one that may not be written now."""


class BusyRunError(RunError):
    """Another process is training the run."""


class DamagedRunError(RunError):
    """A run is not what was written."""


class DamagedCheckpointError(TrainingError):
    """A checkpoint on disk is not what was written."""


class DivergedError(TrainingError):
    """The loss, the gradient or the weights are no finite numbers any more."""


class Interrupted(KeyboardInterrupt):
    """A training was stopped by Ctrl-C after saving; the message says how to go on."""


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
