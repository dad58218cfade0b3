"""The ASGI application of one route: it checks a request, handles it, and counts it."""

from abc import abstractmethod
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as RequestScope

from orchestrator.agents import DefinitionError
from orchestrator.delegation import DelegationError
from orchestrator.ports.errors import ClosedError, JournalError, OrchestratorError
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.audit import RequestAudit, peer_of
from orchestrator.products.server.cluster.forwarded_header import MOVED
from orchestrator.products.server.json_rpc import RpcMessage, error_response, read_message
from orchestrator.products.server.keys.key import DEFAULT, Key, Scope
from orchestrator.products.server.keys.store import Access
from orchestrator.products.server.metrics import Metrics
from orchestrator.products.server.operation import Operation
from orchestrator.products.server.served_journal import ServedJournal, TrackedRequest
from orchestrator.products.server.transport import errors
from orchestrator.products.server.transport.local_peer import require_person
from orchestrator.products.server.transport.request_body import read_body
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE, EventStream

if TYPE_CHECKING:
    from orchestrator.products.server.state import ServerState

MOVE_SECONDS: Final = 30
"""The most seconds that a request waits for a journal that is handed over, while its tasks end."""
UNKNOWN: Final = 404
"""The status of an answer about an unknown id."""


class OpenAnswer(Response):
    """An answer that holds a resource until it is sent; an unsent answer must be closed."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the resource."""


@attrs.frozen
class Endpoint:
    """The ASGI application of one route."""

    server: "ServerState"
    operation: Operation

    async def __call__(  # noqa: ASYNC910 (an answer is sent)
        self, scope: RequestScope, receive: Receive, send: Send
    ) -> None:
        server, operation = self.server, self.operation
        access: Access | None = scope["state"].get("access")
        audit = RequestAudit(
            server.audit, operation, None if access is None else access.key, peer_of(scope)
        )
        scope["state"]["audit"] = audit
        request = Request(scope, receive, send)
        answer = _Answer(request, audit, server.metrics, operation, send)
        failure: Exception | None = None
        try:
            with answer.tracked as tracked:
                server.metrics.begin_request()
                try:
                    response = await _handle(server, operation, request, tracked)
                finally:
                    server.metrics.end_request()
                is_stream = response.media_type == SSE_MEDIA_TYPE
                # A stream checks its key itself, as long as it lasts.
                if not (is_stream or access is None or access.is_valid() or operation.ends_sign_in):
                    response = await _withheld(response)
                await answer.send_response(response, receive, is_stream=is_stream)
            if not (answer.is_complete or answer.has_begun):
                # The journal was lost, or fell silent, under the request.
                error = answer.refusal or tracked.refusal or errors.journal_moved()
                await error.response()(scope, receive, answer.send)
        except trio.Cancelled:
            if not answer.has_begun:
                answer.begin(errors.CLIENT_CLOSED_REQUEST)
            raise
        except Exception as exc:  # noqa: BLE001 (it is raised below)
            failure = exc
        finally:
            if not answer.has_begun and failure is None:
                answer.begin(500)
        if failure is not None:
            if not answer.has_begun:
                await internal_error(request, failure).response()(scope, receive, answer.send)
            raise failure


class _WithheldError(Exception):
    """An answer is refused before it begins."""


class _Answer:
    """The answer to a request, which is checked and counted when it begins."""

    def __init__(
        self,
        request: Request,
        audit: RequestAudit,
        metrics: Metrics,
        operation: Operation,
        send: Send,
    ) -> None:
        self._request = request
        self._audit = audit
        self._metrics = metrics
        self._operation = operation
        self._send = send
        self._asked = trio.current_time()
        self.tracked = TrackedRequest()
        self.has_begun = False
        self.is_complete = False
        self.withheld: trio.CancelScope | None = None
        """Cancels an answer that is refused; without it, an error ends the answer."""
        self.refusal: errors.HttpError | None = None
        """The error that replaces it."""

    def begin(self, status: int) -> None:
        """Count the answer, which begins now, or never if its client has disconnected."""
        self.has_begun = True
        seconds = trio.current_time() - self._asked
        self._metrics.count_answer(self._operation, status, seconds)
        if not self._audit.is_recorded:
            subject = "/".join(self._request.scope["path_params"].values())
            self._audit.note_answer(status, subject)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begin(message["status"])
        await self._send(message)

    async def send_checked(self, message: Message) -> None:
        # The status is known only now: a stream may fail before it begins.
        if message["type"] == "http.response.start":
            # Not earlier: until the head is sent, a stream does not own its turn.
            await self._check(message["status"])
            await trio.lowlevel.checkpoint_if_cancelled()
            self.begin(message["status"])
        await self._send(message)

    async def send_response(  # noqa: ASYNC910 (a response is sent)
        self, response: Response, receive: Receive, *, is_stream: bool
    ) -> None:
        """Send the whole response, unless it is refused before it begins."""
        scope = self._request.scope
        if type(response) is Response or type(response) is EventStream:
            # They let an error pass, so they need no scope.
            ended: AbstractContextManager[object] = suppress(_WithheldError)
        else:
            ended = self.withheld = trio.CancelScope()
        self._metrics.streams += is_stream
        try:
            with ended:
                await response(scope, receive, self.send_checked)
                self.is_complete = True
        finally:
            self._metrics.streams -= is_stream

    async def _check(self, status: int) -> None:  # noqa: ASYNC910 (sending checkpoints)
        """Refuse the answer if its audit cannot be durable, or if its contents may be old.

        They are not if this server was the writer of the journal when it made the answer. An id
        that is unknown here may be known to another writer, so the database confirms that.
        """
        journal: ServedJournal | None = self._request.scope["state"].get("journal")
        try:
            if self._audit.is_recorded:
                await self._audit.wait_recorded()
            if journal is not None:
                await journal.require_current(asks=status == UNKNOWN)
                self.tracked.has_begun = True
        except OrchestratorError as exc:
            is_stopping = journal is not None and journal.is_stopping
            self.refusal = _http_error(exc, journal, is_stopping=is_stopping)
            if self.withheld is None:
                raise _WithheldError from exc
            self.withheld.cancel(reason="the answer is refused")


