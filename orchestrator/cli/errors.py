"""Usage errors of the command line."""


class CommandError(Exception):
    """A usage error: one line that names the problem and the fix."""
