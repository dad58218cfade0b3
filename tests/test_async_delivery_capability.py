"""A promise to tell later is only made where it can be kept, and where it cannot, that is said.

Whether a session can be told something after its turn is a matter of the door that the turn came
through. Tools that would promise it (`terminal` with `notify_on_complete` or `watch_patterns`) look
at that, and refuse a promise that cannot be kept: no watcher is registered that never fires.
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import Machine, MemoryJournal, Session, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.delegation import DeliveryCapability, Mode, Reason
from orchestrator.delegation.events import ProcessStarted, TaskRequested, TurnStarted
from orchestrator.delegation.session_context import (
    async_delivery_supported,
    bind_session,
    clear_session_vars,
    get_session_env,
    reset_session_vars,
    set_session_vars,
)
from orchestrator.kernel.doors import one_shot
from orchestrator.kernel.doors.door import Door
from orchestrator.testing import SpyModel
from tests.kit import facts, hand_on, tool_answers, worker
from tests.orchestrator.commands_kit import has_ended, in_a_run, in_a_session, pipe, talking
from tests.orchestrator.test_cli import Shell

PLATFORM = "ORCHESTRATOR_SESSION_PLATFORM"
CHAT = "ORCHESTRATOR_SESSION_CHAT_ID"


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests that are not async share one context."""
    monkeypatch.delenv(PLATFORM, raising=False)
    monkeypatch.delenv(CHAT, raising=False)
    reset_session_vars()
    yield
    reset_session_vars()


class TestAsyncDeliverySupported:
    """The capability itself, as a tool asks for it."""

    def test_delivery_is_supported_without_any_session(self) -> None:
        assert async_delivery_supported() is True

    def test_a_delivering_door_can(self) -> None:
        tokens = set_session_vars(
            platform="telegram",
            chat_id="123",
            session_key="telegram:private:123",
            async_delivery=True,
        )
        try:
            assert async_delivery_supported() is True
            assert get_session_env(PLATFORM) == "telegram"
        finally:
            clear_session_vars(tokens)

    def test_a_stateless_door_cannot(self) -> None:
        tokens = set_session_vars(
            platform="api_server", chat_id="sess1", session_key="sess1", async_delivery=False
        )
        try:
            assert async_delivery_supported() is False
            # Who answers is known all the same: for routing, and to look for faults.
            assert get_session_env(PLATFORM) == "api_server"
        finally:
            clear_session_vars(tokens)

    def test_async_delivery_is_supported_by_default(self) -> None:
        tokens = set_session_vars(platform="discord", chat_id="9")
        try:
            assert async_delivery_supported() is True
        finally:
            clear_session_vars(tokens)

    def test_cleared_variables_restore_async_delivery(self) -> None:
        tokens = set_session_vars(platform="api_server", session_key="s1", async_delivery=False)
        assert async_delivery_supported() is False

        clear_session_vars(tokens)

        assert async_delivery_supported() is True


def looking(seen: list[tuple[bool, str]]) -> Agent:
    """Return an agent whose tool sees whether more can be told later, and to whom."""

    @tool
    async def look() -> str:
        await trio.lowlevel.checkpoint()
        seen.append((async_delivery_supported(), get_session_env(PLATFORM)))
        return "looked"

    return Agent(
        "lead", model=ScriptedModel([ToolCall("look"), "ok", ToolCall("look"), "ok"]), tools=[look]
    )


class TestDoors:
    """Each door says what it can do; the turns that come through it are bound to that."""

    def test_a_door_must_declare_its_capability(self) -> None:
        """The port has no default: the author of a door has to decide."""
        capability = vars(Door)["capability"]

        assert isinstance(capability, property)
        assert capability.fget is not None
        assert capability.fget(object()) is None
        assert "capability" in vars(Session)

    def test_a_session_can_be_told_later(self) -> None:
        assert Session.capability is DeliveryCapability.PUSH

    def test_a_run_cannot(self) -> None:
        assert one_shot.CAPABILITY is DeliveryCapability.NONE

    async def test_a_caller_of_a_run_cannot_choose_the_capability(self) -> None:
        """There is no such argument: the door decides."""
        seen: list[tuple[bool, str]] = []
        async with open_orchestrator(":memory:") as orchestrator:
            with bind_session(platform="api_server", async_delivery=True):
                await orchestrator.run(looking(seen), "go")
                assert async_delivery_supported() is True

        assert seen == [(False, "api_server")]
        assert "capability" not in inspect.signature(orchestrator.run).parameters
        assert "async_delivery" not in inspect.signature(orchestrator.run).parameters

    async def test_a_stateless_door_does_not_outlive_its_turn(self) -> None:
        """The same session behind a delivering door can be told: nothing stuck to it."""
        seen: list[tuple[bool, str]] = []
        agent = looking(seen)
        journal = MemoryJournal()
        async with open_orchestrator(journal) as orchestrator:
            with bind_session(platform="api_server"):
                run = await orchestrator.run(agent, "go")
            async with orchestrator.open_session(agent, session=run.id) as session:
                with bind_session(platform="telegram"):
                    await session.ask("again")

        assert seen == [(False, "api_server"), (True, "telegram")]
        assert [it.capability for it in facts(journal.entries, TurnStarted)] == [
            DeliveryCapability.NONE,
            DeliveryCapability.PUSH,
        ]


