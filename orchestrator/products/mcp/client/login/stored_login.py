"""Signs requests with the token of a login, and renews it before and when the server refuses it.

It never asks a person: what only a person can do is an error with the command to type. A token is
renewed once, by one call of one process; the others wait, and find what that one has stored.
"""

import fcntl
import os
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import httpx2
import trio
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth

from orchestrator.ports.errors import LoginError, LoginRequiredError
from orchestrator.ports.files import PrivateFile
from orchestrator.products.mcp.client.login.authorization import LoginRefusedError, renewed_login
from orchestrator.products.mcp.client.login.file import (
    Login,
    address_of,
    changed_logins,
    read_logins,
)

EARLY_SECONDS: Final = 30.0
"""A token that ends within this time is renewed before it is sent."""


class StoredLogin(httpx2.Auth):
    """Signs the requests to one server with the token of its login, if a person has made one."""

    def __init__(
        self,
        name: str,
        url: str,
        file: Path,
        *,
        note_secrets: Callable[[Iterable[str]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read nothing yet.

        Tokens are sent to `url` only. `note_secrets` gets secrets before they are sent anywhere.
        """
        self.wanted_scope: str | None = None
        """The scopes of the login that the server requests; None if it requests no login, empty if
        it names no scope."""
        self._name = name
        self._url = address_of(url)
        self._home = httpx2.URL(url)
        self._file = file
        self._note_secrets = note_secrets
        self._clock = clock
        self._login: Login | None = None
        # Held while a token is renewed: a second renewal would use what is used up.
        self._renewal = trio.Lock()
        self._waiters = trio.CapacityLimiter(1)

    async def async_auth_flow(  # noqa: ASYNC900, ASYNC911 (what httpx calls; it waits in between)
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request, also after a renewal; raise `LoginRequiredError` without a login."""
        await trio.lowlevel.checkpoint()
        is_home = _origin(request.url) == _origin(self._home)
        token = await self._token() if is_home else None
        _sign(request, token)
        response = yield request
        if response.status_code == 401 and token is not None:
            token = await self._renewed(token)
            if token is not None:
                _sign(request, token)
                response = yield request
        if is_home:
            self._require_welcome(response)

    def _require_welcome(self, response: httpx2.Response) -> None:
        again = f"`orchestrator mcp login {self._name}`"
        if response.status_code == 401:
            self.wanted_scope = extract_scope_from_www_auth(response) or ""
            had_one = self._login is not None and self._login.client is not None
            why = "its login is over" if had_one else "it wants a login"
            raise LoginRequiredError(f"{why}: {again}")
        error = extract_field_from_www_auth(response, "error")
        if response.status_code == 403 and error == "insufficient_scope":
            self.wanted_scope = extract_scope_from_www_auth(response) or ""
            scopes = self.wanted_scope.split()
            # People copy the line into a shell, and the server has chosen the words.
            more = "".join(f" --scope {shlex.quote(scope)}" for scope in scopes)
            raise LoginRequiredError(
                f"its login does not allow this: {again.removesuffix('`')}{more}`"
            )

    async def _token(self) -> str | None:
        """Return the token to send; None if there is no login."""
        await trio.lowlevel.checkpoint()
        if self._login is None or self._login.token is None:
            self._read()
        login = self._login
        if login is None or login.token is None:
            return None
        if login.is_renewable and login.ends_before(self._clock() + EARLY_SECONDS):
            return await self._renewed(login.token)
        return login.token

    def _read(self) -> None:
        self._set_login(read_logins(self._file).get(self._url))

    def _set_login(self, login: Login | None) -> None:
        before, self._login = self._login, login
        # A server may still quote the one before.
        known = [it.secrets for it in (before, login) if it is not None]
        self._note_secrets([secret for secrets in known for secret in secrets])

    async def _renewed(self, refused: str) -> str | None:
        """Return another token than one that is not valid; None if only a person can get one."""
        async with self._renewal, self._only_process():
            # Another call, or another process, may have done it meanwhile.
            self._read()
            login = self._login
            if login is None or login.token != refused or not login.is_renewable:
                return None if login is None or login.token == refused else login.token
            try:
                renewed = await renewed_login(login, clock=self._clock)
            except LoginRefusedError:
                renewed = login.without_tokens()
            with changed_logins(self._file) as logins:
                # A logout meanwhile, or a new login, is a later word.
                if logins.get(self._url) == login:
                    logins[self._url] = renewed
                self._set_login(logins.get(self._url))
            return None if self._login is None else self._login.token

    @asynccontextmanager
    async def _only_process(self) -> AsyncGenerator[None]:
        """Keep other processes from renewing this login, as long as the block lasts."""
        purpose = f".{sha256(self._url.encode()).hexdigest()[:16]}"
        lock = PrivateFile(self._file, error=LoginError).open_lock(purpose)
        try:
            # A descriptor of its own: a thread that is abandoned gives the lock back by itself.
            await trio.to_thread.run_sync(
                _take, os.dup(lock), abandon_on_cancel=True, limiter=self._waiters
            )
            yield
        finally:
            os.close(lock)


def _take(lock: int) -> None:
    """Wait until a lock is free, and take it for all who have the same file open."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        os.close(lock)


def _sign(request: httpx2.Request, token: str | None) -> None:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return (url.scheme, url.host, url.port)
