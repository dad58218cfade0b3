"""The HTTP client of one model: posts a request, reads the answer, and classifies failures.

It never retries, no error contains a secret of its request, and a cancelled call hangs up at once.
"""

from collections.abc import Mapping
from typing import Any, Final

import httpx2
import trio

from orchestrator.agents.current_span import current_traceparent
from orchestrator.agents.errors import Failure, ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.http.answer_builder import AnswerBuilder
from orchestrator.agents.models.http.answer_errors import AnswerTooLongError, UnusableAnswerError
from orchestrator.agents.models.http.answer_limits import AnswerLimits
from orchestrator.agents.models.http.answer_reader import read_answer
from orchestrator.agents.models.http.credentials import Credentials
from orchestrator.agents.models.http.pools import Pools
from orchestrator.agents.models.http.request_secrets import RequestSecrets
from orchestrator.agents.models.http.wire_transcript import as_json

SILENCE_SECONDS: Final = 600.0
"""How long a connection may be silent: a model may think for minutes before its first byte."""
DEFAULT_LIMITS: Final = AnswerLimits()
SHOWN_OF_AN_ANSWER: Final = 500
KEPT_OF_A_FLOOD: Final = 100_000
"""How many characters of an answer that is too long are kept: all of it would be journaled."""
ENDLESS_HEADERS: Final = 431
NOT_CONNECTED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class Endpoint:
    """The URL at which one model answers."""

    def __init__(
        self,
        model: str,
        url: str,
        *,
        headers: Mapping[str, str],
        key: str = "",
        credentials: Credentials | None = None,
        silence: float = SILENCE_SECONDS,
        limits: AnswerLimits = DEFAULT_LIMITS,
    ) -> None:
        self._model = model
        self._url = url
        self._limits = limits
        self._credentials = credentials
        self._key = key
        self._headers = headers
        self._pools = Pools(url, headers, silence)

    async def aclose(self) -> None:
        await self._pools.aclose()

    async def ask(self, body: Mapping[str, Any], builder: AnswerBuilder) -> AssistantMessage:
        """Post a request and return the answer, whose pieces the builder emits as they arrive."""
        login: dict[str, str] = {}
        try:
            await self._pools.close_unused()
            with self._pools.client() as client, trio.move_on_after(self._limits.seconds) as timer:
                await self._post(client, as_json(body), builder, login)
            if timer.cancelled_caught:
                raise AnswerTooLongError(f"{self._limits.seconds:g} seconds")
            return builder.build()
        except (
            UnusableAnswerError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            UnicodeEncodeError,
        ) as exc:
            cause: Exception = exc
        # Raised outside the handler: inside, the error would carry its context, and so the key.
        secrets = RequestSecrets(self._key.split(), {**self._headers, **login})
        partial = builder.text
        if isinstance(cause, AnswerTooLongError):
            partial = partial[:KEPT_OF_A_FLOOD]
        error = self._error(cause, partial, secrets)
        if builder.usage.tokens:
            error.usage = builder.usage
        elif isinstance(cause, NOT_CONNECTED):
            # The request was not read, so it is not billed.
            error.usage = Usage(calls=1)
        raise error from None if secrets.are_in(cause) else cause

    async def _post(
        self,
        client: httpx2.AsyncClient,
        content: bytes,
        builder: AnswerBuilder,
        login: dict[str, str],
    ) -> None:
        """Post a request; `login` gets the headers that were made for it, also if it fails."""
        if self._credentials is not None:
            login.update(await self._credentials.headers(self._url, content))
        headers = login
        if traceparent := current_traceparent():
            headers = {**login, "traceparent": traceparent}
        async with client.stream("POST", self._url, content=content, headers=headers) as response:
            builder.note_headers(response.headers)
            await read_answer(response, builder, self._limits)

    def _error(self, exc: Exception, partial: str, secrets: RequestSecrets) -> ModelError:
        match exc:
            case UnusableAnswerError():
                kind, problem = exc.kind, str(exc)
            case httpx2.TimeoutException():
                kind = Failure.TIMEOUT
                problem = f"was silent for too long: {_describe(exc)}"
            case httpx2.RemoteProtocolError() if _has_endless_headers(exc):
                kind = Failure.MALFORMED
                problem = f"gave an answer without end: {_describe(exc)}"
            case httpx2.NetworkError() | httpx2.RemoteProtocolError() if partial:
                kind, problem = Failure.CONNECTION, f"broke off: {_describe(exc)}"
            case httpx2.NetworkError() | httpx2.RemoteProtocolError():
                kind = Failure.CONNECTION
                problem = f"cannot be reached: {_describe(exc)}"
            case _:
                # The address, the proxy or the key does not even allow a request.
                kind = Failure.BAD_REQUEST
                problem = f"cannot be reached: {_describe(exc)}"
        retry_after = exc.retry_after if isinstance(exc, UnusableAnswerError) else None
        # Before cutting: half a key is a secret.
        problem = secrets.removed_from(problem)
        if len(problem) > SHOWN_OF_AN_ANSWER:
            problem = f"{problem[:SHOWN_OF_AN_ANSWER]}..."
        return ModelError(
            f"{self._model} {problem}",
            kind=kind,
            retry_after=retry_after,
            partial=partial,
            is_transient=False if isinstance(exc, AnswerTooLongError) else None,
        )


def _has_endless_headers(exc: Exception) -> bool:
    link: BaseException | None = exc
    while link is not None:
        # How h11 says it, in words of HTTP: request header fields too large.
        if getattr(link, "error_status_hint", 0) == ENDLESS_HEADERS:
            return True
        link = link.__cause__ or link.__context__
    return False


def _describe(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
