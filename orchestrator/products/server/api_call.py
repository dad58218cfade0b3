"""One request to a route: its body and query, its key and journal, its audit."""

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.agents.redaction.long_texts import search_ahead
from orchestrator.agents.redaction.redactor import LONG_TEXT
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.ports.journals import AuditEvent
from orchestrator.ports.sessions import InboundRequest, search_request_ahead, texts_of
from orchestrator.products.server.audit import RequestAudit
from orchestrator.products.server.json_rpc import RpcMessage
from orchestrator.products.server.keys.key import DEFAULT, Key, Scope
from orchestrator.products.server.keys.store import Access
from orchestrator.products.server.operation import Operation
from orchestrator.products.server.request_ids import RequestIds
from orchestrator.products.server.request_state import RequestState
from orchestrator.products.server.transport.errors import JSON, HttpError
from orchestrator.products.server.transport.json_body import MOST_MESSAGES, decoded

if TYPE_CHECKING:
    from orchestrator.products.server.served_journal import ServedJournal, TrackedRequest
    from orchestrator.products.server.state import ServerState

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)


@cache
def _strict(kind: type[StructT]) -> type[StructT]:
    """Return the type of a body that refuses unknown parameters."""
    made = msgspec.defstruct(kind.__name__, [], bases=(kind,), forbid_unknown_fields=True)
    return cast("type[StructT]", made)


