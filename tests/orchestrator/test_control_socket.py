"""The control socket: what another process can see and do, and what it cannot do any harm with."""

import json
import os
import socket
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio

from orchestrator import Machine, Orchestrator, Run, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.agents.approval import allow, confirm
from orchestrator.agents.tools.terminal import terminal
from orchestrator.agents.tools.terminal.process_origin import Origin
from orchestrator.agents.tools.terminal.process_tags import new_tag, with_tag
from orchestrator.backends import store_at
from orchestrator.delegation import Ending
from orchestrator.kernel.control import server, wire
from orchestrator.kernel.control.client import ForeignSocketError, RefusedError, connect_control
from orchestrator.kernel.control.server import (
    MOST_OF_PROCESS,
    MOST_REQUESTS,
    NOT_ALLOWED,
    AnswerApproval,
    Cancel,
    DeleteRun,
    Prune,
    Steer,
    Subscribe,
    open_control,
)
from orchestrator.kernel.control.wire import LONGEST_LINE, LONGEST_PATH, socket_path
from tests.kit import hand_on

pytestmark = pytest.mark.realtime


@tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


def team() -> Agent[str]:
    """Return an agent with a child that needs approval and one that never ends."""
    slow = Agent("slow", model=ScriptedModel.always("late", 1_000))
    asking = Agent(
        "asking",
        model=ScriptedModel([ToolCall("deploy"), "deployed it"]),
        tools=[deploy],
        approve=[confirm("deploy")],
    )
    tasks = [{"goal": "a", "agent": "asking"}, {"goal": "b", "agent": "slow"}]
    call = ToolCall("delegate_task", {"tasks": tasks, "background": False})
    return Agent("boss", model=ScriptedModel([call, "done"]), delegates=[asking, slow])


