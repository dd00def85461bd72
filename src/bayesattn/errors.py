"""Errors that the user can correct, each with one sentence."""


class UserError(ValueError):
    """One sentence that says what to change; the command line prints it without a traceback."""


class WriteError(UserError):
    """A file could not be written."""


class TrainingError(UserError):
    """Something is wrong with a run or its surroundings."""


class RunError(TrainingError):
    """The folder has no such run, or the run is locked."""


class MissingModelError(UserError):
    """A model of the bank is not trained here."""


class BusyRunError(RunError):
    """Another process is training the run."""


class DamagedRunError(RunError):
    """A run is damaged."""


class DamagedCheckpointError(TrainingError):
    """A checkpoint on disk is damaged."""


class DivergedError(TrainingError):
    """The loss, the gradient or the weights became NaN or infinite."""


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
"""The extra that installs each optional package."""


class MissingExtraError(UserError, ImportError):
    """A package of one of our extras is not installed."""


def missing_extra(error: ImportError) -> MissingExtraError | None:
    """An error with the command that installs the missing package; None if no extra has it."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return MissingExtraError(
        f"This needs {package}, which is not installed: pip install 'bayesattn[{EXTRAS[package]}]'"
    )
