"""Mistakes of the person at the keyboard."""


class UserError(ValueError):
    """One sentence that says what to change; the command line prints it without a traceback."""
