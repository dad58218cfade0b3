"""The audit of requests: each write is one row, in the commit of its facts, before its answer."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from orchestrator.ports import journals

if TYPE_CHECKING:
    from starlette.types import Scope

    from orchestrator.products.server.json_rpc import RpcMessage
    from orchestrator.products.server.keys.key import Key
    from orchestrator.products.server.keys.store import Access
    from orchestrator.products.server.operation import Operation

ADMISSION: Final = "request"
"""The action of a request that was refused before its route was known."""


class HttpAudit:
    """Records the requests of one server."""

    def __init__(self, writer: journals.AuditWriter, *, records_reads: bool = False) -> None:
        """Record in the journal of `writer`; reads only if `records_reads`."""
        self.writer = writer
        self.records_reads = records_reads
        self.refusals = journals.RefusalCounter(writer)

    @contextmanager
    def lifetime(self, address: str) -> Generator[None]:
        """Record the start and the stop of the server, and the remaining counts."""
        process = journals.AuditEvent(
            actor=journals.local_actor(os.getuid()),
            action="server.start",
            target=address,
            peer=f"pid {os.getpid()}",
        )
        self.writer.audit(process)
        try:
            yield
        finally:
            self.refusals.flush()
            # When the server ends in a hurry, the journal may already be closed.
            if not self.writer.closed:
                self.writer.audit(replace(process, action="server.stop"))

    def note_key(self, action: str, name: str) -> None:
        """Record a change of a key by the owner of this process."""
        if not self.writer.closed:
            self.writer.audit(key_change(action, name))

    def note_refusal(self, scope: "Scope", status: int) -> None:
        """Count a request that did not reach a route."""
        access: Access | None = scope["state"].get("access")
        key = None if access is None else access.key
        self.refusals.count(
            journals.AuditEvent(
                actor=journals.UNKNOWN if key is None else journals.key_actor(key.name),
                owner="" if key is None else key.owner,
                action=ADMISSION,
                outcome=str(status),
                peer=peer_of(scope),
            )
        )


def key_change(action: str, name: str) -> journals.AuditEvent:
    """Return the audit event for a key that was made, changed or revoked on this machine."""
    return journals.AuditEvent(actor=journals.local_actor(os.getuid()), action=action, target=name)


class RequestAudit:
    """The audit of one request."""

    def __init__(
        self, audit: HttpAudit | None, operation: "Operation", key: "Key | None", peer: str
    ) -> None:
        self._audit = audit
        """None if the server holds no journal to record it in."""
        self._key = key
        self._peer = peer
        self._action = operation.name
        self._is_write = operation.method != "GET"
        self.is_recorded = False

    def set_message(self, message: "RpcMessage") -> None:
        """Take the action of a request from its body, if its route does not tell it."""
        self._action = message.action
        self._is_write = message.is_write

    def set_journal(self, audit: HttpAudit) -> None:
        """Record it in the journal of the request's subject."""
        self._audit = audit

    def accept(self, target: str) -> None:
        """Record that the request is carried out, without a checkpoint beside its first fact."""
        assert self._audit is not None, "only a journal carries out a request"
        self.is_recorded = True
        self._audit.writer.audit(self._event(target))

    def note_answer(self, status: int, target: str) -> None:
        """Record or count the answer to a request, unless the request was recorded."""
        if self.is_recorded or self._audit is None:
            return
        if self._key is None and not (self._is_write and status >= 400):
            return  # public routes read; refused sign-ins are counted
        if self._audit.writer.closed:
            return  # another server took the journal meanwhile
        if status >= 400 or self._is_write:
            # Or a write without an effect, such as a repeated one.
            self._audit.refusals.count(self._event(target, outcome=str(status)))
        elif self._audit.records_reads:
            self._audit.writer.audit(self._event(target, outcome=str(status)))

    def note_sign_in(self, key: "Key", shown: str) -> None:
        """Record which person a provider has confirmed, by the name that people know."""
        self._key, self.is_recorded = key, True
        if self._audit is not None and not self._audit.writer.closed:
            outcome = journals.ACCEPTED if key.scopes else "403"
            self._audit.writer.audit(self._event(shown, outcome=outcome))

    def event_of_pruning(self) -> journals.AuditEvent:
        """Return the event of a journal that deletes sessions; the answer is not recorded, then."""
        self.is_recorded = True
        return self._event("")

    async def wait_recorded(self) -> None:
        """Wait until the record survives a crash."""
        assert self._audit is not None, "nothing was recorded"
        await self._audit.writer.wait_audited()

    def _event(self, target: str, *, outcome: str = journals.ACCEPTED) -> journals.AuditEvent:
        key = self._key
        return journals.AuditEvent(
            actor=journals.UNKNOWN if key is None else journals.key_actor(key.name),
            owner="" if key is None else key.owner,
            action=self._action,
            target=target,
            peer=self._peer,
            outcome=outcome,
        )


def peer_of(scope: "Scope") -> str:
    """Return the address that a request came from."""
    client = scope.get("client")
    return client[0] if client else ""
