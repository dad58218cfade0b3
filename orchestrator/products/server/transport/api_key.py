"""The API key and other secrets, in the environment or a private file and nowhere else."""

import os
import stat
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from tempfile import mkstemp
from typing import Final

import attrs

from orchestrator.ports.errors import ServerSetupError
from orchestrator.ports.files import make_private_folder

VARIABLE: Final = "ORCHESTRATOR_API_KEY"
FILE: Final = "api_key"
SHORTEST: Final = 16
LONGEST_FILE: Final = 4096
PLACEHOLDERS: Final = (
    *("changeme", "change-me", "change_me", "your-", "your_", "yourapikey", "example"),
    *("placeholder", "insert", "replace", "password", "xxx", "todo", "<", "${"),
)
"""The starts of placeholders that somebody forgot to replace."""
DISTINCT: Final = 6
"""The least number of different characters in a secret."""


@attrs.frozen
class StoredSecret:
    """A secret and its file."""

    value: str = attrs.field(repr=False)
    file: Path | None
    """None if the secret is in the environment."""
    is_new: bool = False


def has_token(environ: Mapping[str, str], folder: Path) -> bool:
    """Return whether `token_for` would find a token of the key `default`."""
    return bool(environ.get(VARIABLE, "").strip()) or (folder / FILE).exists()


def token_for(environ: Mapping[str, str], folder: Path, *, is_local: bool) -> StoredSecret:
    """Return the token of the key `default`; a missing one is made only if `is_local`."""
    if value := environ.get(VARIABLE, "").strip():
        return StoredSecret(_required(value, VARIABLE), None)
    file = folder / FILE
    if not is_local and not file.exists():
        raise ServerSetupError(
            "other machines could connect, and there is no key: make one with"
            f" `orchestrator keys add NAME`, set {VARIABLE} to a token of {SHORTEST} characters"
            " or more (openssl rand -hex 32), or start once with --host 127.0.0.1, which makes one"
            f" in {file}"
        )
    return load_or_create_secret(file, lambda: token_hex(24))


def load_or_create_secret(file: Path, new: Callable[[], str], *, most: int = 1) -> StoredSecret:
    """Return the secret in a file, or write a new one; it may have up to `most` secrets."""
    make_private_folder(file.parent)
    if not os.path.lexists(file):
        value = new()
        if _create(file, value):
            return StoredSecret(value, file, is_new=True)
    found = _read(file).split(maxsplit=most - 1) or [""]
    for value in found:
        _required(value, str(file))
    return StoredSecret(" ".join(found), file)


def _create(file: Path, value: str) -> bool:
    """Write a whole file that only its owner can read; return False if it exists by now."""
    try:
        descriptor, name = mkstemp(dir=file.parent, prefix=f".{file.name}-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(f"{value}\n")
                opened.flush()
                os.fsync(opened.fileno())
            os.link(name, file)
        finally:
            Path(name).unlink()
    except FileExistsError:
        return False
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be written: {exc.strerror}") from exc
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_wildcard(host: str) -> bool:
    """Return whether a host stands for all addresses of the machine."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host.strip("[]") in {"", "0"}


def _read(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be read: {exc.strerror}") from exc
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ServerSetupError(f"{file} is not a file of this user; remove it")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ServerSetupError(
                f"other users can read {file}, so its token is no longer secret: remove the file,"
                " and the server makes another"
            )
        try:
            return opened.read(LONGEST_FILE).decode().strip()
        except UnicodeDecodeError as exc:
            raise ServerSetupError(f"{file} is not text; remove it") from exc


def _required(value: str, where: str) -> str:
    """Return a secret, or raise if it is too weak."""
    if len(value) < SHORTEST:
        raise ServerSetupError(
            f"{where} has only {len(value)} characters, so it can be guessed: use {SHORTEST} or"
            " more (openssl rand -hex 32)"
        )
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ServerSetupError(
            f"{where} has characters that a header cannot carry: use letters and digits"
            " (openssl rand -hex 32)"
        )
    if value.lower().startswith(PLACEHOLDERS) or len(set(value)) < DISTINCT:
        raise ServerSetupError(
            f"{where} is a placeholder: replace it with a random token (openssl rand -hex 32)"
        )
    return value
