"""A route as one value, and how its requests are handled."""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import attrs
import msgspec
import trio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as RequestScope

from orchestrator.agents import DefinitionError
from orchestrator.agents.redaction.long_texts import search_ahead
from orchestrator.delegation import DelegationError, SessionId, SessionRecord
from orchestrator.kernel.doors.inbound import InboundRequest, search_request_ahead, texts_of
from orchestrator.kernel.errors import ClosedError, OrchestratorError
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.products.server.audit import RequestAudit, peer_of
from orchestrator.products.server.cluster.forwarded_header import MOVED
from orchestrator.products.server.json_rpc import RpcMessage, error_response, read_message
from orchestrator.products.server.keys.key import DEFAULT, Key, Scope
from orchestrator.products.server.keys.store import Access
from orchestrator.products.server.most_pieces import MOST_MESSAGES
from orchestrator.products.server.quotas import KEY
from orchestrator.products.server.transport.errors import (
    JSON,
    HttpError,
    journal_moved,
    key_ended,
    to_http_error,
)
from orchestrator.products.server.transport.json_body import decoded
from orchestrator.products.server.transport.local_peer import require_person
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE

if TYPE_CHECKING:
    from orchestrator.products.server.cluster.placement import Placement
    from orchestrator.products.server.served_journal import ServedJournal
    from orchestrator.products.server.state import ServerState

T = TypeVar("T")
Method: TypeAlias = Literal["GET", "POST", "DELETE"]
Handler: TypeAlias = "Callable[[ApiCall], Awaitable[Response]]"
LONGEST_KEY: Final = 255
LONGEST_SORTED: Final = 1_000_000
"""Longer bodies are compared as they were sent: to sort their names takes long."""
CLIENT_CLOSED_REQUEST: Final = 499
"""The status of a request whose client disconnected before the response."""
MOVE_SECONDS: Final = 30
"""How long a request waits for a journal that is handed over, while what runs in it ends."""
BODY_SECONDS: Final = 30
"""How long a client may send nothing in the middle of its body."""
WHOLE_BODY_SECONDS: Final = 120
"""How long the whole body may take."""
UNREAD_BODY: Final = 65_536
"""How many bytes may come to a route that takes no body: some clients send an empty object."""
UNSUPPORTED: Final = msgspec.Meta(
    description="It cannot be had here.", extra_json_schema={"type": "null"}
)
"""Marks a field that is decoded only to be refused with an error of its own."""


def allow_only(*values: object) -> msgspec.Meta:
    """Mark a field of which all other values are refused."""
    return msgspec.Meta(extra_json_schema={"enum": [*values, None]})


@attrs.frozen(kw_only=True)
class ResponseSpec:
    """One possible response of a route."""

    description: str
    body: Any = None
    """The type of its JSON; None has no body."""
    others: tuple[Any, ...] = ()
    """The types that its JSON may have instead."""
    media_types: tuple[str, ...] = (JSON,)
    """The media types that it may have."""


@attrs.frozen(kw_only=True)
class Operation:
    """One method of one path. `app.py` has the table of all."""

    method: Method
    path: str
    handle: Handler
    summary: str
    scope: Scope | None
    """What the key of a request must have; None is nothing in particular."""
    responses: Mapping[int, ResponseSpec]
    body: Any = None
    """The type of the JSON that it takes."""
    query: type | None = None
    """The type of its query: an attrs class, all fields with defaults."""
    error_statuses: tuple[int, ...] = ()
    """The statuses of its own errors, in addition to those of `AccessCheck`."""
    takes_idempotency_key: bool = False
    takes_last_event_id: bool = False
    is_public: bool = False
    """It needs no key."""
    is_json_rpc: bool = False
    """Its body is a message of JSON-RPC, which says what it is about and which scope it needs."""
    companion: "Callable[[bytes], SessionId | None] | None" = None
    """Returns the session that a body names, whose journal has what the request opens, too."""

    @property
    def opens_session(self) -> bool:
        """Whether its requests open a session, with the id of their Idempotency-Key if any."""
        return self.takes_idempotency_key and "{" not in self.path

    @property
    def name(self) -> str:
        return getattr(self.handle, "__name__", "")

    @property
    def tag(self) -> str:
        """The group that the document lists it in."""
        parts = self.path.strip("/").split("/")
        return parts[1] if parts[0] == "v1" else "server"


