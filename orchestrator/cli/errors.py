"""What a user of the command line can get wrong."""


class CommandError(Exception):
    """One line that says what is wrong and what to do."""
