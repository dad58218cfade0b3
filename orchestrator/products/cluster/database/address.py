"""The address of journals in a database: an URL of Postgres, with parameters of our own.

It is a secret: what shows it to people shows `shown_address` instead.
"""

import math
import platform
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

import attrs

from orchestrator.ports.errors import JournalError

OWN_PARAMETERS: Final = ("journal", "lease", "cluster")
LEASE_SECONDS: Final = 15.0
SHORTEST_LEASE: Final = 0.2
LONGEST_NAME: Final = 100


def _clock() -> float:
    """Return a time that goes on while the machine sleeps, where the system has one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@attrs.frozen(kw_only=True)
class DatabaseAddress:
    """Where journals are, and which of them is meant. `parse_address` reads one."""

    url: str = attrs.field(repr=False)
    """The address as Postgres understands it, with its password."""
    journal: str = ""
    """The name of one journal; empty if all are meant."""
    lease: float = LEASE_SECONDS
    """How long a writer that is silent keeps its journal, in seconds."""
    cluster: str = ""
    """The name of the cluster that the database must belong to; empty if any will do."""
    host: str = attrs.field(factory=platform.node)
    """The name of this machine in the records of writers, which other machines read."""
    clock: Callable[[], float] = attrs.field(default=_clock, eq=False, repr=False)
    """Measures leases here: monotonic, and readable in any thread."""


def parse_address(address: str, *, host: str = "") -> DatabaseAddress:
    """Return the parts of an address.

    Args:
        address: the URL.
        host: the name of this machine; empty is its network name.

    Raises:
        JournalError: a parameter of ours is none.
    """
    start = _end_of_userinfo(address)
    head, mark, query = address[start:].partition("?")
    own: dict[str, str] = {}
    others: list[str] = []
    for pair in query.split("&") if mark else ():
        name, _, value = pair.partition("=")
        if name in OWN_PARAMETERS:
            own[name] = unquote(value)
        else:
            others.append(pair)
    url = address[:start] + head + (f"?{'&'.join(others)}" if others else "")
    for name in ("journal", "cluster"):
        if name in own:
            _require_name(name, own[name])
    return DatabaseAddress(
        url=url,
        journal=own.get("journal", ""),
        lease=_seconds(own["lease"]) if "lease" in own else LEASE_SECONDS,
        cluster=own.get("cluster", ""),
        host=host or platform.node(),
    )


def _end_of_userinfo(address: str) -> int:
    """Return where the host begins: a password may contain a question mark."""
    start = address.find("://") + 3
    slash, at = address.find("/", start), address.find("@", start)
    return start if at == -1 or -1 < slash < at else at + 1


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not SHORTEST_LEASE <= seconds <= 24 * 3600:
        raise JournalError(
            "in Postgres",
            f"the lease in its address is {text!r}; it is a number of seconds, such as 15",
        )
    return seconds


def _require_name(what: str, name: str) -> None:
    # The names of executions begin with that of their journal and a slash.
    if not (name and name.isprintable()) or len(name) > LONGEST_NAME or "/" in name:
        raise JournalError(
            "in Postgres", f"the {what} in its address is {name[:LONGEST_NAME]!r}, which is no name"
        )
