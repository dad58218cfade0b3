"""A session gets a notice of its commands once, in a turn of its own, if its door can deliver."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import Machine, MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, Transcript
from orchestrator.agents.tools.terminal.tools import SHOWN
from orchestrator.delegation import SessionId, root_of
from orchestrator.delegation.events import (
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    TaskSettled,
    ToolAnswered,
    TurnStarted,
)
from orchestrator.products.history.replay.run import replay
from tests.kit import facts, hand_on, worker
from tests.orchestrator.commands_kit import (
    ManualModel,
    Pipe,
    RefusedError,
    Talk,
    background,
    children,
    command_mail,
    command_mail_read,
    has_ended,
    in_a_run,
    in_a_session,
    is_alive,
    let_pass,
    outside,
    patiently,
    pipe,
    shell_user,
    talking,
)
from tests.orchestrator.test_replay import muted

pytestmark = pytest.mark.realtime


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that the test leaves no process and no zombie."""
    had = children()
    yield
    assert children() <= had


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """The real time, and a way to let much of it pass at once."""
    return trio.testing.MockClock(rate=1)


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Pipe]:
    """Commands wait for it with `read _ <gate`."""
    with pipe(tmp_path / "gate") as opened:
        yield opened


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Pipe]:
    """Commands speak to the test with `echo ... >said`."""
    with pipe(tmp_path / "said") as opened:
        yield opened


def turns(journal: MemoryJournal) -> int:
    return len(facts(journal.entries, TurnStarted))


def told_once(journal: MemoryJournal) -> bool:
    """Tell whether all that commands did was read, and nothing of it twice."""
    return sorted(command_mail_read(journal.entries)) == command_mail(journal.entries) != []


