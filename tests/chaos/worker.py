"""The process that is killed: sessions on a real journal, and what clients do with them.

Whatever is acknowledged to a client is written to the log of receipts. Run as a program it is the
place where such processes are born: for each line that it reads it forks one, and prints its
process id and how it ended. Starting Python anew would take most of the time.
"""

import json
import os
import random
import sys
import traceback
from contextlib import suppress
from typing import Any, cast

# Imported late elsewhere, and here before anything is forked.
import docstring_parser  # noqa: F401
import httpx2  # noqa: F401
import networkx as nx  # noqa: F401
import trio

from orchestrator import Machine, Orchestrator, open_orchestrator
from orchestrator.agents import Agent
from orchestrator.delegation import Reply, TaskId
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    SessionOpened,
    TaskRequested,
    TaskStarted,
)
from orchestrator.kernel.doors.session import Session
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from tests.chaos.fault_points import FaultPoints, FaultyJournal
from tests.chaos.life import Life
from tests.chaos.plan import Node, Plan, plan_of
from tests.chaos.team import roots


async def live(life: Life) -> None:
    """Begin the sessions of a round or go on with them, until there is nothing left to do."""
    random.seed(life.seed)
    points = FaultPoints(life)
    agents = roots(life, points)
    async with open_sqlite_journal(life.journal) as journal:
        faulty = cast("Journal", FaultyJournal(journal, points))
        async with open_orchestrator(
            faulty, machine=Machine(workspace=life.folder, environ=life.environ)
        ) as orchestrator:
            await Clients(life, points, orchestrator).work(agents)