class Running:
    """A run that can be talked to."""

    def __init__(self, orchestrator: Orchestrator, journal: Path, path: Path) -> None:
        self.orchestrator = orchestrator
        self.journal = journal
        self.path = path
        self.run: Run[str] | None = None
        self.has_ended = trio.Event()

    def task(self, agent: str) -> str:
        tree = self.orchestrator.tree(self.orchestrator.runs[-1])
        return next(task for task in tree if tree[task].agent == agent)

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        seen = 0
        with trio.fail_after(10):
            while not is_so():
                seen = await self.orchestrator.wait_changed(after=seen)

    async def begin(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        self.run = await self.orchestrator.run(team(), "go", attended=True)
        self.has_ended.set()


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[Running]:
    journal = folder / "journal.db"
    async with (
        open_orchestrator(journal) as orchestrator,
        open_control(orchestrator, journal) as path,
    ):
        assert path is not None
        it = Running(orchestrator, journal, path)
        async with trio.open_nursery() as nursery:

            async def begin(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                await it.begin(task_status)

            await nursery.start(begin)
            await it.wait_until(lambda: bool(orchestrator.approvals))
            yield it
            nursery.cancel_scope.cancel()


async def test_a_task_is_cancelled_and_another_approved(tmp_path: Path) -> None:
    async with running(tmp_path) as it, connect_control(it.journal) as client:
        assert client is not None
        (asked,) = it.orchestrator.approvals
        await client.request(AnswerApproval(asked.id, "once", "go on"))
        await client.request(Cancel(it.task("slow")))
        tree = it.orchestrator.tree(it.orchestrator.runs[-1])

        assert tree[tree.children(tree.root)[1]].status == Ending.CANCELLED
        await it.has_ended.wait()

    assert it.run is not None
    assert it.run.output == "done"


async def test_actions_of_a_local_user_are_audited(tmp_path: Path) -> None:
    async with running(tmp_path) as it, connect_control(it.journal) as client:
        assert client is not None
        (asked,) = it.orchestrator.approvals
        await client.request(AnswerApproval(asked.id, "once", "go on"))
        slow = it.task("slow")
        await client.request(Cancel(slow))
        await it.has_ended.wait()
        run = it.orchestrator.runs[-1]
        with pytest.raises(RefusedError):
            await client.request(Cancel("t_none"))
        assert (await client.request(DeleteRun(run)))["runs"] == 1
        assert (await client.request(Prune(0)))["runs"] == 0

    with store_at(it.journal).open_reader() as reader:
        events = [row.event for row in reader.audit().rows]
    assert [(it.action, it.target, it.outcome) for it in events] == [
        ("control.answer", asked.id, "accepted"),
        ("control.cancel", slow, "accepted"),
        ("control.cancel", "t_none", "accepted"),
        ("control.delete", run, "accepted"),
        ("control.cancel", "t_none", "UnknownIdError"),
    ]
    who = {(event.actor, event.peer) for event in events}
    assert who == {(f"uid:{os.getuid()}", f"pid {os.getpid()}")}


async def test_cancelling_a_session_ends_its_background_tasks(tmp_path: Path) -> None:
    slow = Agent("slow", model=ScriptedModel.always("late", 1_000))
    call = hand_on("wait", agent="slow", background=True)
    boss = Agent("boss", model=ScriptedModel([call, "begun"]), delegates=[slow])
    journal = tmp_path / "journal.db"
    async with (
        open_orchestrator(journal) as orchestrator,
        open_control(orchestrator, journal),
        orchestrator.open_session(boss) as session,
        connect_control(journal) as client,
    ):
        assert client is not None
        await session.ask("go")
        (task,) = session.tree.children(session.tree.root)
        await client.request(Cancel(session.id))

        assert session.tree[task].status == Ending.CANCELLED


ANSWER = """
import json, os, socket, sys
path, approval = sys.argv[1:3]
with socket.socket(socket.AF_UNIX) as there:
    if "by a child" in sys.argv:
        # The kernel has noted the child, which is gone.
        if not (child := os.fork()):
            there.connect(path)
            os._exit(0)
        os.waitpid(child, 0)
    else:
        there.connect(path)
    wish = {"id": 1, "do": "answer", "approval": approval, "answer": "session"}
    there.sendall(json.dumps(wish).encode() + b"\\n")
    with there.makefile() as lines:
        print([lines.readline() for _ in range(2)][1])
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("before", "arguments", "origin"),
    [
        ([], [], Origin.COMMAND),
        (["env", "-i"], [], Origin.COMMAND),
        (["setsid", "--wait", "env", "-i"], [], Origin.COMMAND),
        ([], ["by a child"], Origin.UNKNOWN),
    ],
)
async def test_a_command_of_an_agent_cannot_approve_its_calls(
    tmp_path: Path, before: list[str], arguments: list[str], origin: Origin
) -> None:
    """It belongs to the same user, too, and finds the socket."""
    async with running(tmp_path) as it:
        (asked,) = it.orchestrator.approvals
        done = await trio.run_process(
            [*before, sys.executable, "-c", ANSWER, it.path, asked.id, *arguments],
            capture_stdout=True,
            env=with_tag(os.environ, new_tag()),
        )

        assert json.loads(done.stdout)["error"] == NOT_ALLOWED[origin]
        assert it.orchestrator.approvals == [asked]
    with store_at(it.journal).open_reader() as reader:
        (refused,) = [row.event for row in reader.audit().rows]
    assert (refused.action, refused.outcome) == ("control.answer", "refused")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
async def test_an_orphan_of_a_command_still_counts_as_a_command(tmp_path: Path) -> None:
    """The supervisor of the command adopts it, even with a changed environment."""
    journal = tmp_path / "journal.db"
    (tmp_path / "orphan.py").write_text(ANSWER)
    command = (
        f"(env -i setsid {sys.executable} orphan.py {socket_path(journal)} a_1"
        " >said 2>&1 &); until [ -s said ]; do sleep 0.01; done; cat said"
    )
    call = ToolCall("terminal", {"command": command})
    model = ScriptedModel([call, lambda said: said[-1].text])
    agent = Agent("it", model=model, tools=[terminal], approve=[allow("terminal")])
    async with (
        open_orchestrator(
            journal, machine=Machine(workspace=tmp_path, sandbox="none")
        ) as orchestrator,
        open_control(orchestrator, journal),
    ):
        with trio.fail_after(20):
            run = await orchestrator.run(agent, "go")

    assert NOT_ALLOWED[Origin.COMMAND] in str(run.output)


@pytest.fixture
def tmp_path() -> Generator[Path]:
    """Return a folder with a short path: the path of a socket has at most 107 bytes."""
    with TemporaryDirectory(prefix="o-", dir="/tmp") as folder:
        yield Path(folder)


@asynccontextmanager
async def program(*arguments: str | Path) -> AsyncGenerator[trio.Process]:
    """Run a Python program, which does not outlive the test."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", *map(str, arguments)], stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()


CONNECT = """
import os, socket, sys
there = [socket.socket(socket.AF_UNIX) for _ in range(33)]
for one in there:
    one.connect(sys.argv[1])
os.write(1, b"connected")
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
async def test_silent_connections_of_a_command_lock_no_watcher_out(tmp_path: Path) -> None:
    async with running(tmp_path) as it, program(CONNECT, it.path) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        async with command.stdin, command.stdout:
            assert await command.stdout.receive_some() == b"connected"
            async with connect_control(it.journal) as client:
                assert client is not None
                await client.request(Cancel(it.task("slow")))
        await command.wait()


async def test_a_silent_client_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as it, connect_control(it.journal) as watching:
        assert watching is not None
        await watching.request(Subscribe())
        monkeypatch.setattr(server, "FIRST_SECONDS", 0.05)
        async with await trio.open_unix_socket(str(it.path)) as stream:
            await _lines(stream, 1)
            with trio.fail_after(10):
                assert await stream.receive_some() == b""

        # One that has subscribed may be silent.
        await watching.request(Cancel(it.task("slow")))


async def test_a_socket_in_a_shared_folder_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o700)
    async with running(folder) as it:
        monkeypatch.setattr(wire, "is_shared", tmp_path.__eq__)
        async with connect_control(it.journal) as ours:
            assert ours is not None
        folder.chmod(0o755)
        with pytest.raises(ForeignSocketError):
            async with connect_control(it.journal):
                pass
        folder.chmod(0o700)
        link = tmp_path / "other.db.sock"
        link.symlink_to(it.path)
        with pytest.raises(ForeignSocketError):
            async with connect_control(tmp_path / "other.db"):
                pass


LISTEN = """
import os, socket, sys
there = socket.socket(socket.AF_UNIX)
there.bind(sys.argv[1])
there.listen()
os.setuid(65534)
there.listen()  # the kernel notes who listens now
os.write(1, b"listening")
os.write(1, b"%d" % len(there.accept()[0].recv(100)))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
async def test_a_socket_of_another_user_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "journal.db.sock"
    async with program(LISTEN, path) as stranger:
        assert stranger.stdout is not None
        assert await stranger.stdout.receive_some() == b"listening"
        with pytest.raises(ForeignSocketError):
            async with connect_control(tmp_path / "journal.db"):
                pass
        assert await stranger.stdout.receive_some() == b"0"


async def test_a_task_can_be_steered_over_the_socket(tmp_path: Path) -> None:
    async with running(tmp_path) as it, connect_control(it.journal) as client:
        assert client is not None
        told = await client.request(Steer(it.task("asking"), "hurry"))
        (asked,) = it.orchestrator.approvals
        await client.request(AnswerApproval(asked.id, "deny"))
        await it.wait_until(lambda: len(it.orchestrator.calls(it.task("asking"))) == 0)

    assert told["state"] == "waiting"


async def test_two_watchers_are_notified_of_new_facts(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as it,
        connect_control(it.journal) as one,
        connect_control(it.journal) as two,
    ):
        assert one is not None
        assert two is not None
        with trio.fail_after(10):
            for client in (one, two):
                await client.request(Subscribe())
                assert await client.wait_grown(after=0)
            seen = max(one.seq, two.seq)
            await one.request(Cancel(it.task("slow")))
            assert await two.wait_grown(after=seen)
            with pytest.raises(RefusedError, match="subscribed already"):
                await one.request(Subscribe())


async def test_a_watcher_notices_that_the_process_has_left(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        watching = trio.Event()

        async def watch(path: Path) -> None:
            async with connect_control(path) as client:
                assert client is not None
                watching.set()
                assert not await client.wait_grown(after=10**9)
                with pytest.raises(RefusedError, match="has left"):
                    await client.request(Cancel("t_1"))

        async with running(tmp_path) as it:
            nursery.start_soon(watch, it.journal)
            await watching.wait()

    async with connect_control(it.journal) as client:
        assert client is None


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"\n", "truncated"),
        (b"hello\n", "malformed"),
        (b"\xff\xfe\x00\n", "malformed"),
        (b"[]\n", "object"),
        (b"{}\n", "say what to do: subscribe, cancel, pause, steer, answer"),
        (b'{"do": "explode"}\n', "say what to do"),
        (b'{"do": {"a": 1}}\n', "say what to do"),
        (b'{"do": "cancel"}\n', "missing required field `task`"),
        (b'{"do": "cancel", "task": 7}\n', "Expected `str`, got `int`"),
        (b'{"do": "cancel", "task": "t_none"}\n', "there is no task 't_none'"),
        (b'{"do": "cancel", "task": "../../etc"}\n', "there is no task"),
        (b'{"do": "steer", "task": "t_none", "text": "x"}\n', "there is no task"),
        (b'{"do": "answer", "approval": "a", "answer": "once"}\n', "no approval 'a'"),
        (b'{"do": "answer", "approval": "a", "answer": "maybe"}\n', "is not an answer"),
        (b'{"do": "subscribe", "after": "all"}\n', "Expected `int`"),
        (b'{"do":"steer","task":"' + b"x" * LONGEST_LINE + b'"}\n', "65536 bytes"),
        (b"[" * 60_000 + b"\n", ""),
        (b'{"do":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n", "recursion"),
        (b"\0" * 200_000 + b"\n", "65536 bytes"),
    ],
)
async def test_a_malformed_line_is_answered_and_ends_no_connection(
    tmp_path: Path, said: bytes, answer: str
) -> None:
    async with running(tmp_path) as it:
        stream = await trio.open_unix_socket(str(it.path))
        async with stream:
            await stream.send_all(said)
            first, error = await _lines(stream, 2)
            assert first["protocol"] == 1
            assert answer in error["error"]
            task = it.task("slow")
            line = json.dumps({"id": "x", "do": "cancel", "task": task})
            await stream.send_all(line.encode() + b"\n")
            (done,) = await _lines(stream, 1)
            assert done == {"id": "x", "ok": True}


