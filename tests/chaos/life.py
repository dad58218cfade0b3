"""The value `Life`: what one process works on, and how it dies."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from tests.chaos.logs import AppendLog

MICRO_DOLLARS: Final = 2
"""The price of one token."""


@attrs.frozen(kw_only=True)
class Life:
    """One process: what it works on, and how it dies."""

    home: str
    """The folder of the round."""
    plan: int
    """The seed of the plan."""
    label: str
    """The name of the round at the provider."""
    provider: str
    """The URL of the provider."""
    seed: int = 0
    """Of the pauses of this process."""
    point: str = ""
    """Where it kills itself; empty: nowhere."""
    count: int = 0
    """At which time it reaches that point."""

    @property
    def folder(self) -> Path:
        return Path(self.home)

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    @property
    def effects(self) -> AppendLog:
        return AppendLog(self.folder / "effects.log")

    @property
    def receipts(self) -> AppendLog:
        return AppendLog(self.folder / "receipts.log")

    @property
    def arrivals(self) -> AppendLog:
        """The answers that have arrived. A sync would give them time to become durable."""
        return AppendLog(self.folder / "arrivals.log", synced=False)

    @property
    def kills(self) -> AppendLog:
        """When processes have killed themselves."""
        return AppendLog(self.folder / "kills.log", synced=False)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of commands: their processes can be found by it."""
        return {"PATH": os.environ["PATH"], "CHAOS_ROUND": self.home}