class TestTheEnd:
    async def test_the_end_of_a_command_is_reported_once_in_its_own_turn(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start(
                "read _ <gate; echo built; exit 3", notify_on_complete=True
            )
            manual.end()
            gate.send()
            heard = await talk.woken()
            await talk.idle()

        assert started["notify_on_complete"] is True
        assert "turn of its own" in started["note"]
        assert "hint" not in started
        assert "notify_unsupported" not in started
        assert heard == (
            f"A command that runs in the background has ended: exit code 3 ({started['id']}).\n"
            "Command: read _ <gate; echo built; exit 3\n"
            "The end of its output:\nbuilt\n"
        )
        assert told_once(journal)
        assert turns(journal) == 2

    async def test_a_process_notice_does_not_disturb_the_running_turn(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            await manual.start("true", notify_on_complete=True)
            await talk.command.finished.wait()
            assert facts(journal.entries, ProcessEnded)
            assert (await manual.run("echo meanwhile"))["output"] == "meanwhile\n"
            manual.end()

            assert "has ended: exit code 0" in await talk.woken()
            await talk.idle()

        assert told_once(journal)
        assert turns(journal) == 2

    async def test_a_command_without_notify_sends_no_notice(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            await manual.start("true")
            manual.end()
            await talk.command.finished.wait()
            await talk.idle()

        assert [it.notify for it in facts(journal.entries, ProcessStarted)] == [False]
        assert command_mail(journal.entries) == []
        assert turns(journal) == 1

    async def test_a_notice_holds_only_the_end_of_long_output(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            await manual.start("seq 100000; echo end", notify_on_complete=True)
            manual.end()
            heard = await talk.woken()

        (ended,) = facts(journal.entries, ProcessEnded)
        assert 1_900 < len(ended.output) <= 2_000
        assert heard.endswith(f"The end of its output:\n{ended.output}")
        assert ended.output.endswith("99999\n100000\nend\n")

    async def test_poll_leaves_the_news_to_come(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("echo done", notify_on_complete=True)
            await talk.command.finished.wait()
            polled = await manual.look("poll", started)
            await manual.call("process", action="list")
            manual.end()

            assert polled["ended"] == "exit code 0"
            assert "has ended: exit code 0" in await talk.woken()
            await talk.idle()

        assert told_once(journal)
        assert turns(journal) == 2

    @pytest.mark.parametrize("action", ["wait", "log", "kill"])
    @pytest.mark.parametrize("has_ended_before", [True, False])
    async def test_a_read_ending_sends_no_notice(
        self,
        tmp_path: Path,
        gate: Pipe,
        journal: MemoryJournal,
        action: str,
        has_ended_before: bool,
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate", notify_on_complete=True)
            if action != "kill" or has_ended_before:
                gate.send()
            if has_ended_before:
                await talk.command.finished.wait()
            seen = await manual.look(action, started)
            if action == "log" and not seen.get("ended"):
                await talk.command.finished.wait()
                seen = await manual.look(action, started)
            manual.end()
            await talk.idle()

        assert seen["status"] == "ended"
        assert told_once(journal)
        assert turns(journal) == 1

    async def test_three_concurrent_reads_of_an_ending_count_as_one(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("true", notify_on_complete=True)
            await manual.call_all(
                *(
                    ToolCall("process", {"action": action, "id": started["id"]})
                    for action in ("wait", "kill", "wait")
                )
            )
            manual.end()
            await talk.idle()

        assert told_once(journal)
        assert turns(journal) == 1

    async def test_reading_partial_output_does_not_replace_the_final_notice(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal, clock: trio.testing.MockClock
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate", notify_on_complete=True)
            assert (await manual.look("log", started))["status"] == "running"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(manual.look, "wait", started, timeout=50))
                await let_pass(clock, 50)
            manual.end()
            gate.send()

            assert "has ended: exit code 0" in await talk.woken()
            await talk.idle()

        assert told_once(journal)

    async def test_a_command_that_cannot_start_is_reported_by_the_call_alone(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            with pytest.raises(RefusedError, match="was not started"):
                await manual.start("echo \0", notify_on_complete=True)
            (listed,) = (await manual.call("process", action="list"))["processes"]
            manual.end()
            await talk.idle()

        assert listed["ended"].startswith("it could not be run: the command was not")
        assert told_once(journal)
        assert turns(journal) == 1

    async def test_a_session_is_idle_after_all_its_notices(
        self, tmp_path: Path, gate: Pipe
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            await manual.start("read _ <gate", notify_on_complete=True)
            manual.end()
            is_idle = trio.Event()

            async def wait_idle() -> None:
                await talk.session.wait_idle()
                is_idle.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_idle)
                await trio.testing.wait_all_tasks_blocked()
                tree = talk.session.tree
                assert not is_idle.is_set()
                assert tree[tree.root].status == "waiting"
                gate.send()
                await talk.woken()
            assert tree[tree.root].status == "succeeded"

    async def test_a_notice_holds_no_part_of_a_secret(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        """Redaction comes before the cut."""
        secret = "7h15-15-50-53cr37"
        filling = "x" * (SHOWN - len("key=") - 5)
        (tmp_path / "file").write_text(f"{filling}key={secret}{2 * SHOWN * 'y'}")
        async with in_a_session(
            tmp_path, journal, environ={"PATH": "/bin:/usr/bin", "API_KEY": secret}
        ) as talk:
            manual = await talk.begin()
            started = await manual.start("cat file")
            await talk.command.finished.wait()
            log = (await manual.look("log", started))["output"]
            command = f"{'#' * 185}{secret}{'#' * 100}"
            await manual.start(command)
            listed = (await manual.call("process", action="list"))["processes"]

        assert log.startswith("xxx")
        assert log.endswith("yyy")
        assert secret[:5] not in log
        assert secret[:5] not in listed[-1]["command"]

    async def test_a_notice_holds_no_secret(self, tmp_path: Path, journal: MemoryJournal) -> None:
        secret = "7h15-15-50-53cr37"
        (tmp_path / "file").write_text(f"ready {secret}\n")
        async with in_a_session(
            tmp_path, journal, environ={"PATH": "/bin:/usr/bin", "API_KEY": secret}
        ) as talk:
            manual = await talk.begin()
            await manual.start("cat file", watch_patterns=["ready"])
            await talk.command.finished.wait()
            manual.end()
            heard = await talk.woken()

        assert heard.count("ready") == 2
        assert secret not in heard
        assert secret not in repr(journal.entries)


class TestWatching:
    async def test_a_line_wakes_the_session_and_so_does_the_end(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal
    ) -> None:
        """A reader that waits for a line must learn that no more lines come."""
        command = "echo starting; echo now ready to serve; read _ <gate; exit 1"
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start(command, watch_patterns=["", "ready", "fail"])
            manual.end()
            first = await manual.receive()
            log = await manual.look("log", started)
            manual.end()
            gate.send()
            second = await talk.manual.receive()
            manual.end()
            await talk.idle()

        assert started["notify_on_complete"] is True
        assert started["watch_patterns"] == ["ready", "fail"]
        assert "has printed what you watch" in first
        assert "Lines:\nnow ready to serve\n" in first
        assert log["status"] == "running"
        assert "has ended: exit code 1" in second
        assert "more line" not in second
        assert told_once(journal)
        assert turns(journal) == 3

    @pytest.mark.parametrize("action", ["wait", "log", "kill"])
    async def test_a_read_ending_cancels_notices_of_watched_lines(
        self, tmp_path: Path, journal: MemoryJournal, action: str
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("echo ready", watch_patterns=["ready"])
            await talk.command.finished.wait()
            assert facts(journal.entries, ProcessMatched)
            await manual.look(action, started)
            manual.end()
            await talk.idle()

        assert told_once(journal)
        assert turns(journal) == 1

    async def test_fast_watched_lines_are_counted_in_the_final_notice(
        self, tmp_path: Path, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            await manual.start(
                "for i in 1 2 3 4; do echo hit $i; echo miss; done", watch_patterns=["hit"]
            )
            await talk.command.finished.wait()
            manual.end()
            heard = await talk.woken()
            await talk.idle()

        (matched,) = facts(journal.entries, ProcessMatched)
        assert (matched.lines, matched.left_out) == (("hit 1",), 0)
        assert "3 more lines that you watch for came too quickly" in heard
        assert told_once(journal)
        assert turns(journal) == 2

    async def test_the_pause_between_two_doubles_up_to_a_quarter_of_an_hour(
        self, tmp_path: Path, said: Pipe, journal: MemoryJournal, clock: trio.testing.MockClock
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            await manual.start(
                'while read x; do echo "$x"; echo >said; done', watch_patterns=["hit"]
            )
            await talk.end()

            async def print_line(line: str) -> None:
                process = talk.command.process
                assert process is not None
                await process.write(f"{line}\n")
                await said.receive()
                await trio.testing.wait_all_tasks_blocked()

            await print_line("hit first")
            assert "hit first" in await talk.woken()
            for number, pause in enumerate([15, 30, 60, 120, 240, 480, 900, 900]):
                clock.jump(pause - 5)
                await print_line(f"hit early {number}")
                await print_line("miss")
                clock.jump(5)
                await print_line(f"hit {number}")
                heard = await talk.woken()
                assert f"Lines:\nhit {number}\n" in heard
                assert "1 more line that you watch for came too quickly" in heard

        assert len(facts(journal.entries, ProcessMatched)) == 9

    async def test_an_empty_watch_pattern_is_ignored(self, tmp_path: Path) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("true", watch_patterns=[""])

        assert started["notify_on_complete"] is False
        assert "hint" in started


WANTS_NEWS = pytest.mark.parametrize(
    "wanted",
    [
        {"notify_on_complete": True},
        {"watch_patterns": ["hit"]},
        {"notify_on_complete": True, "watch_patterns": ["hit"]},
    ],
    ids=["the end", "a line", "both"],
)


class TestNobodyToTell:
    @WANTS_NEWS
    async def test_a_run_is_told_that_it_gets_no_notice(
        self, tmp_path: Path, journal: MemoryJournal, wanted: Any
    ) -> None:
        async with in_a_run(tmp_path, journal) as manual:
            started = await manual.start("echo hit", **wanted)
            ended = await manual.look("wait", started)

        assert ended["exit_code"] == 0
        self.is_honest(started, journal)

    @WANTS_NEWS
    @pytest.mark.parametrize("in_background", [True, False], ids=["detached", "joined"])
    async def test_a_child_is_told_that_it_gets_no_notice(
        self, tmp_path: Path, journal: MemoryJournal, wanted: Any, in_background: bool
    ) -> None:
        child = ManualModel()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator, delegates=[shell_user(child, "child")]) as talk:
                manual = await talk.begin()
                manual.begin_calls(hand_on("a", background=in_background))
                await child.receive()
                started = await child.start("echo hit", **wanted)
                await child.look("wait", started)
                child.end()
                await manual.receive()
                manual.end()
                if in_background:
                    await talk.woken()
                await talk.idle()

        self.is_honest(started, journal)

    def is_honest(self, started: dict[str, Any], journal: MemoryJournal) -> None:
        assert started["ends_with_turn"] is True
        assert started["notify_on_complete"] is False
        assert "watch_patterns" not in started
        assert f'process(action="poll", id="{started["id"]}")' in (started["notify_unsupported"])
        assert [it.notify for it in facts(journal.entries, ProcessStarted)] == [False]
        assert not facts(journal.entries, ProcessMatched)
        assert not any(it.mail for it in facts(journal.entries, ToolAnswered))

    async def test_a_run_is_told_that_its_background_commands_end_with_its_turn(
        self, tmp_path: Path
    ) -> None:
        """It did not ask for a notice, and must not hope to look later either."""
        manual = ManualModel()
        async with open_orchestrator(
            ":memory:", machine=Machine(workspace=tmp_path)
        ) as orchestrator:
            async with trio.open_nursery() as nursery:
                ran: list[Any] = []

                async def run() -> None:
                    ran.append(await orchestrator.run(shell_user(manual), "go"))

                nursery.start_soon(run)
                await manual.receive()
                started = await manual.start("sleep 600")
                assert is_alive(started["pid"])
                manual.end()

        assert started["ends_with_turn"] is True
        assert "notify_unsupported" not in started
        for said in ("it is ended", f'id="{started["id"]}"', "background=false"):
            assert said in started["hint"]
        assert has_ended(started["pid"])
        assert ran[0].outcome.succeeded
        assert "`sleep 600`" in ran[0].outcome.note

    @pytest.mark.parametrize("in_background", [True, False], ids=["detached", "joined"])
    async def test_a_child_is_told_the_same_and_its_parent_reads_the_ended_commands(
        self, tmp_path: Path, journal: MemoryJournal, in_background: bool
    ) -> None:
        child = ManualModel()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator, delegates=[shell_user(child, "child")]) as talk:
                manual = await talk.begin()
                manual.begin_calls(hand_on("a", background=in_background))
                await child.receive()
                started = await child.start("sleep 600")
                child.end()
                await manual.receive()
                manual.end()
                if in_background:
                    await talk.woken()
                await talk.idle()

        assert started["ends_with_turn"] is True
        assert "it is ended" in started["hint"]
        assert has_ended(started["pid"])
        (settled,) = facts(journal.entries, TaskSettled)
        assert "`sleep 600`" in settled.outcome.note

    async def test_a_session_that_can_be_told_keeps_it_for_its_next_turn(
        self, tmp_path: Path
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("sleep 600")
            manual.end()
            await talk.idle()
            assert is_alive(started["pid"])
            manual = await talk.begin()
            (listed,) = (await manual.call("process", action="list"))["processes"]

        assert started["ends_with_turn"] is False
        assert "it is ended" not in started["hint"]
        assert (listed["id"], listed["status"]) == (started["id"], "running")


class TestWhileNobodyTalks:
    async def test_a_command_outlives_its_door_and_reports_at_the_next_one(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal
    ) -> None:
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator) as talk:
                manual = await talk.begin()
                started = await manual.start("read _ <gate", notify_on_complete=True)
                await talk.end()
            assert is_alive(started["pid"])
            command = talk.command
            gate.send()
            await command.finished.wait()
            assert turns(journal) == 1

            async with talking(orchestrator, session=talk.session.id) as again:
                assert "has ended: exit code 0" in await again.woken()
                manual = await again.begin()
                listed = await manual.call("process", action="list")
                manual.end()
                await again.idle()

        assert [it["id"] for it in listed["processes"]] == [started["id"]]
        assert told_once(journal)

    @pytest.mark.parametrize("notify", [True, False])
    async def test_a_session_with_a_running_command_is_not_evicted(
        self,
        tmp_path: Path,
        gate: Pipe,
        journal: MemoryJournal,
        monkeypatch: pytest.MonkeyPatch,
        notify: bool,
    ) -> None:
        monkeypatch.setattr("orchestrator.kernel.journal.session_cache.MAX_RESTING_TASKS", 1)
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:

            async def is_remembered() -> bool:
                for _ in range(3):
                    await orchestrator.run(worker(), "go")
                ledger = orchestrator.read.records
                assert len(ledger.sessions) <= 3
                return talk.session.id in ledger.sessions

            async with talking(orchestrator) as talk:
                manual = await talk.begin()
                await manual.start("read _ <gate", notify_on_complete=notify)
                await talk.end()
            command = talk.command
            assert await is_remembered()
            gate.send()
            await command.finished.wait()
            # A session with unread mail stays until that is read.
            assert await is_remembered() == notify
            async with talking(orchestrator, session=talk.session.id) as again:
                if notify:
                    await again.woken()
                await again.begin()
                await again.end()
            assert not await is_remembered()
            # What its commands said is not kept either.
            async with talking(orchestrator) as other:
                await (await other.begin()).start("true")
            assert list(orchestrator.sessions.machine.commands._commands) == [
                root_of(other.session.id)
            ]

    async def test_closing_a_session_for_good_ends_its_command_without_a_notice(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate", notify_on_complete=True)
            await talk.end()
            await talk.orchestrator.close_session(talk.session.id)
            assert has_ended(started["pid"])

        (ended,) = facts(journal.entries, ProcessEnded)
        assert ended.how == "its session was closed"
        assert turns(journal) == 1

    async def test_cancelling_a_session_with_its_tree_ends_its_command(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate", notify_on_complete=True)
            await talk.end()
            await talk.orchestrator.cancel(talk.session.id)
            assert is_alive(started["pid"])

            await talk.orchestrator.cancel(talk.session.id, tree=True)
            assert has_ended(started["pid"])
            assert "has ended: it was stopped" in await talk.woken()
            await talk.idle()

        assert told_once(journal)
        assert turns(journal) == 2

    async def test_cancelling_the_turn_leaves_it_alone(
        self, tmp_path: Path, gate: Pipe, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate", notify_on_complete=True)
            await talk.orchestrator.cancel(talk.session.id)
            assert is_alive(started["pid"])
            gate.send()

            assert "has ended: exit code 0" in await talk.woken()

    @pytest.mark.parametrize("how", ["closed", "drained", "in a turn"])
    async def test_closing_the_orchestrator_ends_a_command_and_the_next_one_reports_it(
        self, tmp_path: Path, gate: Pipe, said: Pipe, journal: MemoryJournal, how: str
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start(
                "echo begun; echo >said; read _ <gate", notify_on_complete=True
            )
            await said.receive()
            if how != "in a turn":
                await talk.end()
            if how == "drained":
                assert await talk.orchestrator.drain(10)
        assert has_ended(started["pid"])
        (ended,) = facts(journal.entries, ProcessEnded)
        assert ended.how == "stopped, because the orchestrator was closed"

        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator, session=talk.session.id) as again:
                if how == "in a turn":
                    await self.resumed(again, started)
                heard = await again.woken()
                await again.idle()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator, session=talk.session.id) as again:
                await again.idle()

        assert "has ended: stopped, because the orchestrator was closed" in heard
        assert heard.endswith("The end of its output:\nbegun\n")
        assert told_once(journal)
        assert turns(journal) == 2

    async def resumed(self, talk: Talk, started: dict[str, Any]) -> None:
        await talk.manual.receive()
        with pytest.raises(RefusedError, match="before a restart of the orchestrator are gone"):
            await talk.manual.look("poll", started)
        talk.manual.end()
        await talk.session.replies.receive()

    async def test_abandoning_a_session_ends_its_background_commands(
        self, tmp_path: Path, gate: Pipe, said: Pipe, journal: MemoryJournal
    ) -> None:
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            started = await manual.start(
                "trap '' TERM; setsid sh -c 'echo $$ >said; exec sleep 1000' & read _ <gate",
                notify_on_complete=True,
            )
            escaped = outside(int(await said.receive()), tmp_path)
            await talk.end()
            await talk.orchestrator.abandon()
            assert has_ended(started["pid"])
            assert has_ended(escaped)

        assert not facts(journal.entries, ProcessEnded)
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator, session=talk.session.id) as again:
                assert "its orchestrator died while it ran" in await again.woken()
        assert told_once(journal)


async def test_abandoning_a_session_ends_its_foreground_command(
    tmp_path: Path, gate: Pipe, said: Pipe, journal: MemoryJournal
) -> None:
    """A second Ctrl-C leaves no time for the grace that a command has."""
    command = "trap '' TERM; echo $$ >said; read _ <gate"
    async with in_a_session(tmp_path, journal) as talk:
        manual = await talk.begin()
        manual.begin_calls(ToolCall("terminal", {"command": command}))
        pid = outside(int(await said.receive()), tmp_path)
        await talk.orchestrator.abandon()
        assert has_ended(pid)


async def test_two_hundred_run_at_once_and_all_report(
    tmp_path: Path, gate: Pipe, journal: MemoryJournal
) -> None:
    async with in_a_session(tmp_path, journal) as talk:
        manual = await talk.begin()
        started = await manual.call_all(
            *[
                background(f"read _ <gate; echo number {n}", notify_on_complete=True)
                for n in range(200)
            ]
        )
        assert len({it["pid"] for it in started if is_alive(it["pid"])}) == 200
        await talk.end()
        for _ in range(200):
            gate.send()
        text = ""
        while text.count("has ended") < 200:
            text += await talk.woken()
        await talk.idle()

    assert sorted(re.findall(r"has ended: exit code 0 \((p_\w+)\)", text)) == sorted(
        it["id"] for it in started
    )
    assert sorted(map(int, re.findall(r"output:\nnumber (\d+)", text))) == [*range(200)]
    assert told_once(journal)


def lead(*steps: Any, **more: Any) -> Agent:
    """Return an agent that takes steps, and then says how often it was told of commands."""

    def say(transcript: Transcript) -> Any:
        answered = sum(isinstance(it, ToolMessage) for it in transcript)
        if answered < len(steps):
            step = steps[answered]
            return step(transcript) if callable(step) else step
        told = sum(it.text.startswith("A command that") for it in transcript)
        return f"heard {told}"

    return shell_user(ScriptedModel.always(say), "lead", **more)


def wait_for_it(transcript: Transcript) -> ToolCall:
    id_ = re.findall(r'"id":"(p_\w+)"', transcript[-1].text)[-1]
    return ToolCall("process", {"action": "wait", "id": id_})


@pytest.mark.parametrize("wanted", [{"notify_on_complete": True}, {"watch_patterns": ["hit"]}])
async def test_a_session_with_commands_is_replayed_without_running_any(
    tmp_path: Path, journal: MemoryJournal, wanted: dict[str, Any]
) -> None:
    agent = lead(
        background("echo ran >>ran; echo hit", watch_patterns=["hit"]),
        background("echo ran >>ran; echo hit", **wanted),
        wait_for_it,
    )
    async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
    assert told_once(journal)
    assert any(it.mail for it in facts(journal.entries, ToolAnswered))

    replayed = await replay(journal.entries, muted(agent))

    assert replayed.difference is None, replayed.difference
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


async def test_a_fork_has_no_command_of_the_run_that_it_goes_on_from(
    tmp_path: Path, gate: Pipe, journal: MemoryJournal
) -> None:
    agent = lead(
        background("echo ran >>ran; read _ <gate", notify_on_complete=True),
        hand_on("a", background=False),
        delegates=[worker("child")],
    )
    async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            gate.send()
            assert (await session.replies.receive()).text == "heard 1"
        with patiently():
            run = await orchestrator.fork(agent, session.id, task="/lead/child[1]")

        assert run.output == "heard 1"
        inside = orchestrator.sessions.machine.commands
        assert inside.commands_of(root_of(SessionId(run.id))) == []

    assert (tmp_path / "ran").read_text() == "ran\n"
    forked = [entry for entry in journal.entries if entry.session == run.id]
    (ended,) = facts(forked, ProcessEnded)
    assert "does not run here" in ended.how
    assert sorted(command_mail_read(forked)) == command_mail(forked) != []
