"""Receipts: what was acknowledged survives a crash in the very next moment."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, confirm, tool
from orchestrator.delegation.events import (
    ApprovalAnswered,
    SessionClosed,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskSettled,
    TurnEnded,
)
from orchestrator.kernel.control.client import connect_control
from orchestrator.kernel.control.server import Steer, open_control
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from tests.kit import facts, worker
from tests.orchestrator.held_journal import HeldJournal


def team(ran: list[str] | None = None) -> Agent:
    """Return an agent with a child that never ends, and one that waits for approval."""

    @tool(idempotent=True)
    async def deploy() -> str:
        """Deploy it."""
        await trio.lowlevel.checkpoint()
        if ran is not None:
            ran.append("deploy")
        return "deployed"

    slow = worker("slow", seconds=10_000)
    asking = Agent(
        "asking",
        model=first_then(ToolCall("deploy"), "deployed it"),
        tools=[deploy],
        approve=[confirm("deploy", seconds=1_000)],
    )
    tasks = [{"goal": "a", "agent": "slow"}, {"goal": "b", "agent": "asking"}]
    call = ToolCall("delegate_task", {"tasks": tasks, "background": True})
    return Agent("lead", model=first_then(call, "delegated"), delegates=[slow, asking])


def first_then(call: ToolCall, answer: str) -> ScriptedModel:
    """Return a model that makes a call, and answers ever after."""
    return ScriptedModel.always(lambda transcript: answer if len(transcript) > 1 else call)


def task_of(orchestrator: Orchestrator, agent: str) -> str:
    tree = orchestrator.tree(orchestrator.runs[0])
    return next(task for task in tree if tree[task].agent == agent)


async def steer(orchestrator: Orchestrator) -> None:
    receipt = await orchestrator.steer(task_of(orchestrator, "slow"), "hurry")
    assert receipt.state == "waiting"


async def cancel(orchestrator: Orchestrator) -> None:
    await orchestrator.cancel(task_of(orchestrator, "slow"))


async def answer(orchestrator: Orchestrator) -> None:
    (question,) = orchestrator.approvals
    await orchestrator.answer(question.id, "once")


async def close(orchestrator: Orchestrator) -> None:
    await orchestrator.close_session(orchestrator.runs[0])


async def open_another(orchestrator: Orchestrator) -> None:
    async with orchestrator.open_session(worker()):
        pass


async def run(orchestrator: Orchestrator) -> None:
    await orchestrator.run(worker(), "go")


Acknowledged: TypeAlias = Callable[[Orchestrator], Awaitable[None]]
KINDS: dict[Acknowledged, type[Any]] = {
    steer: Steered,
    cancel: TaskSettled,
    answer: ApprovalAnswered,
    close: SessionClosed,
    open_another: SessionOpened,
    run: SessionOpened,
}


@asynccontextmanager
async def two_at_work(journal: MemoryJournal, agent: Agent) -> AsyncGenerator[Orchestrator]:
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.testing.wait_all_tasks_blocked()
            yield orchestrator


@pytest.mark.parametrize("acknowledged", KINDS)
async def test_an_action_is_acknowledged_when_it_is_durable(acknowledged: Acknowledged) -> None:
    journal = HeldJournal()
    async with two_at_work(journal, team()) as orchestrator:
        before = len(facts(journal.entries, KINDS[acknowledged]))
        returned = trio.Event()

        async def wait_for_it() -> None:
            await acknowledged(orchestrator)
            returned.set()

        async with trio.open_nursery() as nursery:
            journal.hold()
            nursery.start_soon(wait_for_it)
            await trio.testing.wait_all_tasks_blocked()
            has_posted = len(facts(journal.entries, KINDS[acknowledged])) > before
            was_acknowledged = returned.is_set()
            journal.release()

    assert has_posted
    assert not was_acknowledged
    assert returned.is_set()


async def test_that_a_message_was_seen_is_acknowledged_when_it_is_durable() -> None:
    journal = HeldJournal()

    @tool(idempotent=True)
    async def look() -> str:
        """Look at it."""
        journal.hold()
        await trio.lowlevel.checkpoint()
        return "seen"

    model = ScriptedModel([ToolCall("look"), "done"], 10)
    child = Agent("child", model=model, tools=[look])
    task = {"goal": "a", "agent": "child", "background": True}
    call = ToolCall("delegate_task", task)
    lead = Agent("lead", model=ScriptedModel([call, "ok", "ok"]), delegates=[child])
    receipts: list[str] = []

    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session, trio.open_nursery() as it:
            await session.ask("go")
            await trio.testing.wait_all_tasks_blocked()

            async def send() -> None:
                task = task_of(orchestrator, "child")
                receipt = await orchestrator.steer(task, "hurry", seconds=100)
                receipts.append(receipt.state)

            it.start_soon(send)
            await trio.sleep(20)
            was_seen = bool(facts(journal.entries, SteeringSeen))
            early = list(receipts)
            journal.release()

    assert was_seen
    assert early == []
    assert receipts == ["seen"]


async def test_no_call_runs_before_its_approval_is_durable() -> None:
    journal, ran = HeldJournal(), list[str]()
    async with two_at_work(journal, team(ran)) as orchestrator:
        async with trio.open_nursery() as nursery:
            journal.hold()
            nursery.start_soon(answer, orchestrator)
            await trio.testing.wait_all_tasks_blocked()
            early = list(ran)
            journal.release()
            await trio.testing.wait_all_tasks_blocked()

    assert early == []
    assert ran == ["deploy"]


async def test_a_reply_is_delivered_when_it_is_durable() -> None:
    journal = HeldJournal()
    replies: list[str] = []
    async with open_orchestrator(journal) as orchestrator:
        async with (
            orchestrator.open_session(worker(seconds=10)) as session,
            trio.open_nursery() as nursery,
        ):

            async def send() -> None:
                replies.append((await session.ask("go")).text)

            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            journal.hold()
            await trio.sleep(20)
            has_ended = bool(facts(journal.entries, TurnEnded))
            early = list(replies)
            journal.release()

    assert early == []
    assert replies == ["done"]
    assert has_ended


# Real processes, which are killed directly after the receipt.


async def _steer_here(orchestrator: Orchestrator, journal: Path) -> str:
    receipt = await orchestrator.steer(task_of(orchestrator, "slow"), "hurry")
    return receipt.state


async def _steer_by_socket(orchestrator: Orchestrator, journal: Path) -> str:
    async with open_control(orchestrator, journal), connect_control(journal) as client:
        assert client is not None
        task = task_of(orchestrator, "slow")
        response = await client.request(Steer(task, "hurry"))
        kill_self()
        return str(response["state"])


def kill_self() -> None:
    """Die as by `kill -9`, in the moment in which the receipt is here."""
    signal.raise_signal(signal.SIGKILL)


WAYS: dict[str, Callable[[Orchestrator, Path], Awaitable[str]]] = {
    "python": _steer_here,
    "control socket": _steer_by_socket,
}


async def _steer_and_die(journal: Path, way: str) -> None:
    async with (
        open_orchestrator(journal) as orchestrator,
        orchestrator.open_session(team()) as session,
    ):
        await session.ask("go")
        # What was posted before is durable: the receipt can owe nothing to it.
        await orchestrator.wait_durable()
        await WAYS[way](orchestrator, journal)
        kill_self()


@pytest.mark.parametrize("way", WAYS)
def test_a_message_with_a_receipt_survives_kill_9(way: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    arguments = json.dumps([str(journal), way])
    died = subprocess.run([sys.executable, "-m", __name__, arguments], timeout=60, check=False)
    entries = trio.run(read_sqlite_journal, journal)

    assert died.returncode == -signal.SIGKILL
    assert [it.text for it in facts(entries, Steered)] == ["hurry"]


if __name__ == "__main__":
    _journal, _way = json.loads(sys.argv[1])
    trio.run(_steer_and_die, Path(_journal), _way)
