"""A journal that several machines open in turn: commands, folders and clocks of another one."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from orchestrator import Machine, MemoryJournal, Orchestrator, SessionOpenError, open_orchestrator
from orchestrator.agents import Agent, Budget, ScriptedModel, UserMessage
from orchestrator.delegation import DeliveryCapability, Ending, Reply, SessionId, Status
from orchestrator.delegation.events import (
    Entry,
    JournalOpened,
    ProcessEnded,
    ProcessUnreachable,
    TurnEnded,
    WorkspaceOpened,
)
from orchestrator.kernel.doors.inbound import InboundRequest
from orchestrator.kernel.doors.lifecycle import close_session, connect_door
from orchestrator.kernel.doors.request import RequestDoor
from orchestrator.kernel.execution.workspace.background_commands import LOST
from tests.kit import facts
from tests.orchestrator.commands_kit import (
    ManualModel,
    RefusedError,
    Talk,
    command_mail,
    command_mail_read,
    has_ended,
    is_alive,
    outside,
    pipe,
    shell_user,
    talking,
)

pytestmark = pytest.mark.realtime

A, B = "host-a", "host-b"


class SharedJournal(MemoryJournal):
    """A journal of several machines; the clock of this one may be behind that of the others."""

    spans_hosts = True

    def __init__(self, entries: Iterable[Entry] = (), *, ahead: float = 0.0) -> None:
        super().__init__(entries)
        self.clock_offset = ahead


@asynccontextmanager
async def on(
    host: str, journal: MemoryJournal, workspace: Path, session: str | None = None
) -> AsyncGenerator[Talk]:
    async with open_orchestrator(
        journal, machine=Machine(workspace=workspace, host=host)
    ) as orchestrator:
        async with talking(orchestrator, session=session) as talk:
            yield talk


@asynccontextmanager
async def left_on_host_a(
    tmp_path: Path, *, notify: bool
) -> AsyncGenerator[tuple[MemoryJournal, str, int]]:
    """Start a command on the first machine; give the journal as a crash leaves it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    journal = SharedJournal()
    with pipe(shared / "said") as said:
        async with on(A, journal, shared) as talk:
            manual = await talk.begin()
            await manual.start("echo $$ >said; exec sleep 1000", notify_on_complete=notify)
            pid = outside(int(await said.receive()), shared)
            await talk.end()
            yield SharedJournal(journal.entries), talk.session.id, pid