class ApiCall:
    """One request to a route."""

    def __init__(
        self, server: "ServerState", operation: Operation, request: Request, body: bytes
    ) -> None:
        state = request.scope["state"]
        self.server = server
        self.request = request
        self.raw = body
        self.operation = operation
        self.headers: Headers = state["headers"]
        self.access: Access = state.get("access")
        """The key of the request, while it is under way; a public route has none."""
        self._audit: RequestAudit = state["audit"]
        self.answer_headers: Mapping[str, str] = {}
        """Headers of any answer to the request."""
        self.message: RpcMessage | None = None
        """The message in the body, if the body is JSON-RPC."""
        self._home: ServedJournal | None = None
        self._tracked: TrackedRequest | None = None

    @cached_property
    def journal(self) -> "ServedJournal":
        """The journal of the request's subject; for a list, the server's first journal."""
        self._home = self.server.journals.first
        return self._home

    def set_message(self, message: RpcMessage) -> None:
        """Set the JSON-RPC message of the body."""
        self.message = message
        self._audit.set_message(message)

    @property
    def scope(self) -> Scope | None:
        """The scope that the key of the request must have."""
        return self.operation.scope if self.message is None else self.message.scope

    @property
    def opens_session(self) -> bool:
        """Whether the request opens a session."""
        if self.message is not None:
            return self.message.opens_session
        return self.operation.opens_session

    @property
    def is_stopping(self) -> bool:
        """Whether no run can begin in the journal of the request."""
        home = self._home
        return self.server.is_stopping if home is None else home.is_stopping

    @property
    def is_forwarded(self) -> bool:
        """Whether another server of ours has checked the request and forwarded it."""
        return bool(self.request.scope["state"].get("is_forwarded"))

    def set_journal(self, journal: "ServedJournal", tracked: "TrackedRequest") -> None:
        """Set the journal of the request's subject, which tracks the request."""
        self.journal = self._home = journal
        self._tracked = tracked
        self._audit.set_journal(journal.audit)
        state = self.request.scope["state"]
        state["shutdown"] = journal.shutdown
        state["journal"] = journal

    def note_run_awaited(self) -> None:
        """Note that the request waits for a run, which may last longer than an outage."""
        if self._tracked is not None:
            self._tracked.waits_for_run = True

    @cached_property
    def key(self) -> Key:
        """The key that makes the request."""
        return self.access.key

    @property
    def owner(self) -> str:
        """The owner of the sessions that the request opens, as facts record it."""
        return self.key.recorded_owner

    @cached_property
    def ids(self) -> RequestIds:
        """The ids of the sessions that the request opens."""
        return RequestIds(self.request, self.raw, self.operation, self.server.placement)

    def sees(self, session: SessionId) -> bool:
        """Return whether a session exists and the key of the request sees it."""
        return self.journal.owners.sees(self.key, session)

    @property
    def key_states(self) -> tuple[RequestState, ...]:
        """The state of a run that the request begins: the name of its key."""
        return (RequestState(key_name=self._key_name),)

    def request_state(self, *, opening: str = "") -> RequestState:
        """Return the state of the opened session; `opening` may begin its answer in JSON."""
        # Only a request with the same Idempotency-Key is compared with it.
        fingerprint = self.ids.fingerprint if self.ids.has_key else ""
        return RequestState(key_name=self._key_name, fingerprint=fingerprint, opening=opening)

    @property
    def _key_name(self) -> str:
        return "" if self.key.name == DEFAULT else self.key.name

    def begin_run(
        self, session: SessionRecord | None = None, *, runs: int = 1
    ) -> AbstractContextManager[None]:
        """Charge the runs that begin in the block, without a checkpoint, to the key, or refuse."""
        self._require_home()
        read = self.journal.read
        return self.server.quotas.begin_run(self.key, read, session, runs)

    def _require_home(self) -> None:
        """Refuse a session in a journal that does not count the limits of the key."""
        key = self.key
        home = self.server.home_of_key(key)
        if home not in {None, self.journal.name}:
            raise HttpError(
                409,
                f"{home} counts the limits of the key {key.name!r}, and this session is in"
                f" {self.journal.name}: go on with a key without limits, or begin another session"
                " with this key",
                code="key_of_another_shard",
            )

    async def take_request(self, request: InboundRequest) -> None:
        """Accept the texts of a request, including its files that are text."""
        if len(request.history) > MOST_MESSAGES:
            # It continues a response: the messages of one body are counted when it is decoded.
            raise HttpError(
                413,
                f"the conversation has {len(request.history):,} messages, and the limit is"
                f" {MOST_MESSAGES:,}; begin another conversation with a summary",
                code="too_many_messages",
            )
        limit = min(LONG_TEXT, self.server.settings.text_limit)
        if len(self.raw) <= limit and not request.history:
            return  # noqa: ASYNC910 (its texts are from this body, so they are short)
        self.server.require_short(texts_of(request))
        await search_request_ahead(self.journal.read.redactor, request)

    async def take_texts(self, texts: Iterable[str]) -> None:
        """Search texts for secrets beside the event loop; refuse texts that are too long."""
        taken = list(texts)
        self.server.require_short(taken)
        await search_ahead(self.journal.read.redactor, taken)

    def record(self, target: str) -> None:
        """Record that the request is carried out on `target`, in the commit of its first fact."""
        if self._tracked is not None:
            self._tracked.accepted = self.journal.read.last_seq + 1
        self._audit.accept(target)

    def note_sign_in(self, key: Key, shown: str) -> None:
        """Record which person a provider has confirmed."""
        self._audit.note_sign_in(key, shown)

    def event_of_pruning(self) -> AuditEvent:
        """Return the audit event of a journal that deletes sessions for the request."""
        return self._audit.event_of_pruning()

    async def body(self, kind: type[T]) -> T:
        """Decode the body."""
        try:
            return await decoded(self.raw, kind)  # noqa: ASYNC910 (the connection checkpoints)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise HttpError(
                400, f"the body is invalid: {exc}", code="invalid_body", param=_param_of(str(exc))
            ) from exc

    async def body_and_unknown(self, kind: type[StructT]) -> tuple[StructT, list[str]]:
        """Decode the body; also return its parameters that the type lacks and that are not null."""
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Mostly the type has all of them.
            return await decoded(self.raw, _strict(kind)), []  # noqa: ASYNC910 (as below)
        body = await self.body(kind)
        given = await self.body(dict[str, msgspec.Raw])
        fields = set(kind.__struct_encode_fields__)
        unknown = [
            name
            for name, value in given.items()
            if name not in fields and bytes(value).strip() != b"null"
        ]
        return body, unknown

    def query(self, kind: type[T]) -> T:
        """Decode the query."""
        params = self.request.query_params
        fields = {it.name for it in attrs.fields(cast("Any", kind))}
        for name in fields:
            if len(params.getlist(name)) > 1:
                raise _wrong_query(f"{name} occurs more than once", name)
        try:
            query = msgspec.convert(dict(params), kind, strict=False)
        except msgspec.ValidationError as exc:
            raise _wrong_query(str(exc), _param_of(str(exc))) from exc
        for name in fields & params.keys():
            # msgspec reads the word null as None, which is the default of a field.
            if getattr(query, name) is None:
                raise _wrong_query(f"{name} is null; leave it out instead", name)
        return query

    async def durable_response(self, body: Any, status: int = 200, **headers: str) -> Response:
        """Respond with a body when all facts that it may show are durable."""
        await self.journal.read.wait_durable()
        return json_response(body, status, **headers)

    def path(self, name: str) -> str:
        return cast("str", self.request.path_params[name])


def _param_of(error: str) -> str | None:
    """Return the field that an error of msgspec names, if any."""
    _, _, where = error.partition(" - at `$")
    missing = re.search(r"missing required field `(\w+)`", error)
    parts = [where.rstrip("`").lstrip("."), missing[1] if missing else ""]
    return ".".join(filter(None, parts)) or None


def _wrong_query(message: str, param: str | None = None) -> HttpError:
    return HttpError(400, f"the query is invalid: {message}", code="invalid_query", param=param)


def json_response(body: Any, status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(msgspec.json.encode(body), status, headers=named, media_type=JSON)