def _http_error(
    exc: Exception, journal: "ServedJournal | None", *, is_stopping: bool
) -> errors.HttpError:
    """Translate an error; a journal that this server lets go, or lost, goes on elsewhere."""
    if isinstance(exc, JournalError) and journal is not None and journal.is_moving:
        return errors.journal_moved()
    return errors.to_http_error(exc, is_stopping=is_stopping)


async def _handle(
    server: "ServerState", operation: Operation, request: Request, tracked: TrackedRequest
) -> Response:
    # The connection has waited for the request.
    await trio.lowlevel.checkpoint_if_cancelled()
    call: ApiCall | None = None
    try:
        if operation.scope is not None:
            await _require_scope(server, request.scope["state"]["access"].key, operation.scope)
        raw = await read_body(request, operation, server.settings.body_limit)
        call = ApiCall(server, operation, request, raw)
        if operation.is_json_rpc:
            await _read_message(call)
        if operation.takes_idempotency_key and call.ids.has_key:
            # A wrong Idempotency-Key is refused even if the route does not need it.
            call.ids.from_key("")
        if call.scope is Scope.APPROVE:
            await _require_person(call)
        return await _handle_at_home(call, tracked)
    except ClientDisconnect:
        return Response(status_code=errors.CLIENT_CLOSED_REQUEST)
    except trio.TooSlowError:
        return errors.journal_moved().response()
    except errors.HttpError as exc:
        return _refusal(call, exc)
    except (OrchestratorError, DelegationError, DefinitionError) as exc:
        is_stopping = server.is_stopping if call is None else call.is_stopping
        journal = request.scope["state"].get("journal")
        return _refusal(call, _http_error(exc, journal, is_stopping=is_stopping))


async def _read_message(call: ApiCall) -> None:
    """Read the subject of a JSON-RPC message, and refuse it if the key lacks its scope."""
    # An invalid message is refused in the protocol, too.
    call.set_message(RpcMessage())
    message = await read_message(call.raw)
    call.set_message(message)
    if message.scope is not None:
        await _require_scope(call.server, call.key, message.scope)


def _refusal(call: ApiCall | None, error: errors.HttpError) -> Response:
    """Return the response for an error, in the protocol of its request."""
    if call is None or call.message is None:
        return error.response()
    return error_response(call.message, error)


async def _handle_at_home(call: ApiCall, tracked: TrackedRequest) -> Response:
    """Handle a request in its journal, or at the next holder if the journal moves before."""
    while True:
        server = call.server
        find = server.home_of
        home = server.journals.first_or_none if find is None else await find(call)
        if isinstance(home, Response):
            return home  # noqa: ASYNC910 (another server has answered)
        if home is not None:
            tracked.begin(home)
            call.set_journal(home, tracked)
        try:
            response = await call.operation.handle(call)
        except ClosedError:
            # A stopping journal begins no run, so the request had no effect.
            if home is None or not home.is_moving or call.server.placement is None:
                raise
            if call.is_forwarded:
                return errors.journal_moved(MOVED).response()  # noqa: ASYNC910 (it is refused)
        else:
            if call.answer_headers:
                response.headers.update(call.answer_headers)
            return response
        tracked.end()
        with trio.fail_after(MOVE_SECONDS):
            await home.released.wait()


async def _withheld(answer: Response) -> Response:
    """Return the response that replaces an answer for a key that has ended."""
    await trio.lowlevel.checkpoint()
    if isinstance(answer, OpenAnswer):
        await answer.aclose()
    return errors.key_ended().response()


async def require_approver(call: ApiCall) -> None:
    """Refuse a verdict unless the key of the request may give it, and a person sends it."""
    await _require_scope(call.server, call.key, Scope.APPROVE)
    await _require_person(call)


async def _require_person(call: ApiCall) -> None:  # noqa: ASYNC910 (the connection checkpoints)
    if not call.is_forwarded:
        await require_person(call.request.scope)


async def _require_scope(server: "ServerState", key: Key, scope: Scope) -> None:
    """Refuse a request whose key lacks the scope."""
    if key.may(scope):
        return  # noqa: ASYNC910 (the connection checkpoints)
    hint = f"its scopes are {', '.join(sorted(key.scopes)) or 'none'}"
    if key.name == DEFAULT and key.is_admin and scope is Scope.APPROVE:
        if await server.may_approve(key):
            return
        hint = (
            "commands of agents can read its token here; add a key for people with"
            f" `orchestrator keys add NAME --scope {scope}`"
        )
    raise errors.HttpError(
        403,
        f"the key {key.name!r} does not have the scope {scope.value!r}: {hint}",
        code="missing_scope",
        param=scope,
    )


def internal_error(request: Request, exc: Exception) -> errors.HttpError:
    """Return the error for a bug, without its text, which is logged on stderr."""
    exc.add_note(f"in the request {request.state.request_id}")
    return errors.HttpError(
        500,
        f"{request.method} {request.url.path} failed because of a bug in the server"
        f" ({type(exc).__name__}); your request is not the cause, and was not repeated",
        code="internal",
    )