class Clients:
    """All that is asked of one orchestrator from outside."""

    def __init__(self, life: Life, points: FaultPoints, orchestrator: Orchestrator) -> None:
        self._plan: Plan = plan_of(life.plan)
        self._points = points
        self._receipts = life.receipts
        self._orchestrator = orchestrator

    async def work(self, agents: dict[str, Agent[Any]]) -> None:
        """Serve all sessions until they are idle."""
        async with trio.open_nursery() as outside:
            with self._orchestrator.subscribe() as facts:
                async with trio.open_nursery() as sessions:
                    for node in self._plan.roots:
                        begin = self._run if node.is_run else self._converse
                        await sessions.start(begin, node, agents[node.id])
                    # What the journal had before is looked at once, and then each new fact.
                    for task in list(self._orchestrator.read.records.tasks.values()):
                        if task.outcome is None:
                            self._intervene(outside, task.agent, task.id)
                    outside.start_soon(self._follow, facts, outside)
            outside.cancel_scope.cancel()

    async def _follow(self, facts: Any, outside: trio.Nursery) -> None:
        while True:
            await facts.wait()
            for entry, _ in facts.take():
                self._react(entry, outside)

    def _react(self, entry: Entry, outside: trio.Nursery) -> None:
        match entry.event:
            case MessageReceived(session, text):
                outside.start_soon(self._acknowledge, entry.seq, session, text)
            case SessionOpened(session, agent) if self._plan.nodes[agent].is_run:
                outside.start_soon(self._acknowledge_run, entry.seq, session, agent)
            case TaskRequested(request, started=started):
                self._intervene(outside, request.agent, request.id)
                if started and request.agent in self._plan.steers:
                    outside.start_soon(self._steer, request.agent, request.id)
            case TaskStarted(task):
                agent = self._orchestrator.read.records.tasks[task].agent
                if agent in self._plan.steers:
                    outside.start_soon(self._steer, agent, task)
            case _:
                pass

    def _intervene(self, outside: trio.Nursery, node: str, task: TaskId) -> None:
        if node in self._plan.cancels:
            outside.start_soon(self._cancel, node, task)

    def _receipt(self, kind: str, **fields: Any) -> None:
        self._receipts.write(kind, **fields)
        self._points.reach("after a receipt")

    async def _acknowledge(self, seq: int, session: str, text: str) -> None:
        await self._orchestrator.wait_durable(after=seq - 1)
        self._receipt("asked", session=session, text=text)

    async def _acknowledge_run(self, seq: int, session: str, node: str) -> None:
        await self._orchestrator.wait_durable(after=seq - 1)
        self._receipt("session", node=node, session=session)

    async def _cancel(self, node: str, task: TaskId) -> None:
        await trio.sleep(self._plan.cancels[node])
        await self._orchestrator.cancel(task)
        self._receipt("cancelled", node=node, task=task)

    async def _steer(self, node: str, task: TaskId) -> None:
        await trio.sleep(random.uniform(0, 0.03))
        text = f"hear outside {random.randrange(10**9)}"
        receipt = await self._orchestrator.steer(task, text)
        self._receipt("steered", node=node, task=task, text=text, state=receipt.state)

    async def _converse(
        self,
        node: Node,
        agent: Agent[Any],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Say what was not said, wait until the session is idle, and take all replies."""
        known = [it for it in self._receipts.read("session") if it["node"] == node.id]
        id_ = known[0]["session"] if known else None
        async with self._orchestrator.open_session(agent, session=id_) as session:
            if id_ is None:
                self._receipt("session", node=node.id, session=session.id)
            entries = await self._orchestrator.read.entries(session.id)
            said = sum(isinstance(it.event, MessageReceived) for it in entries)
            task_status.started()
            async with trio.open_nursery() as beside:
                beside.start_soon(self._take_replies, session)
                beside.start_soon(self._answer_questions, session)
                async with trio.open_nursery() as asks:
                    for number in range(said + 1, len(node.asks) + 1):
                        if random.randrange(2):
                            await session.wait_idle()
                        asks.start_soon(self._ask, session, node, number)
                        await trio.sleep(random.uniform(0, 0.03))
                await session.wait_idle()
                beside.cancel_scope.cancel()
            # The last replies may have come in the moment of the cancel.
            with suppress(trio.WouldBlock):
                while True:
                    self._reply(session.replies.receive_nowait())

    async def _run(
        self,
        node: Node,
        agent: Agent[Any],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run an agent, or go on with its run, unless that has ended."""
        read = self._orchestrator.read
        known = [(await read.session(id_)).session for id_ in list(read.session_ids)]
        begun = [session for session in known if session.root.agent == node.id]
        task_status.started()
        if not begun:
            run = await self._orchestrator.run(agent, f"ask 1 of {node.id}")
        elif begun[0].awaits_resume:
            run = await self._orchestrator.resume(agent, begun[0].id)
        else:
            return
        text = run.outcome.output
        self._receipt("reply", session=run.id, turn=1, text=text, to=1)

    async def _ask(self, session: Session, node: Node, number: int) -> None:
        reply = await session.ask(f"ask {number} of {node.id}")
        self._reply(reply, to=number)

    def _reply(self, reply: Reply, *, to: int = 0) -> None:
        self._receipt("reply", session=reply.session, turn=reply.turn, text=reply.text, to=to)

    async def _take_replies(self, session: Session) -> None:
        async for reply in session.replies:
            self._reply(reply)

    async def _answer_questions(self, session: Session) -> None:
        async for question in session.questions:
            node = self._orchestrator.read.records.tasks[question.task].agent
            answer = "once" if self._plan.nodes[node].approves else "deny"
            await session.answer(question.id, answer)
            self._receipt("verdict", approval=question.id, answer=answer)


def _live_and_leave(life: Life) -> None:
    code = 1
    try:
        trio.run(live, life)
        code = 0
    except BaseException:  # noqa: BLE001 (nothing else reports what went wrong)
        with (life.folder / "errors.txt").open("a") as errors:
            traceback.print_exc(file=errors)
    finally:
        os._exit(code)


def main() -> None:
    for line in sys.stdin:
        life = Life(**json.loads(line))
        child = os.fork()
        if not child:
            _live_and_leave(life)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
