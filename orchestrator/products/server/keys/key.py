"""A key: who makes a request, what it may do, until when, and how much.

A key is a name for one client; its owner is whose sessions it sees. Several keys may have the same
owner.
"""

from enum import StrEnum
from typing import Final

import attrs

DEFAULT: Final = "default"
"""The name of the key that `serve` makes by itself, and its owner. Sessions that were opened before
there were owners, or not over HTTP, are its."""
CONSOLE: Final = "console"
"""The name of the key of a person who has signed in to the console by a one-time link."""


class Scope(StrEnum):
    """What a key may do. Every route needs exactly one, or none at all."""

    RUN = "run"
    """Begin runs and conversations, send messages, take replies."""
    READ = "read"
    """See runs, tasks, events, transcripts, approvals."""
    STEER = "steer"
    """Steer, cancel, close and delete."""
    APPROVE = "approve"
    """Answer approvals. No other scope contains it."""
    ADMIN = "admin"
    """Run, read and steer what any owner has; metrics."""


ORDINARY: Final = frozenset({Scope.RUN, Scope.READ, Scope.STEER})
"""What a key may do unless it is made for something else."""


@attrs.frozen(kw_only=True)
class KeyLimits:
    """How much a key may use; None is without a limit."""

    requests_per_second: float | None = None
    runs_at_once: int | None = None
    tokens_per_day: int | None = None
    dollars_per_day: float | None = None


UNLIMITED: Final = KeyLimits()


@attrs.frozen(kw_only=True)
class Key:
    """One client of the server. It has no secret: see `KeyStore`."""

    name: str
    owner: str
    scopes: frozenset[Scope] = ORDINARY
    created: float = 0
    expires: float | None = None
    """When it ends, in seconds since the epoch; None is never."""
    limits: KeyLimits = UNLIMITED

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def recorded_owner(self) -> str:
        """The owner as facts record it: empty for the default owner."""
        return "" if self.owner == DEFAULT else self.owner

    def may(self, scope: Scope) -> bool:
        """Return whether the key has a scope; an admin has all but that of approvals."""
        return scope in self.scopes or (self.is_admin and scope in ORDINARY)

    def may_see(self, owner: str) -> bool:
        """Return whether the key sees the sessions of an owner; "" is an old one's."""
        return self.is_admin or (owner or DEFAULT) == self.owner
