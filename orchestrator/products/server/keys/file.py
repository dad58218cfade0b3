"""`keys/keys.json`: the keys of a server, in a private file that is replaced as a whole.

Many processes read it, and one at a time changes it. Reading the file gives no key, because it has
no secret. Writing it does, so no other user may write it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import msgspec

from orchestrator.ports.errors import ServerSetupError
from orchestrator.ports.files import PrivateFile
from orchestrator.products.server.keys.key import Key
from orchestrator.products.server.keys.tokens import TokenHash

FILE: Final = "keys/keys.json"
"""The path beside the journal; a sandbox hides the whole folder, not the replaced file."""
VERSION: Final = 1

Signature: TypeAlias = tuple[int, ...]
"""A value that changes whenever the file does."""


@attrs.frozen
class StoredKey:
    """A key and its tokens: two while one replaces the other."""

    key: Key
    tokens: tuple[TokenHash, ...]


class _File(msgspec.Struct, kw_only=True):
    version: int
    keys: list[StoredKey]


def signature_of(file: Path) -> Signature | None:
    """Return the signature of a file; None if there is no file."""
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
    """Return the keys of a file; an empty list if there is no file."""
    raw = PrivateFile(file, error=ServerSetupError).read()
    if raw is None:
        return []
    try:
        stored = msgspec.json.decode(raw, type=_File)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise ServerSetupError(f"{file} is damaged: {exc}; restore a copy") from exc
    if stored.version != VERSION:
        raise ServerSetupError(
            f"{file} has version {stored.version}: a newer orchestrator wrote it"
        )
    return stored.keys


def make_keys_file(file: Path) -> None:
    """Make a file without keys if there is no file: a sandbox can hide only existing files."""
    if signature_of(file) is None:
        with changed_keys(file):
            pass


@contextmanager
def changed_keys(file: Path) -> Generator[dict[str, StoredKey]]:
    """Change the keys of a file, by name; they are stored when the block ends without an error."""
    private = PrivateFile(file, error=ServerSetupError)
    # Of two changes at the same time, the second sees the first.
    with private.locked():
        keys = {it.key.name: it for it in read_keys(file)}
        yield keys
        stored = _File(version=VERSION, keys=list(keys.values()))
        encoded = msgspec.json.encode(stored, order="deterministic")
        private.replace(msgspec.json.format(encoded, indent=1) + b"\n")