def _param_of(error: str) -> str | None:
    """Return the field that an error of msgspec is about, if it names one."""
    _, _, where = error.partition(" - at `$")
    missing = re.search(r"missing required field `(\w+)`", error)
    parts = [where.rstrip("`").lstrip("."), missing[1] if missing else ""]
    return ".".join(filter(None, parts)) or None


class ApiCall:
    """One request to a route."""

    def __init__(
        self, server: "ServerState", operation: Operation, request: Request, body: bytes
    ) -> None:
        self.server = server
        self.request = request
        self.raw = body
        self.operation = operation
        self.answer_headers: Mapping[str, str] = {}
        """Headers of the answer, whatever it is."""
        self.message: RpcMessage | None = None
        """The message in the body, where that is JSON-RPC."""
        self._journal: ServedJournal | None = None
        self._drawn: SessionId | None = None

    @property
    def journal(self) -> "ServedJournal":
        """The journal that the request is about; of a list, the server's first one."""
        if self._journal is None:
            self._journal = self.server.journals.first
        return self._journal

    def set_message(self, message: RpcMessage) -> None:
        """Say which message of JSON-RPC the body is."""
        self.message = message
        self._audit.set_message(message)

    @property
    def scope(self) -> Scope | None:
        """What the key of the request must have."""
        return self.operation.scope if self.message is None else self.message.scope

    @property
    def opens_session(self) -> bool:
        """Whether the request opens a session."""
        if self.message is not None:
            return self.message.opens_session
        return self.operation.opens_session

    @property
    def headers(self) -> Headers:
        """The headers of the request."""
        return cast("Headers", self.request.scope["state"]["headers"])

    @property
    def is_stopping(self) -> bool:
        """Whether the journal of the request begins nothing new."""
        journal = self._journal
        return self.server.is_stopping if journal is None else journal.is_stopping

    @property
    def is_forwarded(self) -> bool:
        """Whether another server of ours has checked the request, and sent it on."""
        return bool(self.request.scope["state"].get("is_forwarded"))

    def set_journal(self, journal: "ServedJournal") -> None:
        """Say which journal the request is about."""
        self._journal = journal
        self._audit.set_journal(journal.audit)
        self.request.scope["state"].update(shutdown=journal.shutdown, journal=journal)

    @property
    def access(self) -> Access:
        """The key of the request, for as long as it is under way; no public route has one."""
        return cast("Access", self.request.state.access)

    @property
    def key(self) -> Key:
        """Who makes the request."""
        return self.access.key

    @property
    def owner(self) -> str:
        """The owner of what the request opens, as its fact says it."""
        return "" if self.key.owner == DEFAULT else self.key.owner

    def sees(self, session: SessionId) -> bool:
        """Return whether there is a session, and the key of the request sees it."""
        return self.journal.owners.sees(self.key, session)

    @property
    def labels(self) -> Mapping[str, str]:
        """The label of what the request opens: by its key, unless that is the default one."""
        return {} if self.key.name == DEFAULT else {KEY: self.key.name}

    def begin_run(
        self, session: SessionRecord | None = None, *, runs: int = 1
    ) -> AbstractContextManager[None]:
        """Charge what is begun in the block to the key of the request, or refuse it.

        No checkpoint may be in the block.

        Args:
            session: the conversation that goes on; None begins new runs.
            runs: how many are begun.
        """
        self._require_home()
        read = self.journal.read
        return self.server.quotas.begin_run(self.key, read, session, runs)

    def _require_home(self) -> None:
        """Refuse what the limits of the key could not be held to."""
        key = self.key
        home = self.server.home_of_key(key)
        if home not in {None, self.journal.name}:
            raise HttpError(
                409,
                f"the key {key.name!r} has limits, which are counted in {home}, and this session"
                f" is in {self.journal.name}: go on with a key without limits, or begin another"
                " session with this one",
                code="key_of_another_shard",
            )

    async def take_request(self, request: InboundRequest) -> None:
        """Take the texts of a request, and the files with it that are texts."""
        if len(request.history) > MOST_MESSAGES:
            # It continues a response: what one body has is counted where it is decoded.
            raise HttpError(
                413,
                f"the conversation has {len(request.history):,} messages, and the limit is"
                f" {MOST_MESSAGES:,}; begin another one, with a summary",
                code="too_many_messages",
            )
        self.server.require_short(texts_of(request))
        await search_request_ahead(self.journal.read.redactor, request)

    async def take_texts(self, texts: Iterable[str]) -> None:
        """Search texts for secrets beside the event loop, unless one is too long.

        When they are posted, no other client waits for that.
        """
        taken = list(texts)
        self.server.require_short(taken)
        await search_ahead(self.journal.read.redactor, taken)

    def record(self, target: str) -> None:
        """Record in the audit that the request is carried out.

        Call it without a checkpoint after its first fact is posted, so that both are in one
        commit; or before that.

        Args:
            target: the id of what it is about.
        """
        self._audit.accept(target)

    def event_of_pruning(self) -> AuditEvent:
        """Return what a journal records of the request with the sessions that it deletes."""
        return self._audit.event_of_pruning()

    @property
    def _audit(self) -> RequestAudit:
        return cast("RequestAudit", self.request.state.audit)

    async def body(self, kind: type[T]) -> T:
        """Return the body, decoded."""
        try:
            return await decoded(self.raw, kind)  # noqa: ASYNC910 (`_handle` checkpoints)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise HttpError(
                400, f"the body is wrong: {exc}", code="invalid_body", param=_param_of(str(exc))
            ) from exc

    async def unknown_parameters(self, kind: type[msgspec.Struct]) -> list[str]:
        """Return the parameters of the body that its type does not have, and that are not null."""
        given = await self.body(dict[str, msgspec.Raw])
        fields = set(kind.__struct_encode_fields__)
        return [
            name
            for name, value in given.items()
            if name not in fields and bytes(value).strip() != b"null"
        ]

    def query(self, kind: type[T]) -> T:
        """Return the query, decoded."""
        params = self.request.query_params
        fields = {it.name for it in attrs.fields(cast("Any", kind))}
        for name in fields:
            if len(params.getlist(name)) > 1:
                raise _wrong_query(f"{name} is there more than once", name)
        try:
            query = msgspec.convert(dict(params), kind, strict=False)
        except msgspec.ValidationError as exc:
            raise _wrong_query(str(exc), _param_of(str(exc))) from exc
        for name in fields & params.keys():
            # msgspec reads the word null as None, which is how a field is left out.
            if getattr(query, name) is None:
                raise _wrong_query(f"{name} is null; leave it out instead", name)
        return query

    def path(self, name: str) -> str:
        return cast("str", self.request.path_params[name])

    def id_from_key(self, prefix: str) -> str | None:
        """Return the id that an Idempotency-Key stands for: the same for the same key.

        A request that is sent again finds what the first one made, also after a restart. Each owner
        has keys of its own.
        """
        return self._id_from_key(prefix)

    def _id_from_key(self, prefix: str, number: int = 0, attempt: int = 0) -> str | None:
        key = self.headers.get("idempotency-key")
        if key is None:
            return None
        if not key or len(key) > LONGEST_KEY:
            raise HttpError(
                400,
                f"an Idempotency-Key has 1 to {LONGEST_KEY} characters",
                code="invalid_idempotency_key",
            )
        scoped = f"{self.operation.path}\n{self.request.url.path}\n{key}"
        if self.owner:
            # No owner begins with a slash, as paths do: two owners never mean the same.
            scoped = f"{self.owner}\n{scoped}"
        if attempt:
            scoped = f"again {attempt}\n{scoped}"
        if number:
            scoped = f"{number}\n{scoped}"
        return f"{prefix}{hashlib.sha256(scoped.encode()).hexdigest()[:16]}"

    def new_session_id(self, attempt: int = 0) -> SessionId | None:
        """Return the id of the session that the request opens; None if any will do.

        Args:
            attempt: how many sessions of the same key have come to nothing.
        """
        if (id_ := self.session_id_from_key(attempt) or self._drawn) is not None:
            return id_
        return None if self.companion is None else self.further_session_id()

    def session_id_from_key(self, attempt: int = 0) -> SessionId | None:
        """Return the id that the Idempotency-Key of the request stands for."""
        id_ = self.id_from_key("r_")
        if id_ is None:
            return None
        placement = self.server.placement
        if placement is None:
            return SessionId(self._id_from_key("r_", attempt=attempt) or "")
        home = placement.home_of_key(self.key)
        if self.companion is not None:
            home = placement.home_of(self.companion)
        if home is not None or attempt:
            # All attempts are in one journal.
            home = home or placement.home_of(id_)
            id_ = placement.fit(lambda it: self._id_from_key("r_", it, attempt) or "", home)
        return SessionId(id_)

    def session_id_beside(self) -> SessionId | None:
        """Return the id of a session that the request opens in the journal of what it is about.

        None if any will do.
        """
        placement = self.server.placement
        if placement is None:
            id_ = self.id_from_key("r_")
            return None if id_ is None else SessionId(id_)
        if not self.has_idempotency_key:
            return placement.draw(self.journal.name)
        home = self.journal.name
        return SessionId(placement.fit(lambda it: self._id_from_key("r_", it) or "", home))

    @cached_property
    def companion(self) -> SessionId | None:
        """The session that the body names, and whose journal has what the request opens, too."""
        find = self.operation.companion
        return None if find is None else find(self.raw)

    def further_session_id(self) -> SessionId | None:
        """Return the id of another session that the request opens; None if any will do."""
        placement = self.server.placement
        return None if placement is None else placement.draw(self.journal.name)

    def draw_session_id(self, placement: "Placement", home: str) -> None:
        """Choose an id for the session that the request opens, whose home is this shard."""
        self._drawn = placement.draw(home)

    @property
    def has_idempotency_key(self) -> bool:
        return "idempotency-key" in self.headers

    @property
    def fingerprint(self) -> str:
        """A digest of the body: whether a key was sent with the same one before.

        The order of names and the blanks between them do not matter.
        """
        raw = self.raw
        if self.has_idempotency_key and len(raw) <= LONGEST_SORTED:
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raw = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
        return hashlib.sha256(raw).hexdigest()[:32]