class TestSenders:
    """A sender that cannot be told later says so with its message, which the turn then keeps to."""

    async def test_a_stateless_turn_joins_its_tasks_with_a_note(self) -> None:
        journal = MemoryJournal()
        spy = SpyModel([hand_on("a"), "first", hand_on("b"), "second", "told"])
        lead = Agent("lead", model=spy, delegates=[worker(seconds=5)])
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(lead) as session:
                with bind_session(platform="api_server", async_delivery=False):
                    joined = await session.ask("now")
                detached = await session.ask("later")
                told = await session.replies.receive()

        assert [it.text for it in (joined, detached, told)] == ["first", "second", "told"]
        assert [(it.mode, it.reason) for it in facts(journal.entries, TaskRequested)] == [
            (Mode.JOINED, Reason.CANNOT_BE_TOLD_LATER),
            (Mode.DETACHED, Reason.CAN_BE_TOLD_LATER),
        ]
        now, later = tool_answers(spy.requests[3].transcript)
        assert now["results"][0]["output"] == "done"
        assert "not in the background" in now["note"]
        assert later["status"] == "dispatched"

    async def test_tools_see_the_capability_for_that_turn_only(self) -> None:
        seen: list[tuple[bool, str]] = []
        async with open_orchestrator(":memory:") as orchestrator:
            async with orchestrator.open_session(looking(seen)) as session:
                with bind_session(async_delivery=False):
                    await session.ask("now")
                await session.ask("later")

        assert [can for can, _ in seen] == [False, True]

    async def test_the_turn_keeps_to_it_after_a_crash(self) -> None:
        journal = MemoryJournal()
        stuck = Agent("lead", model=ScriptedModel.always("late", 3_600))
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(stuck) as session, trio.open_nursery() as nursery:
                with bind_session(async_delivery=False):
                    nursery.start_soon(session.ask, "now")
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
        lead = Agent("lead", model=ScriptedModel([hand_on("a"), "end"]), delegates=[worker()])
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(lead, session=session.id) as again:
                reply = await again.replies.receive()

        (requested,) = facts(journal.entries, TaskRequested)
        assert (reply.text, requested.mode) == ("end", Mode.JOINED)

    async def test_no_sender_can_promise_more_than_the_door(self) -> None:
        journal = MemoryJournal()
        lead = Agent("lead", model=ScriptedModel([hand_on("a"), "end"]), delegates=[worker()])
        async with open_orchestrator(journal) as orchestrator:
            with bind_session(async_delivery=True):
                await orchestrator.run(lead, "go")

        (requested,) = facts(journal.entries, TaskRequested)
        assert requested.mode is Mode.JOINED

    @pytest.mark.realtime
    async def test_commands_of_a_stateless_turn_end_with_it_and_get_a_note(
        self, tmp_path: Path
    ) -> None:
        journal = MemoryJournal()
        with pipe(tmp_path / "gate"):
            async with in_a_session(tmp_path, journal) as talk:
                with bind_session(async_delivery=False):
                    manual = await talk.begin()
                started = await manual.start(COMMAND, notify_on_complete=True)
                await talk.end()
                assert has_ended(started["pid"])

        assert started["ends_with_turn"] is True
        assert "notify_unsupported" in started
        assert registered(journal) == []


COMMAND = "read _ <gate; echo DONE"
AGENTS = f"""
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, allow
from orchestrator.agents.tools.terminal import process, terminal

def say(transcript):
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return last.text
    if last.text.startswith("A command"):
        return "told: " + last.text.replace(chr(10), " ")
    arguments = {{"command": {COMMAND!r}, "background": True, "notify_on_complete": True}}
    return ToolCall("terminal", arguments)

coder = Agent(
    "coder",
    model=ScriptedModel.always(say),
    tools=[terminal, process],
    approve=[allow("*")],
)
"""


