"""The error for a user's mistake: one sentence with what was found, where, and what to do."""


class CoreshotError(ValueError):
    """A mistake in something from outside (data, settings, a message, a folder); the command line exits with code 2."""
