"""`mcp/logins.json`: the logins of this user, with their tokens.

A login belongs to an address, and no other server ever gets its tokens. It belongs to the user and
not to a journal: all processes of the user share it.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from orchestrator.ports.errors import LoginError
from orchestrator.ports.files import PrivateFile, state_folder

FILE: Final = "mcp/logins.json"
VERSION: Final = 1
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Login(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A login at one server. The SDK's values are kept in their JSON."""

    url: str
    """The address of the server, in the form of `address_of`."""
    client: dict[str, Any] | None = None
    """As whom the authorization server knows us."""
    tokens: dict[str, Any] | None = None
    """None after a logout, or when they cannot be renewed any more."""
    expires: float | None = None
    """When the access token ends, in seconds since the epoch; None if that is not known."""
    metadata: dict[str, Any] | None = None
    """The metadata of the authorization server: where tokens are renewed and revoked."""
    resource: dict[str, Any] | None = None
    """The metadata of the server: the resource name for tokens."""

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, …)"

    @property
    def token(self) -> str | None:
        """The access token."""
        return None if self.tokens is None else str(self.tokens["access_token"])

    @property
    def is_renewable(self) -> bool:
        """Whether another token can be had without a person."""
        has_token = bool(self.tokens and self.tokens.get("refresh_token"))
        return has_token and self.client is not None

    def ends_before(self, when: float) -> bool:
        return self.expires is not None and self.expires <= when

    def without_tokens(self) -> "Login":
        return msgspec.structs.replace(self, tokens=None, expires=None)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that are redacted from every text."""
        fields = {**(self.tokens or {}), **(self.client or {})}
        names = ("access_token", "refresh_token", "client_secret")
        return tuple(str(fields[name]) for name in names if fields.get(name))


class _File(msgspec.Struct, kw_only=True):
    version: int
    logins: list[Login]


def logins_file(environ: Mapping[str, str]) -> Path:
    """Return the file of the user's logins."""
    return state_folder(environ) / FILE


def address_of(url: str) -> str:
    """Return the address of a server in the form that logins are found by.

    Its query is part of it: on some servers that says whose data it serves.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if ":" in host:
        host = f"[{host}]"
    port = parts.port
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{port}"
    path = parts.path.rstrip("/")
    return parts._replace(netloc=host, path=path, fragment="").geturl()


def read_logins(file: Path) -> dict[str, Login]:
    """Return the logins of a file, by their addresses; none if there is no file."""
    raw = PrivateFile(file, error=LoginError).read()
    if raw is None:
        return {}
    try:
        stored = msgspec.json.decode(raw, type=_File)
    except (msgspec.MsgspecError, ValueError) as exc:
        # Not what the error says: it may quote a token.
        raise LoginError(
            f"{file} is damaged: remove it, and log in again with `orchestrator mcp login NAME`"
        ) from exc
    if stored.version != VERSION:
        raise LoginError(f"{file} is of version {stored.version}: a newer orchestrator wrote it")
    return {it.url: it for it in stored.logins}


@contextmanager
def changed_logins(file: Path) -> Generator[dict[str, Login]]:
    """Change the logins of a file: they are stored when the block ends without an error."""
    private = PrivateFile(file, error=LoginError)
    # Of two changes at once, the second one sees the first.
    with private.locked():
        logins = read_logins(file)
        yield logins
        stored = _File(version=VERSION, logins=list(logins.values()))
        private.replace(msgspec.json.format(msgspec.json.encode(stored), indent=1) + b"\n")