async def test_too_many_requests_at_once_are_refused(tmp_path: Path) -> None:
    """A cancellation that takes its time does not let others pile up without end."""
    async with running(tmp_path) as it:
        stream = await trio.open_unix_socket(str(it.path))
        async with stream:
            line = b'{"do": "subscribe", "after": 1000000}\n'
            await stream.send_all(line * (MOST_REQUESTS + 1))
            lines = await _lines(stream, MOST_REQUESTS + 2)

    assert sum("error" in line for line in lines) >= MOST_REQUESTS - 1


async def test_the_connections_of_a_process_are_limited(tmp_path: Path) -> None:
    async with running(tmp_path) as it, trio.open_nursery() as nursery:
        streams = [await trio.open_unix_socket(str(it.path)) for _ in range(MOST_OF_PROCESS)]
        for stream in streams:
            await _lines(stream, 1)
        late = await trio.open_unix_socket(str(it.path))
        (refused,) = await _lines(late, 1)
        for stream in (*streams, late):
            nursery.start_soon(stream.aclose)

    assert refused == {"error": "too many are connected"}


async def test_a_request_of_a_disconnected_client_is_still_done(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        stream = await trio.open_unix_socket(str(it.path))
        line = json.dumps({"do": "cancel", "task": it.task("slow")}).encode()
        await stream.send_all(line + b'\n{"do": "steer"')
        await stream.aclose()
        tree = it.orchestrator.tree(it.orchestrator.runs[-1])
        slow = tree.children(tree.root)[1]

        await it.wait_until(lambda: tree[slow].status == Ending.CANCELLED)


async def test_only_the_owner_may_connect_and_the_socket_goes_with_the_run(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        assert it.path == tmp_path / "journal.db.sock"
        assert stat.S_IMODE(it.path.lstat().st_mode) == 0o600

    assert not it.path.exists()


async def test_the_socket_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "journal.db.sock"))
    left.close()

    async with connect_control(tmp_path / "journal.db") as nobody:
        assert nobody is None
    async with running(tmp_path) as it, connect_control(it.journal) as client:
        assert client is not None


async def test_a_foreign_file_in_place_of_the_socket_is_kept(tmp_path: Path) -> None:
    """A run does without a socket, and goes on."""
    journal, theirs = tmp_path / "journal.db", tmp_path / "journal.db.sock"
    theirs.write_text("mine")
    async with open_orchestrator(journal) as orchestrator:
        async with open_control(orchestrator, journal) as path:
            assert path is None

    assert theirs.read_text() == "mine"


async def test_a_long_path_has_its_socket_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place does not depend on TMPDIR: two processes must find it."""
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    journal = folder / "journal.db"
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    path = socket_path(journal)
    assert len(os.fsencode(path)) <= LONGEST_PATH
    link = tmp_path / "link.db"
    link.symlink_to(journal)
    assert socket_path(link) == path
    async with running(folder) as it, connect_control(it.journal) as client:
        assert client is not None
        assert it.path == path
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()


async def _lines(stream: trio.abc.ReceiveStream, count: int) -> list[dict[str, Any]]:
    data = b""
    with trio.fail_after(10):
        while data.count(b"\n") < count:
            chunk = await stream.receive_some()
            assert chunk, data
            data += chunk
    return [json.loads(line) for line in data.splitlines()]
