"""Credentials that a request gets when it is sent: a signature, or a token that ends soon."""

import subprocess
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import trio

from orchestrator.agents.errors import Failure
from orchestrator.agents.models.http.answer_errors import UnusableAnswerError
from orchestrator.agents.sandbox.program_path import own_program

GCLOUD: Final = ("gcloud", "auth", "print-access-token")
TOKEN_SECONDS: Final = 300.0
"""The seconds for which a token of `gcloud` is used: part of its hour may be over."""


class Credentials(Protocol):
    """Makes the headers that authenticate a request to a provider."""

    async def headers(self, url: str, content: bytes) -> Mapping[str, str]:
        """Return headers for one request."""
        ...


class TokenFunction:
    """Asks a function of the user for a token, before each request."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    async def headers(self, url: str, content: bytes) -> Mapping[str, str]:
        del url, content
        return _bearer(await trio.to_thread.run_sync(self._token))


class GcloudToken:
    """Asks `gcloud` for a token, and uses it for some minutes."""

    def __init__(self, command: tuple[str, ...] = GCLOUD) -> None:
        self._command = command
        self._lock = trio.Lock()
        self._token = ""
        self._ends_at = 0.0
        self._run: trio.lowlevel.TrioToken | None = None

    async def headers(self, url: str, content: bytes) -> Mapping[str, str]:
        del url, content
        async with self._lock:
            run = trio.lowlevel.current_trio_token()
            # Every run of trio has its own clock, whose times mean nothing in another run.
            if run is not self._run or trio.current_time() >= self._ends_at:
                self._token = await self._ask()
                self._run, self._ends_at = run, trio.current_time() + TOKEN_SECONDS
            return _bearer(self._token)

    async def _ask(self) -> str:
        try:
            # An agent may have written a program of that name into a folder of the path.
            program = own_program(self._command[0])
            if program is None:
                raise FileNotFoundError(self._command[0])
            command = [program, *self._command[1:]]
            ended = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
        except OSError as exc:
            raise UnusableAnswerError(
                Failure.AUTH, f"cannot be asked: {self._command[0]} is not there: {exc}"
            ) from exc
        except subprocess.CalledProcessError as exc:
            problem = (exc.stderr or b"").decode(errors="replace").strip()
            raise UnusableAnswerError(
                Failure.AUTH, f"cannot be asked: {' '.join(self._command)}: {problem}"
            ) from exc
        return ended.stdout.decode(errors="replace")


def _bearer(token: str) -> Mapping[str, str]:
    if not token.strip():
        raise UnusableAnswerError(Failure.AUTH, "cannot be asked: its token is empty")
    return {"authorization": f"Bearer {token.strip()}"}
