"""One provider over HTTP: its connections, its streams, and how it failed us.

Nothing is asked twice here, no error tells the key, and a call that is cancelled hangs up at once.
"""

import math
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final

import httpx2
import msgspec
import trio

from agents.errors import Failure, ModelError
from agents.messages import AssistantMessage
from agents.models.http.answer_builder import AnswerBuilder, UnusableAnswerError
from agents.models.http.provider_errors import status_error
from agents.models.http.wire_transcript import as_json

# A model may think for minutes before its first byte; a server that is there accepts at once.
SILENCE_SECONDS: Final = 600.0
CONNECT_SECONDS: Final = 10.0
# For each call a pool looks at all its connections, so many small ones cost less than a big one.
CALLS_PER_POOL: Final = 16
KEEPALIVE_SECONDS: Final = 30.0
# A server that has said all ends its stream. One that does not is not waited for.
STREAM_END_SECONDS: Final = 1.0
LONGEST_ANSWER: Final = 64 * 2**20
LONGEST_ERROR: Final = 64 * 2**10
SHOWN_OF_AN_ANSWER: Final = 500
# Whatever is shorter is no secret, and would be found in any text.
SHORTEST_SECRET: Final = 6


class Endpoint:
    """The address where one model is asked."""

    def __init__(
        self,
        model: str,
        url: str,
        *,
        headers: Mapping[str, str],
        key: str = "",
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._model = model
        self._url = url
        self._secrets = [part for part in key.split() if len(part) >= SHORTEST_SECRET]
        self._pools = Pools(url, headers, silence)

    async def aclose(self) -> None:
        await self._pools.aclose()

    async def ask(
        self, body: Mapping[str, Any], draft: AnswerBuilder
    ) -> AssistantMessage:
        """Return the answer, which is also told while it is heard."""
        try:
            await self._pools.close_unused()
            with self._pools.client() as client:
                await self._post(client, as_json(body), draft)
            return draft.build()
        except (
            UnusableAnswerError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            UnicodeEncodeError,
        ) as exc:
            cause: Exception = exc
        # Raised out here, since what is raised in there drags its context along.
        error = self._error(cause, draft.text)
        if draft.usage.tokens:
            error.usage = draft.usage
        raise error from self._cause_without_key(cause)

    async def _post(
        self, client: httpx2.AsyncClient, content: bytes, draft: AnswerBuilder
    ) -> None:
        async with client.stream("POST", self._url, content=content) as response:
            if not response.is_success:
                answer = await _read(response, LONGEST_ERROR)
                raise status_error(
                    response.status_code, response.headers, answer[:LONGEST_ERROR]
                )
            if "text/event-stream" in response.headers.get("content-type", ""):
                await _read_stream(response, draft)
                return
            answer = await _read(response, LONGEST_ANSWER)
            if len(answer) > LONGEST_ANSWER:
                raise _malformed(draft, "it does not end", answer)
            with _decoding_errors(draft, answer):
                draft.feed_body(answer)

    def _error(self, exc: Exception, partial: str) -> ModelError:
        match exc:
            case UnusableAnswerError():
                kind, what = exc.kind, str(exc)
            case httpx2.TimeoutException():
                kind, what = Failure.TIMEOUT, f"was silent for too long: {_named(exc)}"
            case httpx2.NetworkError() | httpx2.RemoteProtocolError() if partial:
                kind, what = Failure.CONNECTION, f"broke off: {_named(exc)}"
            case httpx2.NetworkError() | httpx2.RemoteProtocolError():
                kind, what = Failure.CONNECTION, f"cannot be reached: {_named(exc)}"
            case _:
                # An address, a proxy or a key with which nothing can even be sent.
                kind, what = Failure.BAD_REQUEST, f"cannot be reached: {_named(exc)}"
        retry_after = exc.retry_after if isinstance(exc, UnusableAnswerError) else None
        # Servers and clients quote what they got, and errors are read by many. What is hidden is
        # hidden before the text is cut: half a key is still half a key.
        what = self._redact(what)
        if len(what) > SHOWN_OF_AN_ANSWER:
            what = f"{what[:SHOWN_OF_AN_ANSWER]}..."
        return ModelError(
            f"{self._model} {what}", kind=kind, retry_after=retry_after, partial=partial
        )

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _cause_without_key(self, exc: Exception) -> Exception | None:
        link: BaseException | None = exc
        while link is not None:
            if self._redact(str(link)) != str(link):
                return None
            link = link.__cause__ or link.__context__
        return exc


class Pools:
    """Connections in pools of a few, as many pools as there are calls for."""

    def __init__(self, url: str, headers: Mapping[str, str], silence: float) -> None:
        self._headers = {
            **headers,
            "content-type": "application/json",
            # Packed pieces of a few letters are no smaller, and come later.
            "accept-encoding": "identity",
        }
        self._timeout = httpx2.Timeout(silence, connect=CONNECT_SECONDS, pool=None)
        # What is on this machine is asked directly, whatever proxy the machine is set up with.
        self._trust_env = not is_on_loopback(url)
        # Shared, since loading the certificates takes a tenth of a second and more.
        self._tls = (
            httpx2.create_ssl_context()
            if url.startswith("https:")
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._pools: list[_Pool] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._pools)

    @contextmanager
    def client(self) -> Generator[httpx2.AsyncClient]:
        """Lend a client for one call: of the first pool with room, so that the last run dry."""
        if self._closed:
            raise trio.ClosedResourceError("this model was closed")
        for pool in self._pools:
            if pool.calls < CALLS_PER_POOL:
                break
        else:
            pool = _Pool(self._new_client())
            self._pools.append(pool)
        pool.calls += 1
        try:
            yield pool.client
        finally:
            pool.calls -= 1
            pool.idle_since = trio.current_time()

    async def close_unused(self) -> None:
        """Close the pools in which every connection is too old to be used again."""
        await trio.lowlevel.checkpoint()
        oldest = trio.current_time() - KEEPALIVE_SECONDS
        for pool in self._pools[1:]:
            if not pool.calls and pool.idle_since < oldest:
                self._pools.remove(pool)
                await pool.client.aclose()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self._closed = True
        while self._pools:
            await self._pools.pop().client.aclose()

    def _new_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=self._headers,
            timeout=self._timeout,
            verify=self._tls,
            trust_env=self._trust_env,
            limits=httpx2.Limits(
                # No call waits for another: a parent would hold the place its child needs.
                max_connections=None,
                max_keepalive_connections=CALLS_PER_POOL,
                keepalive_expiry=KEEPALIVE_SECONDS,
            ),
        )


