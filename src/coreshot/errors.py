"""The one error a user's mistake raises: found, where, what to do, in one sentence."""


class CoreshotError(ValueError):
    """A mistake in what came from outside (data, config, message, directory); the command line exits with 2."""