def _wrong_query(message: str, param: str | None = None) -> HttpError:
    return HttpError(400, f"the query is wrong: {message}", code="invalid_query", param=param)


def json_response(body: Any, status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(msgspec.json.encode(body), status, headers=named, media_type=JSON)


class OpenAnswer(Response):
    """An answer that holds something until it is sent; one that is not sent has to be closed."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of what it holds."""


@attrs.frozen
class Endpoint:
    """The ASGI application of one route."""

    server: "ServerState"
    operation: Operation

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        metrics = self.server.metrics
        begun = trio.current_time()
        status: int | None = None
        access: Access | None = scope["state"].get("access")
        audit = RequestAudit(
            self.server.audit,
            self.operation,
            None if access is None else access.key,
            peer_of(scope),
        )
        scope["state"]["audit"] = audit

        def count(sent: int) -> None:
            nonlocal status
            status = sent
            metrics.count_answer(self.operation, sent, trio.current_time() - begun)
            audit.note_answer(sent, "/".join(scope["path_params"].values()))

        async def send_counted(message: Message) -> None:
            # Known only when it is sent: a stream may fail before it begins.
            if message["type"] == "http.response.start":
                count(message["status"])
                if audit.is_recorded:
                    # Here, and not before: until it is sent, a stream does not own its turn.
                    await audit.wait_recorded()
            await send(message)

        is_answered = False
        try:
            with ExitStack() as tracked:
                with metrics.track_request():
                    request = Request(scope, receive, send)
                    response = await _handle(self.server, self.operation, request, tracked)
                is_stream = response.media_type == SSE_MEDIA_TYPE
                # A stream looks by itself, for as long as it lasts.
                if not is_stream and not _is_allowed_still(self.operation, request):
                    response = await _withheld(response)
                with metrics.track_stream() if is_stream else nullcontext():
                    await response(scope, receive, send_counted)
                is_answered = True
            if status is None and not is_answered:
                # The journal has ended under the request.
                await journal_moved().response()(scope, receive, send_counted)
        except trio.Cancelled:
            if status is None:
                count(CLIENT_CLOSED_REQUEST)
            raise
        finally:
            if status is None:
                count(500)


async def _handle(
    server: "ServerState", operation: Operation, request: Request, tracked: ExitStack
) -> Response:
    await trio.lowlevel.checkpoint()
    call: ApiCall | None = None
    try:
        if operation.scope is not None:
            await _require_scope(server, request.state.access.key, operation.scope)
        limit, refused = _body_limit(operation, server.settings.body_limit)
        raw = await _read(request, limit, refused)
        call = ApiCall(server, operation, request, raw)
        if operation.is_json_rpc:
            await _read_message(call)
        if operation.takes_idempotency_key:
            # A wrong key is refused also where the route does not need it.
            call.id_from_key("")
        if call.scope is Scope.APPROVE and not call.is_forwarded:
            await require_person(request.scope)
        return await _handle_at_home(call, tracked)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except trio.TooSlowError:
        return journal_moved().response()
    except HttpError as exc:
        return _refusal(call, exc)
    except (OrchestratorError, DelegationError, DefinitionError) as exc:
        is_stopping = server.is_stopping if call is None else call.is_stopping
        return _refusal(call, to_http_error(exc, is_stopping=is_stopping))


async def _read_message(call: ApiCall) -> None:
    """Read what a message of JSON-RPC is about, and refuse it if the key is not for that."""
    # What is no message is refused in the words of the protocol, too.
    call.set_message(RpcMessage())
    message = await read_message(call.raw)
    call.set_message(message)
    if message.scope is not None:
        await _require_scope(call.server, call.key, message.scope)


def _refusal(call: ApiCall | None, error: HttpError) -> Response:
    """Return the response of an error, in the words of the protocol of its request."""
    if call is None or call.message is None:
        return error.response()
    return error_response(call.message, error)


async def _handle_at_home(call: ApiCall, tracked: ExitStack) -> Response:
    """Handle a request where its journal is.

    If that moves before anything is done, it is handled where it is then.
    """
    while True:
        home = await call.server.home_of(call)
        if isinstance(home, Response):
            return home
        if home is not None:
            call.set_journal(home)
            tracked.enter_context(home.track_request())
        try:
            response = await call.operation.handle(call)
        except ClosedError:
            # What stops begins nothing, so nothing was done.
            if home is None or not home.is_moving or call.server.placement is None:
                raise
            if call.is_forwarded:
                return journal_moved(MOVED).response()
        else:
            if call.answer_headers:
                response.headers.update(call.answer_headers)
            return response
        tracked.close()
        with trio.fail_after(MOVE_SECONDS):
            await home.released.wait()


def _is_allowed_still(operation: Operation, request: Request) -> bool:
    """Return whether an answer that may have taken long is still for the key of its request."""
    return operation.is_public or request.state.access.is_valid()


async def _withheld(answer: Response) -> Response:
    """Return what is sent instead of an answer for a key that has ended."""
    await trio.lowlevel.checkpoint()
    if isinstance(answer, OpenAnswer):
        await answer.aclose()
    return key_ended().response()


async def _require_scope(server: "ServerState", key: Key, scope: Scope) -> None:
    """Refuse a request whose key is not for this."""
    if key.may(scope):
        return  # noqa: ASYNC910 (`_handle` checkpoints)
    hint = f"its scopes are {', '.join(sorted(key.scopes)) or 'none'}"
    if key.name == DEFAULT and key.is_admin and scope is Scope.APPROVE:
        if await server.may_default_approve():
            return
        hint = (
            "commands of agents can read its token here; make a key for people with"
            f" `orchestrator keys add NAME --scope {scope}`"
        )
    raise HttpError(
        403,
        f"the key {key.name!r} does not have the scope {scope.value!r}: {hint}",
        type="permission_error",
        code="missing_scope",
        param=scope,
    )


def _body_limit(operation: Operation, limit: int) -> tuple[int, Callable[[int], HttpError]]:
    """Return how many bytes an operation takes, and by which error it refuses more."""
    if operation.body is None and limit > UNREAD_BODY:
        return UNREAD_BODY, _takes_no_body
    if operation.is_public:
        # Without a key no one fills the memory.
        return min(limit, UNREAD_BODY), _too_large_for_all
    return limit, too_large


async def _read(request: Request, limit: int, refused: Callable[[int], HttpError]) -> bytes:
    """Return the body, unless it is too large or stops coming."""
    pieces: list[bytes] = []
    length, begun = 0, trio.current_time()
    with trio.CancelScope(deadline=begun + BODY_SECONDS) as timeout:
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            length += len(pieces[-1])
            if length > limit:
                raise refused(limit)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            now = trio.current_time()
            timeout.deadline = min(begun + WHOLE_BODY_SECONDS, now + BODY_SECONDS)
    raise HttpError(
        408,
        f"nothing came for {BODY_SECONDS} s, or the body took more than"
        f" {WHOLE_BODY_SECONDS} s, and it is not complete",
        code="body_too_slow",
        headers={"connection": "close"},
    )


def _takes_no_body(limit: int) -> HttpError:
    del limit
    return HttpError(413, "this route takes no body; send none", code="body_too_large")


def _too_large_for_all(limit: int) -> HttpError:
    return HttpError(413, f"this route takes {limit:,} bytes at most", code="body_too_large")


def too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"the body has more than {limit:,} bytes, which is the limit; send less, or start the"
        " server with a larger --body-limit",
        code="body_too_large",
    )
