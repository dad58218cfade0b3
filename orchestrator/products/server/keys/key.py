"""A key: the name of one client, its owner, whose sessions it sees, and its rights and limits."""

from enum import StrEnum
from typing import Final

import attrs

DEFAULT: Final = "default"
"""The key that `serve` makes, which owns all sessions without an owner."""
CONSOLE: Final = "console"
"""The name of the key of a person who signed in to the console with a one-time link."""


class Scope(StrEnum):
    """A right of a key. Every route needs exactly one scope, or none at all."""

    RUN = "run"
    """Begin runs and conversations, send messages, take replies."""
    READ = "read"
    """See runs, tasks, events, transcripts, approvals."""
    STEER = "steer"
    """Steer, cancel, close and delete."""
    APPROVE = "approve"
    """Answer approvals. No other scope contains it."""
    ADMIN = "admin"
    """Run, read and steer the sessions of any owner; read metrics."""


ORDINARY: Final = frozenset({Scope.RUN, Scope.READ, Scope.STEER})
"""The scopes of a key by default."""


@attrs.frozen(kw_only=True)
class KeyLimits:
    """The limits of a key; None means no limit."""

    requests_per_second: float | None = None
    runs_at_once: int | None = None
    tokens_per_day: int | None = None
    dollars_per_day: float | None = None
    share: float | None = None
    """The weight of its model calls that wait for a provider; None is 1."""


UNLIMITED: Final = KeyLimits()


@attrs.frozen(kw_only=True)
class Key:
    """One client of the server. It has no secret: `KeyStore` has the tokens."""

    name: str
    owner: str
    scopes: frozenset[Scope] = ORDINARY
    created: float = 0
    expires: float | None = None
    """The time when it expires, in seconds since the epoch; None is never."""
    limits: KeyLimits = UNLIMITED

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def recorded_owner(self) -> str:
        """The owner in facts: empty for the default owner."""
        return "" if self.owner == DEFAULT else self.owner

    def may(self, scope: Scope) -> bool:
        """Return whether the key has a scope; an admin has all scopes except `approve`."""
        return scope in self.scopes or (self.is_admin and scope in ORDINARY)

    def may_see(self, owner: str) -> bool:
        """Return whether the key sees the sessions of an owner; "" is the default owner."""
        return self.is_admin or (owner or DEFAULT) == self.owner
