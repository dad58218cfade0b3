"""Usage errors of the command line."""


class CommandError(Exception):
    """A usage error: one line with what is wrong and what to do."""