@pytest.mark.realtime
class TestTerminalNotifyGate:
    """`terminal(background=True, notify_on_complete=True)` behind each of the three doors."""

    async def test_a_run_registers_no_watcher_and_gets_a_note(self, tmp_path: Path) -> None:
        journal = MemoryJournal()
        with (
            pipe(tmp_path / "gate") as gate,
            bind_session(platform="api_server", chat_id="s1", session_key="s1"),
        ):
            async with in_a_run(tmp_path, journal) as manual:
                started = await manual.start(COMMAND, notify_on_complete=True)
                # What it is told to do instead works.
                before = await manual.look("poll", started)
                gate.send()
                after = await manual.look("wait", started)

        assert started["notify_on_complete"] is False
        assert "poll" in started["notify_unsupported"].lower()
        assert registered(journal) == []
        assert before["status"] == "running"
        assert after["output"] == "DONE\n"

    async def test_a_session_that_can_be_told_gets_one_watcher(self, tmp_path: Path) -> None:
        journal = MemoryJournal()
        with pipe(tmp_path / "gate") as gate:
            async with in_a_session(tmp_path, journal) as talk:
                with bind_session(
                    platform="telegram",
                    chat_id="123",
                    thread_id="7",
                    user_id="u1",
                    session_key="telegram:private:123",
                ):
                    manual = await talk.begin()
                started = await manual.start(COMMAND, notify_on_complete=True)
                await talk.end()
                gate.send()
                heard = await manual.receive()
                seen = await manual.run(f"echo ${PLATFORM} ${CHAT}")
                manual.end()
                await talk.session.replies.receive()

        assert started["notify_on_complete"] is True
        assert "notify_unsupported" not in started
        assert registered(journal) == [started["id"]]
        assert heard.endswith("DONE\n")
        # It answers where the message came from.
        assert seen["output"] == "telegram 123\n"

    async def test_one_session_behind_one_door_after_the_other(self, tmp_path: Path) -> None:
        """A run is promised nothing. Opened as a session, it is promised all."""
        journal = MemoryJournal()
        with pipe(tmp_path / "gate"):
            async with in_a_run(tmp_path, journal) as manual:
                stateless = await manual.start(COMMAND, notify_on_complete=True)
            async with open_orchestrator(
                journal, machine=Machine(workspace=tmp_path)
            ) as orchestrator:
                (run,) = orchestrator.runs
                async with talking(orchestrator, session=run) as talk:
                    manual = await talk.begin()
                    pushed = await manual.start(COMMAND, notify_on_complete=True)

        assert "notify_unsupported" in stateless
        assert pushed["notify_on_complete"] is True
        assert registered(journal) == [pushed["id"]]

    def test_the_command_line_talks_and_can_be_told(
        self, tmp_path: Path, python: list[str]
    ) -> None:
        """A real `orchestrator chat`: the promise is made, and kept while no input comes."""
        shell = Shell(tmp_path, python)
        file = shell.write("team.py", AGENTS)
        with pipe(tmp_path / "gate") as gate, shell.start("chat", file) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("build it\n")
            process.stdin.flush()
            started = answer_in(iter(process.stdout.readline, ""))
            gate.send()
            told = next(it for it in iter(process.stdout.readline, "") if "told:" in it)
            process.communicate("", timeout=60)

        assert started["notify_on_complete"] is True
        assert "notify_unsupported" not in started
        assert f"has ended: exit code 0 ({started['id']})" in told
        assert told.rstrip().endswith("DONE")
        assert process.returncode == 0

    def test_the_command_line_that_runs_once_cannot(
        self, tmp_path: Path, python: list[str]
    ) -> None:
        shell = Shell(tmp_path, python)
        file = shell.write("team.py", AGENTS)
        with pipe(tmp_path / "gate"):
            out, _ = shell.run("run", file, "build it", "--quiet")

        started = answer_in(iter(out.splitlines()))
        assert started["notify_on_complete"] is False
        assert "poll" in started["notify_unsupported"].lower()


def registered(journal: MemoryJournal) -> list[str]:
    """Return the commands for whose end a notice was promised."""
    return [it.id for it in facts(journal.entries, ProcessStarted) if it.notify]


def answer_in(lines: Iterator[str]) -> dict[str, Any]:
    line = next(it for it in lines if "{" in it)
    return dict(json.loads(line[line.index("{") :]))
