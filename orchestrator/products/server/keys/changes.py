"""How keys are made, replaced and revoked: a running server sees each at once."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from orchestrator.kernel.errors import ServerSetupError
from orchestrator.products.server.keys.file import StoredKey, changed_keys
from orchestrator.products.server.keys.key import (
    CONSOLE,
    DEFAULT,
    ORDINARY,
    UNLIMITED,
    Key,
    KeyLimits,
    Scope,
)
from orchestrator.products.server.keys.tokens import TokenHash, new_token

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


def add_key(
    file: Path,
    name: str,
    *,
    now: float,
    owner: str | None = None,
    scopes: Iterable[Scope] = ORDINARY,
    expires: float | None = None,
    limits: KeyLimits = UNLIMITED,
) -> tuple[Key, str]:
    """Make a key, and return it with its token, which is stored nowhere.

    Args:
        file: `keys.json`.
        name: what it is called.
        now: the time, in seconds since the epoch.
        owner: whose sessions it sees; by default its own.
        scopes: what it may do.
        expires: when it ends; None is never.
        limits: how much it may use.
    """
    owner = name if owner is None else owner
    _require_name(name, "a key")
    _require_name(owner, "an owner")
    if name in {DEFAULT, CONSOLE}:
        raise ServerSetupError(
            f"{name!r} is a key that `orchestrator serve` makes by itself; say another name"
        )
    key = Key(
        name=name,
        owner=owner,
        scopes=frozenset(scopes),
        created=now,
        expires=expires,
        limits=limits,
    )
    with changed_keys(file) as keys:
        if name in keys:
            raise ServerSetupError(
                f"there is a key {name!r} already: say another name, or give it another token with"
                f" `orchestrator keys rotate {name}`"
            )
        token, stored = new_token()
        keys[name] = StoredKey(key, (stored,))
    return key, token


def revoke_key(file: Path, name: str) -> Key:
    """Remove a key with all of its tokens, and return it."""
    with changed_keys(file) as keys:
        return _existing(keys, name, keys.pop(name, None)).key


def rotate_key(file: Path, name: str, *, now: float, grace: float) -> tuple[Key, str]:
    """Give a key another token, and return both; the token before is valid for a while.

    Args:
        file: `keys.json`.
        name: which key.
        now: the time, in seconds since the epoch.
        grace: for how many seconds the token before stays valid.
    """
    with changed_keys(file) as keys:
        found = _existing(keys, name, keys.get(name))
        token, stored = new_token()
        # Of those before, the newest alone is kept: there are never more than two.
        before = attrs.evolve(found.tokens[-1], until=now + grace)
        kept: tuple[TokenHash, ...] = (before,) if grace else ()
        keys[name] = attrs.evolve(found, tokens=(*kept, stored))
    return found.key, token


def _existing(keys: dict[str, StoredKey], name: str, found: StoredKey | None) -> StoredKey:
    if found is not None:
        return found
    if name == DEFAULT:
        raise ServerSetupError(
            f"the key {DEFAULT!r} is the file api_key, or ORCHESTRATOR_API_KEY: remove that, and"
            " start the server again"
        )
    there = ", ".join(keys) or "none"
    raise ServerSetupError(f"there is no key {name!r}; there are: {there}")


def _require_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise ServerSetupError(
            f"{name!r} cannot be the name of {what}: it has 1 to 64 letters, digits and . _ @ + -,"
            " and begins with a letter or a digit"
        )
