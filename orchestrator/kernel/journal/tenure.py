"""The right of one process to write a journal, until another takes the journal over."""

import msgspec


class Tenure(msgspec.Struct, frozen=True, gc=False):
    """The right of one process to write a journal, until another takes the journal over.

    Whatever a writer does beside the journal is conditional on it in the same statement.
    """

    journal: str
    epoch: int
