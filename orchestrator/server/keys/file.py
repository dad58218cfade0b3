"""`keys/keys.json`: the keys of a server, private and replaced as a whole.

Many read it, and one at a time changes it. It has no secret: to read it gives no key. To write it
does, so no other user may.
"""

import base64
import fcntl
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeAlias

import attrs
import msgspec

from orchestrator.errors import ServerSetupError
from orchestrator.private_files import (
    OTHERS_WRITE,
    foreign_link,
    foreign_owner,
    make_private_folder,
)
from orchestrator.server.keys.key import Key, KeyLimits, Scope
from orchestrator.server.keys.tokens import TokenHash

FILE: Final = "keys/keys.json"
"""In a folder of its own, which a sandbox hides: a file alone would be seen by the commands that
run while it is replaced."""
LONGEST: Final = 10_000_000
VERSION: Final = 1

Signature: TypeAlias = tuple[int, ...]
"""What changes whenever the file does."""


@attrs.frozen
class StoredKey:
    """A key, and its tokens: two while one takes the place of the other."""

    key: Key
    tokens: tuple[TokenHash, ...]


class _Token(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    salt: str
    sha256: str
    until: float | None = None


class _Key(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    owner: str
    scopes: list[Scope]
    created: float
    expires: float | None = None
    limits: KeyLimits = KeyLimits()
    tokens: list[_Token]


class _File(msgspec.Struct, kw_only=True):
    version: int
    keys: list[_Key]


def signature_of(file: Path) -> Signature | None:
    """Return the signature of a file; None if there is none."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be read: {exc.strerror}") from exc
    return (
        *(found.st_dev, found.st_ino, found.st_size),
        *(found.st_mtime_ns, found.st_ctime_ns, found.st_mode, found.st_uid),
    )


def read_keys(file: Path) -> list[StoredKey]:
    """Return the keys of a file; none if there is no file."""
    _require_own_folder(file.parent)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be read: {exc.strerror}") from exc
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ServerSetupError(f"{file} is no file of yours; remove it")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ServerSetupError(
                f"others can read or write {file}: look whether all keys in it are yours, and"
                f" then chmod 600 {file}"
            )
        raw = opened.read(LONGEST)
    try:
        stored = msgspec.json.decode(raw, type=_File)
        if stored.version != VERSION:
            raise ServerSetupError(
                f"{file} is of version {stored.version}: a newer orchestrator wrote it"
            )
        return [_restored(it) for it in stored.keys]
    except (msgspec.MsgspecError, ValueError) as exc:
        raise ServerSetupError(f"{file} is damaged: {exc}; restore a copy") from exc


def _require_own_folder(folder: Path) -> None:
    """Refuse a folder in which another user could put an older file of keys back."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    except OSError as exc:
        raise ServerSetupError(f"{folder} cannot be read: {exc.strerror}") from exc
    if foreign_link(folder) or foreign_owner(found) or found.st_mode & OTHERS_WRITE:
        raise ServerSetupError(
            f"others can change what is in {folder}: move it away, make a folder of yours, of mode"
            " 700, and look whether all keys in it are yours"
        )


def make_keys_file(file: Path) -> None:
    """Make a file without keys, if there is none: a sandbox can hide only what is there."""
    if signature_of(file) is None:
        with changed_keys(file):
            pass


@contextmanager
def changed_keys(file: Path) -> Generator[dict[str, StoredKey]]:
    """Change the keys of a file, by name: they are stored when the block ends without an error."""
    folder = file.parent
    make_private_folder(folder)
    _require_own_folder(folder)
    try:
        # Held until it is closed: of two changes at once, the second one sees the first.
        lock = os.open(
            folder / f"{file.name}.lock",
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
    except OSError as exc:
        raise ServerSetupError(
            f"{folder} cannot be written to: {exc.strerror}"
        ) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = {it.key.name: it for it in read_keys(file)}
        yield keys
        _replace(file, keys.values())
    finally:
        os.close(lock)


def _replace(file: Path, keys: Iterable[StoredKey]) -> None:
    stored = _File(version=VERSION, keys=[_as_stored(it) for it in keys])
    text = msgspec.json.format(msgspec.json.encode(stored), indent=1) + b"\n"
    temporary = file.with_name(f".{file.name}.{token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be written: {exc.strerror}") from exc


def _as_stored(it: StoredKey) -> _Key:
    return _Key(
        name=it.key.name,
        owner=it.key.owner,
        scopes=sorted(it.key.scopes),
        created=it.key.created,
        expires=it.key.expires,
        limits=it.key.limits,
        tokens=[
            _Token(
                id=token.id,
                salt=_text(token.salt),
                sha256=_text(token.digest),
                until=token.until,
            )
            for token in it.tokens
        ],
    )


def _restored(it: _Key) -> StoredKey:
    key = Key(
        name=it.name,
        owner=it.owner,
        scopes=frozenset(it.scopes),
        created=it.created,
        expires=it.expires,
        limits=it.limits,
    )
    tokens = (
        TokenHash(
            id=token.id,
            salt=_bytes(token.salt),
            digest=_bytes(token.sha256),
            until=token.until,
        )
        for token in it.tokens
    )
    return StoredKey(key, tuple(tokens))


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
