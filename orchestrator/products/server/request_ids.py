"""The ids of the sessions that a request opens, so that it can be sent again.

The same Idempotency-Key always stands for the same ids. In a database with several journals, the id
also decides which journal has the session.
"""

import hashlib
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request

from orchestrator.delegation import SessionId
from orchestrator.products.server.keys.key import Key
from orchestrator.products.server.operation import Operation
from orchestrator.products.server.transport.errors import HttpError

if TYPE_CHECKING:
    from orchestrator.products.server.cluster.placement import Placement

LONGEST_KEY: Final = 255
LONGEST_SORTED: Final = 1_000_000
"""The most bytes of a body whose names are sorted; longer bodies are compared as sent."""


class RequestIds:
    """The ids of one request. `home` is the name of the journal of its subject."""

    def __init__(
        self, request: Request, raw: bytes, operation: Operation, placement: "Placement | None"
    ) -> None:
        self._request = request
        self._headers: Headers = request.scope["state"]["headers"]
        self._raw = raw
        self._operation = operation
        self._placement = placement
        self._drawn: SessionId | None = None

    @property
    def _key(self) -> Key:
        return cast("Key", self._request.scope["state"]["access"].key)

    @cached_property
    def has_key(self) -> bool:
        """Whether the request has an Idempotency-Key, or its body names its run."""
        return self._given_key is not None

    @cached_property
    def _given_key(self) -> str | None:
        find = self._operation.run_key
        return self._headers.get("idempotency-key") if find is None else find(self._raw)

    def from_key(self, prefix: str) -> str | None:
        """Return the id that the owner's Idempotency-Key stands for; None without a key."""
        return self._from_key(prefix)

    def _from_key(self, prefix: str, number: int = 0, attempt: int = 0) -> str | None:
        key = self._given_key
        if key is None:
            return None
        if not key or len(key) > LONGEST_KEY:
            raise HttpError(
                400,
                f"an Idempotency-Key must have 1 to {LONGEST_KEY} characters",
                code="invalid_idempotency_key",
            )
        scoped = f"{self._operation.path}\n{self._request.url.path}\n{key}"
        if owner := self._key.recorded_owner:
            # No owner begins with a slash, but paths do: so two owners never share an id.
            scoped = f"{owner}\n{scoped}"
        if attempt:
            scoped = f"again {attempt}\n{scoped}"
        if number:
            scoped = f"{number}\n{scoped}"
        return f"{prefix}{hashlib.sha256(scoped.encode()).hexdigest()[:16]}"

    def new_session(self, home: str, attempt: int = 0) -> SessionId | None:
        """Return the id to open; None allows any. `attempt` counts sessions that failed before."""
        if (id_ := self.session_from_key(attempt) or self._drawn) is not None:
            return id_
        return None if self.companion is None else self.further_session(home)

    def session_from_key(self, attempt: int = 0) -> SessionId | None:
        """Return the id of the session that the Idempotency-Key stands for."""
        if not self.has_key:
            return None
        placement = self._placement
        if placement is None:
            return SessionId(self._from_key("r_", attempt=attempt) or "")
        id_ = self.from_key("r_") or ""
        home = placement.home_of_key(self._key)
        if self.companion is not None:
            home = placement.home_of(self.companion)
        if home is not None or attempt:
            # All attempts go to one journal.
            home = home or placement.home_of(id_)
            id_ = placement.fit(lambda it: self._from_key("r_", it, attempt) or "", home)
        return SessionId(id_)

    def session_beside(self, home: str) -> SessionId | None:
        """Return the id of a session in the journal of the request; None allows any id."""
        placement = self._placement
        if placement is None:
            id_ = self.from_key("r_")
            return None if id_ is None else SessionId(id_)
        if not self.has_key:
            return placement.draw(home)
        return SessionId(placement.fit(lambda it: self._from_key("r_", it) or "", home))

    def further_session(self, home: str) -> SessionId | None:
        """Return the id of another session that the request opens; None allows any id."""
        return None if self._placement is None else self._placement.draw(home)

    def draw(self, placement: "Placement", home: str) -> None:
        """Choose an id in this shard for the session that the request opens."""
        self._drawn = placement.draw(home)

    @cached_property
    def companion(self) -> SessionId | None:
        """The session that the body names; the request opens its session in the same journal."""
        find = self._operation.companion
        return None if find is None else find(self._raw)

    @property
    def fingerprint(self) -> str:
        """A digest of the body, the same for any order of names and any white space."""
        raw = self._raw
        if self.has_key and len(raw) <= LONGEST_SORTED:
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raw = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
        return hashlib.sha256(raw).hexdigest()[:32]