@pytest.fixture(autouse=True)
def one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of these tests share their files, unless a test says otherwise."""
    monkeypatch.setenv("ORCHESTRATOR_WORKSPACE_HOST", "nfs")


async def test_a_standby_on_another_host_never_reports_an_end(tmp_path: Path) -> None:
    async with left_on_host_a(tmp_path, notify=True) as (journal, id_, pid):
        async with on(B, journal, tmp_path, id_) as talk:
            heard = await talk.woken()
            session = talk.orchestrator.read.records.sessions[SessionId(id_)]
            assert is_alive(pid)
            assert not session.is_at_rest
            assert session.tree.nodes()[session.root.id].status == Ending.SUCCEEDED
        async with on(B, journal, tmp_path, id_) as talk:
            await talk.idle()

        assert "cannot be seen any more: it was started on host-a" in heard
        assert "not this machine (host-b)" in heard
        assert facts(journal.entries, ProcessEnded) == []
        [unreachable] = facts(journal.entries, ProcessUnreachable)
        assert unreachable.host == B
        assert [it.host for it in facts(journal.entries, JournalOpened)] == [A, B, B]

        async with on(A, journal, tmp_path, id_) as talk:
            assert has_ended(pid)
            heard = await talk.woken()
            await talk.idle()

        assert f"has ended: {LOST}" in heard
        assert [it.how for it in facts(journal.entries, ProcessEnded)] == [LOST]
        assert command_mail_read(journal.entries) == command_mail(journal.entries)
        assert len(command_mail(journal.entries)) == 2


async def test_the_process_tool_describes_a_command_on_another_host(tmp_path: Path) -> None:
    async with left_on_host_a(tmp_path, notify=False) as (journal, id_, pid):
        async with on(B, journal, tmp_path, id_) as talk:
            manual = await talk.begin()
            (known,) = (await manual.call("process", action="list"))["processes"]
            for action in ("poll", "wait", "kill"):
                with pytest.raises(RefusedError, match="started on host-a"):
                    await manual.look(action, known)
            own = await manual.start("sleep 1000")
            await manual.look("kill", own)
            await talk.end()

        assert known["status"] == "unknown"
        assert known["unknown"].startswith("it was started on host-a")
        assert "seconds" not in known
        assert is_alive(pid)


async def test_a_journal_of_one_machine_survives_a_new_host_name(tmp_path: Path) -> None:
    """A laptop has another name in another network."""
    async with left_on_host_a(tmp_path, notify=False) as (journal, _, pid):
        local = MemoryJournal(journal.entries)
        async with open_orchestrator(local, machine=Machine(workspace=tmp_path, environ={})):
            assert has_ended(pid)

        assert [it.how for it in facts(local.entries, ProcessEnded)] == [LOST]


async def test_a_deleted_session_waits_for_no_machine(tmp_path: Path) -> None:
    async with left_on_host_a(tmp_path, notify=False) as (journal, id_, _):
        async with on(B, journal, tmp_path, id_) as talk:
            record = talk.orchestrator.read.records.sessions[SessionId(id_)]
        async with open_orchestrator(
            journal, machine=Machine(workspace=tmp_path, host=B)
        ) as opened:
            record = opened.read.records.sessions[SessionId(id_)]
            await close_session(opened.sessions, record)
            assert not record.is_idle
            await close_session(opened.sessions, record, deleted=True)
            assert record.is_idle


class ReportedLater:
    """A machine that says that all is ended when a test says so."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}
        self.is_ended = trio.Event()

    async def ask(self, commands: Mapping[str, str]) -> None:
        await trio.lowlevel.checkpoint()
        self.asked |= commands

    async def wait_ended(self) -> list[str]:
        await self.is_ended.wait()
        return list(self.asked)

    async def forget(self, tags: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        for tag in tags:
            del self.asked[tag]

    @asynccontextmanager
    async def open(self) -> AsyncGenerator["ReportedLater"]:
        yield self


@asynccontextmanager
async def serving(
    journal: MemoryJournal, agent: Agent, workspace: Path, host: str
) -> AsyncGenerator[tuple[Orchestrator, RequestDoor]]:
    """Serve an agent on a machine, as a server does; cancel all of it at the end."""
    async with (
        open_orchestrator(journal, machine=Machine(workspace=workspace, host=host)) as opened,
        trio.open_nursery() as nursery,
    ):
        door = RequestDoor(opened.sessions, {agent.name: agent}, nursery)
        await door.resume_sessions()
        yield opened, door
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_session_of_a_server_is_notified_when_the_end_is_known(
    tmp_path: Path, is_restarted: bool
) -> None:
    """It had nothing left to do meanwhile, and its door must be open all the same."""
    journal = SharedJournal()
    manual = ManualModel()
    agent = shell_user(manual)
    request = InboundRequest(agent=agent, message=UserMessage("go"))
    async with serving(journal, agent, tmp_path, A) as (_, door):
        session = door.open_conversation(agent)
        door.receive(session, request)
        await manual.receive()
        await manual.start("sleep 1000", notify_on_complete=True)
        crashed = SharedJournal(journal.entries)

    reported = ReportedLater()
    crashed.open_left_commands = reported.open
    async with serving(crashed, agent, tmp_path, B) as (opened, door):
        await manual.receive()
        manual.end("interrupted")
        assert "cannot be seen" in await manual.receive()
        manual.end("noted")
        session = opened.read.records.sessions[session.id]
        with trio.fail_after(10):
            await door.wait_over(session)
        for reply in [*session.undelivered.values()]:
            door.take_reply(reply)
        # Whatever could close the door has had its turn.
        await trio.testing.wait_all_tasks_blocked(0.05)
        if not is_restarted:
            reported.is_ended.set()
            assert "has been ended" in await manual.receive()
    if is_restarted:
        async with serving(crashed, agent, tmp_path, B):
            await trio.testing.wait_all_tasks_blocked(0.05)
            reported.is_ended.set()
            assert "has been ended" in await manual.receive()


class TestFolders:
    @pytest.fixture(autouse=True)
    def own_folders(self, monkeypatch: pytest.MonkeyPatch, one_folder: None) -> None:
        monkeypatch.delenv("ORCHESTRATOR_WORKSPACE_HOST")

    async def test_a_session_does_not_go_on_in_a_folder_of_the_same_name_elsewhere(
        self, tmp_path: Path
    ) -> None:
        journal = SharedJournal()
        async with on(A, journal, tmp_path) as talk:
            manual = await talk.begin()
            await manual.run("echo here >file")
            await talk.end()
            id_ = talk.session.id

        with pytest.raises(SessionOpenError, match=r"is on host-a, and this machine is host-b"):
            async with on(B, journal, tmp_path, id_):
                pass
        async with on(A, journal, tmp_path, id_) as talk:
            manual = await talk.begin()
            await manual.run("cat file")
            await talk.end()

        [opened] = facts(journal.entries, WorkspaceOpened)
        assert (opened.host, opened.path) == (A, str(tmp_path))

    async def test_a_run_waits_for_its_own_machine(self, tmp_path: Path) -> None:
        """It stays interrupted, and loses nothing by being asked for elsewhere."""
        journal = SharedJournal()
        manual = ManualModel()
        async with open_orchestrator(
            journal, machine=Machine(workspace=tmp_path, host=A)
        ) as opened:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(opened.run, shell_user(manual), "go")
                await manual.receive()
                await manual.run("true")
                crashed = SharedJournal(journal.entries)
                manual.end()
        agent = shell_user(ScriptedModel(["done"]))
        run = opened.runs[0]

        async with open_orchestrator(
            crashed, machine=Machine(workspace=tmp_path, host=B)
        ) as opened:
            with pytest.raises(SessionOpenError, match="host-a"):
                await opened.resume(agent, run)
            tree = await opened.read_tree(run)
            assert tree.nodes()[opened.read.records.sessions[run].root.id].status == str(
                Status.INTERRUPTED
            )
        async with open_orchestrator(
            crashed, machine=Machine(workspace=tmp_path, host=A)
        ) as opened:
            assert (await opened.resume(agent, run)).output == "done"

    async def test_a_door_that_does_not_ask_gets_the_reason_as_the_outcome(
        self, tmp_path: Path
    ) -> None:
        journal = SharedJournal()
        async with on(A, journal, tmp_path) as talk:
            manual = await talk.begin()
            await manual.run("true")
            crashed = SharedJournal(journal.entries)

        door = ReplyDoor()
        async with open_orchestrator(
            crashed, machine=Machine(workspace=tmp_path, host=B)
        ) as opened:
            session = opened.read.records.sessions[SessionId(talk.session.id)]
            agent = shell_user(ScriptedModel(["done"]))
            connect_door(opened.sessions, session, agent, door)
            with trio.fail_after(10):
                await door.replied.wait()

        (reply,) = door.replies
        assert reply.outcome.ending is Ending.FAILED
        assert "its workspace is on host-a" in reply.outcome.error

    async def test_a_session_without_files_goes_on_anywhere(self, tmp_path: Path) -> None:
        journal = SharedJournal()
        agent = Agent("talker", model=ScriptedModel.always("yes"))
        async with asked(agent, journal, tmp_path, A) as (_, id_):
            pass
        async with asked(agent, journal, tmp_path, B, id_):
            pass

        assert facts(journal.entries, WorkspaceOpened) == []
        assert [it.outcome.ending for it in facts(journal.entries, TurnEnded)] == [
            Ending.SUCCEEDED,
            Ending.SUCCEEDED,
        ]

    async def test_a_journal_of_one_machine_names_no_folder(self, tmp_path: Path) -> None:
        """A file is written on its machine alone: the fact would cost, and say nothing."""
        journal = MemoryJournal()
        async with open_orchestrator(
            journal, machine=Machine(workspace=tmp_path, environ={})
        ) as opened:
            async with talking(opened) as talk:
                manual = await talk.begin()
                await manual.run("true")
                await talk.end()

        assert facts(journal.entries, WorkspaceOpened) == []


class ReplyDoor:
    """A door that looks at nothing, and keeps the replies."""

    capability = DeliveryCapability.PUSH

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.replied = trio.Event()

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self.replies.append(reply)
        self.replied.set()

    def disconnect(self) -> None:
        """Do nothing: no caller waits here."""


@asynccontextmanager
async def asked(
    agent: Agent, journal: MemoryJournal, workspace: Path, host: str, session: str | None = None
) -> AsyncGenerator[tuple[Orchestrator, str]]:
    """Ask an agent in a session, on a machine."""
    async with open_orchestrator(
        journal, machine=Machine(workspace=workspace, host=host)
    ) as opened:
        async with opened.open_session(agent, session=session) as talk:
            await talk.ask("go")
            yield opened, talk.id


class TestClocks:
    """Deadlines are absolute, and the machine that takes over may have another time."""

    async def test_no_fact_is_dated_before_the_last_one(self, tmp_path: Path) -> None:
        agent = Agent("talker", model=ScriptedModel.always("yes"))
        journal = SharedJournal()
        async with asked(agent, journal, tmp_path, A) as (_, id_):
            pass
        behind = SharedJournal(journal.entries, ahead=-3_600)
        async with asked(agent, behind, tmp_path, B, id_) as (opened, _):
            assert opened.now() >= behind.entries[-1].at

        times = [entry.at for entry in behind.entries]
        assert len(times) > len(journal.entries)
        assert times == sorted(times)
        assert times[-1] - times[0] < 60

    async def test_a_deadline_is_as_far_away_as_before(self, tmp_path: Path) -> None:
        """An hour more would be given away, or an hour less would end everything."""
        journal = SharedJournal()
        manual = ManualModel()
        agent = shell_user(manual, budget=Budget(seconds=60))
        async with open_orchestrator(
            journal, machine=Machine(workspace=tmp_path, host=A)
        ) as opened:
            async with opened.open_session(agent) as talk:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(talk.ask, "go")
                    await manual.receive()
                    crashed = journal.entries[:]
                    nursery.cancel_scope.cancel()

        for ahead in (-3_600.0, 0.0):
            behind = SharedJournal(crashed, ahead=ahead)
            async with open_orchestrator(
                behind, machine=Machine(workspace=tmp_path, host=B)
            ) as opened:
                session = opened.read.records.sessions[SessionId(talk.id)]
                (account,) = session.accounts
                assert account.deadline is not None
                assert 0 < account.deadline - opened.now() <= 60


def _shifted(now: Callable[[], float], ahead: float) -> float:
    return now() + ahead


@pytest.mark.parametrize("ahead", [-3_600, 3_600])
async def test_facts_in_a_database_have_its_time(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """A machine whose clock is an hour off gives no deadline away, and takes none."""
    journal = f"{postgres}&journal=shard-1"
    agent = Agent("talker", model=ScriptedModel.always("yes"))
    times: list[float] = []
    for off in (0.0, ahead, 0.0):
        with monkeypatch.context() as changed:
            changed.setattr(time, "time", partial(_shifted, time.time, off))
            async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as opened:
                run = await opened.run(agent, "go")
                entries = await opened._engine.book.read_entries(run.id)
                times += [entry.at for entry in entries if entry.session]

    assert times == sorted(times)
    assert times[-1] - times[0] < 60
    assert abs(times[-1] - time.time()) < 60


async def test_no_command_gets_the_address_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rights may hang on the user alone: then no password is in the address."""
    monkeypatch.setenv("ORCHESTRATOR_JOURNAL", "postgresql:///orchestrator?host=/run/pg")
    async with on(A, SharedJournal(), tmp_path) as talk:
        manual = await talk.begin()
        shown = await manual.run("env")
        await talk.end()

    assert "PATH=" in shown["output"]
    assert "ORCHESTRATOR_JOURNAL" not in shown["output"]
