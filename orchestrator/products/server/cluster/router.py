"""Finds the journal of a request on this server, or the server that writes it.

A request is forwarded at most once. While a journal has no writer, because it is handed over or its
writer has died, the request waits a little for the next one.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Protocol

import trio
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from orchestrator.delegation import SessionId
from orchestrator.ports.journals import Writer
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.cluster.forwarded_header import MOVED
from orchestrator.products.server.cluster.placement import Placement
from orchestrator.products.server.cluster.proxy import NotReachedError, Proxy
from orchestrator.products.server.request_subject import Subject, SubjectKind, subject_of
from orchestrator.products.server.served_journal import HeldJournals, ServedJournal
from orchestrator.products.server.transport.errors import SOON, HttpError, journal_moved
from orchestrator.products.server.transport.sse import wait_unless_disconnected

if TYPE_CHECKING:
    from orchestrator.products.server.cluster.other_processes import OtherProcesses

WAIT_SECONDS: Final = 5
"""The most seconds that a request waits for a journal to have a writer again."""


class Directory(Protocol):
    """Knows the place of every journal, including the journals of other processes."""

    async def locate(self, subject: Subject) -> str | None:
        """Return the name of the journal that has a session, a task or an approval."""
        ...

    async def owner(self, journal: str, subject: Subject) -> str | None:
        """Return the owner of the subject of a request; None if the journal does not have it."""
        ...

    async def writer(self, journal: str) -> Writer | None:
        """Return the process that writes a journal now."""
        ...

    async def take(self, journal: str) -> bool:
        """Take a journal that no process writes, if this server should do that now."""
        ...

    async def wait_changed(self) -> None:
        """Wait until another look may find a change."""
        ...


class ClusterRouter:
    """Finds the journals of requests, here or at other servers."""

    def __init__(
        self,
        journals: HeldJournals,
        directory: Directory,
        proxy: Proxy,
        placement: Placement | None = None,
        others: "OtherProcesses | None" = None,
    ) -> None:
        """Route requests to journals held here, or by `proxy`; `placement` has the homes of ids.

        `others` answers for processes that are no servers.
        """
        self._journals = journals
        self._directory = directory
        self._proxy = proxy
        self._placement = placement
        self._others = others

    async def home_of(self, call: ApiCall) -> ServedJournal | Response | None:
        """Return the journal of a request, or the answer of the server that has it."""
        subject = subject_of(call)
        if subject is None:
            if call.opens_session:
                return await self._home_of_new(call)
            return self._journals.first_or_none  # noqa: ASYNC910 (its caller has checkpointed)
        held = self._in_memory(subject)
        if held is not None:
            return held  # noqa: ASYNC910 (on the path of every request)
        name = await self._name_of(call, subject)
        if name is None:
            if call.opens_session:
                return await self._home_of_new(call)
            return self._journals.first_or_none
        return await self._reach(call, name, subject)

    def _in_memory(self, subject: Subject) -> ServedJournal | None:
        if subject.kind is SubjectKind.SESSION:
            return self._journals.of_session(SessionId(subject.id))
        for journal in self._journals:
            records = journal.read.records
            known = records.tasks if subject.kind is SubjectKind.TASK else records.open_questions
            if subject.id in known:
                return journal
        return None

    async def _name_of(self, call: ApiCall, subject: Subject) -> str | None:
        """Return the name of a request's journal that memory does not know."""
        home: str | None = None
        if self._placement is not None and subject.kind is SubjectKind.SESSION:
            home = self._placement.home_of(subject.id)
            if call.opens_session:
                await trio.lowlevel.checkpoint()
                return home  # an Idempotency-Key: the session is there, or will be
        return await self._directory.locate(subject) or home

    async def _home_of_new(self, call: ApiCall) -> ServedJournal | Response | None:
        placement = self._placement
        if placement is None:
            await trio.lowlevel.checkpoint()
            counted = call.server.home_of_key(call.key)
            if counted is None:
                return self._journals.first_or_none
            return await self._reach(call, counted)
        home = placement.home_of_key(call.key)
        if home is None:
            free = [it for it in self._journals if not it.is_moving]
            if free:
                await trio.lowlevel.checkpoint()
                # The journal with the fewest sessions in memory: shards fill evenly.
                journal = min(free, key=lambda it: len(it.read.records.sessions))
                call.ids.draw(placement, journal.name)
                return journal
            # This server is stopping, or has no shard yet: any shard of another server will do.
            home = placement.home_of(call.request.state.request_id)
        reached = await self._reach(call, home)
        if isinstance(reached, ServedJournal):
            call.ids.draw(placement, reached.name)
        return reached

    async def _reach(
        self, call: ApiCall, name: str, subject: Subject | None = None
    ) -> ServedJournal | Response | None:
        """Return a journal, or the answer of its writer; an unseen subject takes no journal."""
        until = trio.current_time() + WAIT_SECONDS
        is_checked = subject is None or call.key.is_admin
        while True:
            journal = self._journals.get(name)
            if journal is not None and not (journal.is_moving and call.opens_session):
                await trio.lowlevel.checkpoint()
                return journal
            if call.is_forwarded:
                raise journal_moved(MOVED)
            writer = await self._directory.writer(name)
            if not is_checked and (writer is None or not writer.address):
                # A server checks the owner itself; for other writers it is checked here.
                assert subject is not None
                owner = await self._directory.owner(name, subject)
                if owner is not None and not call.key.may_see(owner):
                    return self._journals.first_or_none
                is_checked = True
            answer = await self._ask_writer(call, name, writer, subject)
            if answer is not None:
                return answer
            left = until - trio.current_time()
            if left <= 0:
                raise journal_moved() if self._journals.has_lapsed(name) else no_writer(name)
            with trio.move_on_after(left):
                await self._directory.wait_changed()

    async def _ask_writer(
        self, call: ApiCall, name: str, writer: Writer | None, subject: Subject | None
    ) -> Response | None:
        """Return the answer of a journal's writer; None if there may be another writer soon."""
        await trio.lowlevel.checkpoint()
        if writer is None:
            await self._directory.take(name)
            return None
        if not writer.address:
            if subject is None:
                raise no_writer(name)  # that journal counts the limits of the key
            if self._others is None:
                raise written_elsewhere(writer)
            return await self._others.answer(call, name, subject)
        forwarded = self._proxy.forward(call, writer, journal=name)
        try:
            return await _unless_disconnected(call, forwarded)
        except NotReachedError:
            return None


async def _unless_disconnected(call: ApiCall, forwarded: Awaitable[Response]) -> Response:
    """Return an answer, unless the client disconnects before the answer begins."""
    answers: list[Response] = []

    async def wait() -> None:
        answers.append(await forwarded)

    if not await wait_unless_disconnected(call.request, wait):
        raise ClientDisconnect
    return answers[0]


def no_writer(journal: str) -> HttpError:
    """Return the error of a request to a journal that no server holds now."""
    return HttpError(
        503,
        f"no server holds {journal!r} now, but one takes it over soon: send the request again",
        code="no_writer",
        headers=SOON,
    )


def written_elsewhere(writer: Writer) -> HttpError:
    """Return the error of an action that the process of a run cannot receive."""
    return HttpError(
        409,
        f"process {writer.process} on {writer.host} writes this run and has no control socket for"
        " this action: wait until the process has ended, or act in its terminal",
        code="written_elsewhere",
    )
