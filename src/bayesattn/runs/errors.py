"""What can go wrong with a run, each in one sentence that a person can act on."""

from bayesattn.errors import UserError


class TrainingError(UserError):
    """Base of the others: not a mistake in the program, but in a run or its surroundings."""


class RunError(TrainingError):
    """The folder holds no such run, or one that may not be written now."""


class DamagedRunError(RunError):
    """A run is not what was written."""


class DamagedCheckpointError(TrainingError):
    """A checkpoint on disk is not what was written."""


class DivergedError(TrainingError):
    """The loss, the gradient or the weights are no finite numbers any more."""


class Interrupted(KeyboardInterrupt):
    """A training was stopped by Ctrl-C after saving; the message says how to go on."""
