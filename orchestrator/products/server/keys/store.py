"""The keys of a running server: found by their tokens, and read again when their file changes.

The server polls nothing: it checks the file before it answers a client (`refresh`). When a key is
revoked, replaced or expired, the work under way for it ends (`Access`).
"""

import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.ports.errors import ServerSetupError
from orchestrator.products.server.keys.file import Signature, StoredKey, read_keys, signature_of
from orchestrator.products.server.keys.key import DEFAULT, ORDINARY, Key, Scope
from orchestrator.products.server.keys.tokens import NO_TOKEN, TokenHash, split_token
from orchestrator.products.server.transport.listed import Listed

FOREVER: Final = float("inf")
LATE_SECONDS: Final = 0.01
"""The seconds from the expiry of a key to the end of its work: two clocks may differ."""


DEFAULT_KEY: Final = Key(name=DEFAULT, owner=DEFAULT, scopes=frozenset({*ORDINARY, Scope.ADMIN}))
"""The key of `api_key` or the environment; it may approve if no agent can read its token."""


class Access:
    """A request with its key, while it is under way."""

    def __init__(
        self, store: "KeyStore", key: Key, token_id: str, latest: Callable[[], float] | None = None
    ) -> None:
        self.key = key
        self.token_id = token_id
        """The id of the key's token in the request; "" for the token of `default`."""
        self._store = store
        self._latest = latest
        self._is_endless = not token_id and latest is None
        """Whether it is of the token of `default`, which no file ends."""
        self._until = self._ends_at()
        self._scopes: list[trio.CancelScope] = []
        """Cancelled when the key ends."""

    def is_valid(self) -> bool:
        """Return whether the key is still valid according to its file."""
        self._store.refresh()
        if self._is_endless:
            return True
        self.note_change()
        return self._store.now() < self._until

    def _ends_at(self) -> float:
        latest = FOREVER if self._latest is None else self._latest()
        return min(latest, self._store.ends_at(self.token_id))

    def cancels(self, scope: trio.CancelScope) -> Listed[trio.CancelScope]:
        """Cancel a scope if the key ends before the block does."""
        if self._until < FOREVER:
            self._limit(scope)
        return Listed(self._scopes, scope)

    def note_change(self) -> None:
        """Update the end of the key: its file may have changed."""
        before, self._until = self._until, self._ends_at()
        if self._until != before:
            for scope in self._scopes:
                self._limit(scope)

    def _limit(self, scope: trio.CancelScope) -> None:
        left = self._until - self._store.now()
        if left > 0:
            scope.deadline = trio.current_time() + left + LATE_SECONDS
        else:
            scope.cancel(reason="the key has expired, or was revoked")


@attrs.frozen
class _Entry:
    key: Key
    token: TokenHash

    @property
    def until(self) -> float:
        ends = (it for it in (self.key.expires, self.token.until) if it is not None)
        return min(ends, default=FOREVER)


class KeyStore:
    """Finds the key of a token."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        token: str | None = None,
        clock: Callable[[], float] = time.time,
        report: Callable[[str], None] = lambda _: None,
        note_change: Callable[[str, str], None] = lambda _action, _name: None,
    ) -> None:
        """Read the keys; `report` gets a later problem, and `note_change` each change."""
        self._file = file
        self._clock = clock
        self._report = report
        self._note_change = note_change
        # Digests are compared, so that the time does not tell the length of the token.
        self._default_digest = None if token is None else sha256(token.encode()).digest()
        self._entries: dict[str, _Entry] = {}
        self._signature: Signature | None = None
        self._under_way: dict[Access, None] = {}
        self.problem = ""
        """The reason why the file cannot be read; until then no key in it is valid."""
        if file is not None:
            self._signature = signature_of(file)
            self._entries = _entries_of(read_keys(file))

    def find(self, token: str) -> tuple[Key, str] | None:
        """Return the key of a token, and the token's id; None if no valid key has it."""
        self.refresh()
        is_default = self._default_digest is not None and hmac.compare_digest(
            self._default_digest, sha256(token.encode(errors="replace")).digest()
        )
        parts = split_token(token)
        id_, secret = parts or ("", "")
        entry = self._entries.get(id_)
        # An unknown id is compared, too: the time must not tell which ids exist.
        is_right = (NO_TOKEN if entry is None else entry.token).matches(secret)
        if is_default:
            return DEFAULT_KEY, ""
        if entry is None or not is_right or entry.until <= self._clock():
            return None
        return entry.key, id_

    def named(self, name: str) -> Key | None:
        """Return the key with a name, if one of its tokens is valid now."""
        self.refresh()
        now = self._clock()
        for entry in self._entries.values():
            if entry.key.name == name and now < entry.until:
                return entry.key
        return None

    def mark_of(self, token_id: str, salt: bytes) -> str:
        """Return a salted mark of a token; `marked` finds the token by it until it changes."""
        return token_id or sha256(salt + (self._default_digest or b"")).hexdigest()

    def marked(self, mark: str, salt: bytes) -> tuple[Key, str] | None:
        """Return the key and the id of a token by the token's mark; None if the token has ended."""
        self.refresh()
        if entry := self._entries.get(mark):
            return (entry.key, mark) if entry.until > self._clock() else None
        is_default = self._default_digest is not None and hmac.compare_digest(
            mark.encode(), self.mark_of("", salt).encode()
        )
        return (DEFAULT_KEY, "") if is_default else None

    def begin_access(
        self, key: Key, token_id: str, *, latest: Callable[[], float] | None = None
    ) -> Access:
        """Track whether a key stays valid, until `end_access` and at most until `latest()`."""
        access = Access(self, key, token_id, latest)
        self._under_way[access] = None
        return access

    def end_access(self, access: Access) -> None:
        """Track a key no more: its request is answered."""
        del self._under_way[access]

    def look_again(self) -> None:
        """Update the end of every access under way: a key or a sign-in has changed."""
        for access in self._under_way:
            access.note_change()

    def now(self) -> float:
        return self._clock()

    def ends_at(self, token_id: str) -> float:
        """Return the time when a token ends; 0 if no key has it."""
        if not token_id:
            return FOREVER
        entry = self._entries.get(token_id)
        return 0 if entry is None else entry.until

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        if self._file is not None:
            self._reread(self._file)

    def _reread(self, file: Path) -> None:
        try:
            signature = signature_of(file)
            if signature == self._signature and not self.problem:
                return
            # Before the file is read: a change meanwhile is seen the next time.
            self._signature = signature
            self._set_entries(read_keys(file))
            self.problem = ""
        except ServerSetupError as exc:
            self._set_entries([])
            if not self.problem:
                self._report(str(exc))
            self.problem = str(exc)

    def _set_entries(self, keys: list[StoredKey]) -> None:
        before, self._entries = self._entries, _entries_of(keys)
        self.look_again()
        old, new = _by_name(before), _by_name(self._entries)
        for name in {**old, **new}:
            if name not in old or name not in new:
                self._note_change("keys.revoke" if name in old else "keys.add", name)
            elif old[name] != new[name]:
                self._note_change("keys.change", name)


def _entries_of(keys: Iterable[StoredKey]) -> dict[str, _Entry]:
    """Return the tokens of keys, by their ids."""
    return {token.id: _Entry(it.key, token) for it in keys for token in it.tokens}


def _by_name(entries: Mapping[str, _Entry]) -> dict[str, list[_Entry]]:
    found: dict[str, list[_Entry]] = {}
    for entry in entries.values():
        found.setdefault(entry.key.name, []).append(entry)
    return found