class _Pool:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.calls = 0
        self.idle_since = 0.0


class SseParser:
    """Cuts a stream into the data of its server-sent events.

    Names and ids of events are left out: all protocols say in the data what it is.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        lines = (self._rest + chunk).splitlines(keepends=True)
        self._rest = b""
        # The last line may go on in the next chunk, and so may a line end of two bytes.
        if lines and not lines[-1].endswith(b"\n"):
            self._rest = lines.pop()
        for line in lines:
            if data := self._read(line.rstrip(b"\r\n")):
                yield data

    @property
    def buffered(self) -> int:
        """How many bytes of an unfinished event there are."""
        return len(self._rest) + sum(map(len, self._data))

    def _read(self, line: bytes) -> bytes:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        if line or not self._data:
            return b""
        data, self._data = b"\n".join(self._data), []
        return data


async def _read_stream(response: httpx2.Response, draft: AnswerBuilder) -> None:
    events = SseParser()

    def take(chunk: bytes) -> float:
        patience = math.inf
        for data in events.feed(chunk):
            with _decoding_errors(draft, data):
                if draft.feed_event(data):
                    patience = STREAM_END_SECONDS
        if events.buffered > LONGEST_ANSWER:
            raise _malformed(draft, "it does not end", chunk)
        return patience

    await _pull(response, take)
    if not draft.is_complete:
        raise UnusableAnswerError(
            Failure.CONNECTION, "broke off: the stream ended before the answer did"
        )


async def _read(response: httpx2.Response, most: int) -> bytes:
    """Return an answer that is not streamed, or a little more than the most of it."""
    answer = bytearray()

    def take(chunk: bytes) -> float:
        answer.extend(chunk)
        return math.inf if len(answer) <= most else 0

    await _pull(response, take)
    return bytes(answer)


async def _pull(response: httpx2.Response, take: Callable[[bytes], float]) -> None:
    """Hand on the chunks of an answer while there is patience for more.

    It is never left but by its end or a cancellation: httpx2's generators do not close each other.
    """
    error: UnusableAnswerError | None = None
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_raw():
            try:
                patience = take(chunk) if error is None else 0
            except UnusableAnswerError as exc:
                error, patience = exc, 0
            scope.deadline = min(scope.deadline, trio.current_time() + patience)
    if error is not None:
        raise error


@contextmanager
def _decoding_errors(draft: AnswerBuilder, data: bytes) -> Generator[None]:
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(draft, exc, data) from exc


def _malformed(draft: AnswerBuilder, why: object, data: bytes) -> UnusableAnswerError:
    beginning = data[:LONGEST_ERROR].decode(errors="replace")
    return UnusableAnswerError(
        Failure.MALFORMED,
        f"gave an answer that is no {draft.protocol} ({why}): {beginning}",
    )


def _named(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


def host_of(url: str) -> str:
    """Return whose address this is, or nothing if it is none."""
    try:
        return httpx2.URL(url).host
    except httpx2.InvalidURL:
        return ""


def is_on_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    host = host_of(url)
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
