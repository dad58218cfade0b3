"""The facts of a run as they become safe, for any number of readers.

What has happened is read from the journal once for all who read at the same time; what happens is
handed on when no crash can take it back. A reader has a place of its own: nobody waits for it.
"""

from orchestrator.runtime import Orchestrator


class Feeds:
    """Who reads which run now."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
