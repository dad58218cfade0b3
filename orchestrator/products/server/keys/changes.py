"""Adding, rotating and revoking keys. A running server sees each change at once."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from orchestrator.ports.errors import ServerSetupError
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
    """Add a key to `keys.json`, and return it with its token, which is stored nowhere."""
    owner = name if owner is None else owner
    _require_name(name, "a key")
    _require_name(owner, "an owner")
    if name in {DEFAULT, CONSOLE}:
        raise ServerSetupError(
            f"{name!r} is a key that `orchestrator serve` makes by itself; choose another name"
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
                f"there is already a key {name!r}: choose another name, or give the key another"
                f" token with `orchestrator keys rotate {name}`"
            )
        token, stored = new_token()
        keys[name] = StoredKey(key, (stored,))
    return key, token


def revoke_key(file: Path, name: str) -> Key:
    """Remove a key with all its tokens, and return it."""
    with changed_keys(file) as keys:
        return _existing(keys, name, keys.pop(name, None)).key


def rotate_key(file: Path, name: str, *, now: float, grace: float) -> tuple[Key, str]:
    """Give a key another token, and return both; the old one is valid for `grace` seconds."""
    with changed_keys(file) as keys:
        found = _existing(keys, name, keys.get(name))
        token, stored = new_token()
        # Only the newest of the previous tokens stays: a key never has more than two.
        before = attrs.evolve(found.tokens[-1], until=now + grace)
        kept: tuple[TokenHash, ...] = (before,) if grace else ()
        keys[name] = attrs.evolve(found, tokens=(*kept, stored))
    return found.key, token


def _existing(keys: dict[str, StoredKey], name: str, found: StoredKey | None) -> StoredKey:
    if found is not None:
        return found
    if name == DEFAULT:
        raise ServerSetupError(
            f"the key {DEFAULT!r} comes from the file api_key, or from ORCHESTRATOR_API_KEY: remove"
            " that, and start the server again"
        )
    there = ", ".join(keys) or "none"
    raise ServerSetupError(f"there is no key {name!r}; there are: {there}")


def _require_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise ServerSetupError(
            f"{name!r} cannot be the name of {what}: use 1 to 64 letters, digits and . _ @ + -,"
            " beginning with a letter or a digit"
        )
