"""What clients show to be let in: from the environment, or kept in a file that only we can read.

The same holds for what webhooks are signed with. Neither is ever written anywhere else.
"""

import os
import stat
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from typing import Final

import attrs

from orchestrator.errors import ServerSetupError

VARIABLE: Final = "ORCHESTRATOR_API_KEY"
FILE: Final = "api_key"
SHORTEST: Final = 16
LONGEST_FILE: Final = 4096
STAND_INS: Final = (
    *("changeme", "change-me", "change_me", "your-", "your_", "yourapikey", "example"),
    *("placeholder", "insert", "replace", "password", "xxx", "todo", "<", "${"),
)
"""How values begin that somebody has forgotten to replace."""
VARIETY: Final = 6
"""How many different characters a value has at least that nobody guesses."""


@attrs.frozen
class StoredSecret:
    """A secret, and where it is."""

    value: str = attrs.field(repr=False)
    file: Path | None
    """None: it is in the environment, and nowhere else."""
    is_new: bool = False


def token_for(
    environ: Mapping[str, str], folder: Path, *, is_local: bool
) -> StoredSecret:
    """Return what clients must show.

    Args:
        environ: where it is looked for first.
        folder: where it is kept otherwise: that of the journal.
        is_local: only this machine can connect. Where others can, nobody is let in by a token
            that was made on the way, and which nobody has looked at.
    """
    if given := environ.get(VARIABLE, "").strip():
        return StoredSecret(_required(given, VARIABLE), None)
    file = folder / FILE
    if not is_local and not file.exists():
        raise ServerSetupError(
            f"others than this machine could connect, and there is no token: set {VARIABLE} to"
            f" one of {SHORTEST} characters or more (openssl rand -hex 32), or start once with"
            f" --host 127.0.0.1, which makes one in {file}"
        )
    return load_or_create_secret(file, lambda: token_hex(24))


def load_or_create_secret(file: Path, new: Callable[[], str]) -> StoredSecret:
    """Return the secret that is kept in a file, or a new one that is kept there from now on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Nobody else can ever open it, and nobody can have put it there before us.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return StoredSecret(_required(_read(file), str(file)), file)
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be written: {exc.strerror}") from exc
    value = new()
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(value + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    return StoredSecret(value, file, is_new=True)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _read(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        raise ServerSetupError(f"{file} cannot be read: {exc.strerror}") from exc
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ServerSetupError(f"{file} is no file of yours; remove it")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ServerSetupError(
                f"others can read {file}, so what is in it is no secret any more: remove it, and"
                " another is made"
            )
        try:
            return opened.read(LONGEST_FILE).decode().strip()
        except UnicodeDecodeError as exc:
            raise ServerSetupError(f"{file} is no text; remove it") from exc


def _required(value: str, where: str) -> str:
    """Return a secret that is one."""
    if len(value) < SHORTEST:
        raise ServerSetupError(
            f"{where} has {len(value)} characters, and anybody can guess that: it needs"
            f" {SHORTEST} or more (openssl rand -hex 32)"
        )
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ServerSetupError(
            f"{where} has characters that no header can carry: use letters and digits"
            " (openssl rand -hex 32)"
        )
    if value.lower().startswith(STAND_INS) or len(set(value)) < VARIETY:
        raise ServerSetupError(
            f"{where} is still what stands in for a token: replace it with one that nobody"
            " knows (openssl rand -hex 32)"
        )
    return value
