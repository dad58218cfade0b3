"""The runs of `version_1.db`, a journal with facts and tables of version 1.

The file was made once: `python -m tests.golden.version_1 FILE`. It is kept as it is: every later
orchestrator reads it. The test that opens it needs the agents. Its tracebacks have the path of the
checkout, so make it in one at `/repository`.
"""

import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing

from orchestrator import (
    MemoryJournal,
    Orchestrator,
    budget,
    delegate,
    map_each,
    open_orchestrator,
    parallel,
)
from orchestrator.agents import (
    Agent,
    Budget,
    Limits,
    ModelError,
    Patience,
    Pipeline,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    agent,
    tool,
)
from orchestrator.agents.approval import confirm, deny
from orchestrator.delegation import Rules, encode
from orchestrator.delegation.events import SessionOpened
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.testing import hand_on

FILE = Path(__file__).parent / "version_1.db"
ONE_AT_A_TIME = Rules(live_tasks=1)


def stepwise(*steps: Any, seconds: float = 1) -> ScriptedModel:
    """Return a model that takes one step after the other, in every turn and task anew."""

    def step(transcript: Transcript) -> Any:
        begins = max(
            at for at, it in enumerate(transcript) if isinstance(it, UserMessage) and not it.aside
        )
        if transcript[begins].text.startswith(("A task that you", "A command that")):
            return "noted"
        turn = transcript[begins:]
        at = sum(isinstance(message, ToolMessage) for message in turn)
        chosen = steps[min(at, len(steps) - 1)]
        return chosen(transcript) if callable(chosen) else chosen

    return ScriptedModel.always(step, seconds)


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    await trio.sleep(3)
    return f"seen {place}"


@tool
async def hang() -> str:
    """Hang."""
    await trio.sleep(100)
    return "never"


@tool
async def crash() -> str:
    """Raise."""
    await trio.sleep(1)
    raise ValueError("a bug")


@tool
async def read_all() -> str:
    """Read a long text."""
    await trio.lowlevel.checkpoint()
    return "It is a long text. " * 300


@tool(name="terminal", idempotent=True)
async def terminal(command: str) -> str:
    """Run a command."""
    await trio.lowlevel.checkpoint()
    return f"ran {command}"


def member(name: str, *steps: Any, seconds: float = 1, **more: Any) -> Agent[Any]:
    return Agent(name, model=stepwise(*steps, seconds=seconds), **more)


def failures() -> Agent[Any]:
    """Return a parent whose children end in every way that needs no client."""
    children = [
        member("refusing", ToolCall("look", {"plaice": "x"}), "well", tools=[look]),
        member("failing", ModelError("down", partial="I thi")),
        member("crashing", ToolCall("crash"), tools=[crash]),
        member("slow", "late", seconds=60, limits=Limits(seconds=5)),
        member("silent", "…", seconds=100, patience=Patience(quiet=5, stalled=20)),
        member("busy", ToolCall("look", {"place": "a"}), tools=[look], limits=Limits(calls=3)),
        member("wrong", "no number", output=int),
        member("odd", ToolCall("nothing_like_that"), "so be it"),
        member("stubborn", *[ToolCall("look", {"place": "b"})] * 5, "enough", tools=[look]),
        member("dear", ToolCall("look", {"place": "c"}), tools=[look], budget=Budget(calls=2)),
        member("hurried", "late", seconds=60, budget=Budget(seconds=7.5)),
        member("denied", ToolCall("terminal", {"command": "rm x"}), "fine", tools=[terminal]),
        member("asking", ToolCall("terminal", {"command": "make"}), "fine", tools=[terminal]),
    ]
    together = [{"goal": "go", "agent": it.name, "label": it.name} for it in children] + [
        {"goal": "go", "agent": "odd", "label": "after", "depends_on": ["failing"]}
    ]
    return member(
        "failures",
        ToolCall("delegate_task", {"tasks": together}),
        "all ended",
        delegates=children,
        approve=[deny("terminal", command="rm *", reason="no"), confirm("terminal")],
    )


def _dispatched(transcript: Transcript) -> list[str]:
    return [
        task["task_id"]
        for message in transcript
        if isinstance(message, ToolMessage) and not message.failed
        for answer in [json.loads(message.text)]
        if answer.get("status") == "dispatched"
        for task in answer["tasks"]
    ]


def _control(action: str, number: int, **more: Any) -> Callable[[Transcript], ToolCall]:
    def call(transcript: Transcript) -> ToolCall:
        ids = [_dispatched(transcript)[number]]
        return ToolCall("task", {"action": action, "ids": ids, **more})

    return call


def controlling() -> Agent[Any]:
    """Return a session that steers and cancels what it has detached."""
    return member(
        "controlling",
        hand_on("one", "two", "three", agent="worker", background=True),
        _control("steer", 0, message="faster", seconds=30),
        _control("cancel", 1),
        _control("wait", 0),
        "watched",
        delegates=[
            member(
                "worker",
                *[ToolCall("look", {"place": str(at)}) for at in range(4)],
                "found",
                tools=[look],
            )
        ],
    )


def queueing() -> Agent[Any]:
    """Return a session with tasks that are cancelled before they start."""
    return member(
        "queueing",
        hand_on("one", "two", agent="worker", background=True),
        "waiting",
        delegates=[member("worker", ToolCall("look", {"place": "x"}), "found", tools=[look])],
        limits=Limits(),
    )


def approving() -> Agent[Any]:
    """Return a session whose calls a person approves and denies."""
    return member(
        "approving",
        ToolCall("terminal", {"command": "make"}),
        ToolCall("terminal", {"command": "make install"}),
        "built",
        tools=[terminal],
        approve=[confirm("terminal")],
    )


def resuming() -> Agent[Any]:
    """Return a session that a crash interrupts."""
    return member(
        "resuming",
        hand_on("join", "also join", agent="leaf", background=False),
        hand_on("apart", agent="leaf", background=True),
        "on its way",
        delegates=[member("leaf", ToolCall("look", {"place": "x"}), "leaf", tools=[look])],
    )


def draining() -> Agent[Any]:
    """Return an agent that delegates while its orchestrator stops."""
    return member(
        "draining",
        ToolCall("look", {"place": "x"}),
        hand_on("too late", agent="leaf"),
        "ended with what it had",
        tools=[look],
        delegates=[_echo("leaf")],
    )


def lengthy() -> Agent[Any]:
    """Return an agent whose facts have long strings, one of them in two facts."""
    return member(
        "lengthy",
        ToolCall("read_all"),
        ToolCall("read_all"),
        "A long answer. " * 200,
        tools=[read_all],
    )


def _echo(name: str, seconds: float = 1, **more: Any) -> Agent[Any]:
    model = ScriptedModel.always(lambda said: f"<{said[0].text}>", seconds)
    return Agent(name, model=model, **more)


def racing() -> Pipeline[Any, Any]:
    """Return a pipeline that stops waiting for the slower ones."""
    fast, slow = _echo("fast"), _echo("slow", 50)

    @agent
    async def racing(topic: str) -> str:
        first = await delegate(parallel(fast, slow).first(), topic)
        return f"{first} won"

    return racing


def spending() -> Pipeline[Any, Any]:
    """Return a pipeline whose children use up its budget."""
    each = map_each(_echo("reader"))

    @agent(budget=Budget(calls=3))
    async def spending(topic: str) -> str:
        return " ".join(await delegate(each, [f"{topic} {at}" for at in range(4)]))

    return spending


def failing_pipeline() -> Pipeline[Any, Any]:
    """Return a pipeline that cannot do without a child that fails."""
    broken = member("broken", ModelError("down"))

    @agent
    async def collecting(topic: str) -> str:
        return str(await delegate(broken, topic))

    return collecting


def agents() -> dict[str, Agent[Any]]:
    """Return the root agents of all runs, by name."""
    made = [
        failures(),
        controlling(),
        queueing(),
        approving(),
        resuming(),
        draining(),
        racing(),
        spending(),
        failing_pipeline(),
        lengthy(),
    ]
    return {it.name: it for it in made}


async def _run_all(orchestrator: Orchestrator) -> None:
    named = agents()
    for name in ("failures", "racing", "spending", "collecting"):
        await orchestrator.run(named[name], "go")
    with budget(calls=2):
        await orchestrator.run(failures(), "go")
    with trio.move_on_after(4):
        await orchestrator.run(named["failures"], "left by its caller")


async def _control_all(orchestrator: Orchestrator) -> None:
    async with orchestrator.open_session(controlling()) as session:
        await session.ask("go")
        await session.wait_idle()
    async with orchestrator.open_session(queueing()) as session:
        await session.ask("go")
        tree = orchestrator.tree(session.id)
        one, two = [it for it in tree if it != tree.root]
        await orchestrator.steer(one, "look closer", seconds=10)
        await orchestrator.cancel(two)
        await session.wait_idle()


async def _queue(orchestrator: Orchestrator) -> None:
    async with orchestrator.open_session(queueing()) as session:
        await session.ask("go")
        tree = orchestrator.tree(session.id)
        *_, last = [it for it in tree if it != tree.root]
        await orchestrator.cancel(last)
        await session.wait_idle()


async def _approve(orchestrator: Orchestrator) -> None:
    async with orchestrator.open_session(approving()) as session, trio.open_nursery() as nursery:
        nursery.start_soon(session.ask, "go")
        for answer in ("once", "deny"):
            while not session.open_questions:  # noqa: ASYNC110 (a clock that jumps)
                await trio.sleep(1)
            await session.answer(
                session.open_questions[0].id, answer, reason="as you like", by="Ann"
            )
        await session.wait_idle()


async def _read(orchestrator: Orchestrator) -> None:
    await orchestrator.run(lengthy(), "go")


async def _resume(orchestrator: Orchestrator, session: str | None = None) -> None:
    async with orchestrator.open_session(resuming(), session=session) as opened:
        if session is None:
            await opened.ask("go")
        await opened.wait_idle()


async def _drain(orchestrator: Orchestrator) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, draining(), "go")
        await trio.sleep(2)
        await orchestrator.drain(100)


async def _lose(orchestrator: Orchestrator) -> None:
    await orchestrator.run(failures(), "lost")


Work = Callable[[Orchestrator], Awaitable[None]]


def _record(journal: MemoryJournal, work: Work, rules: Rules | None = None) -> MemoryJournal:
    async def record() -> None:
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            await work(orchestrator)

    trio.run(record, clock=trio.testing.MockClock(autojump_threshold=0))
    return MemoryJournal(journal.entries)


async def _nothing(_: Orchestrator) -> None:
    await trio.lowlevel.checkpoint()


def make_ended() -> MemoryJournal:
    """Return a journal in which every run has ended."""
    journal = MemoryJournal()
    for work in (_run_all, _control_all, _approve, _drain):
        journal = _record(journal, work)
    # Processes die in the midst of a turn, which others resume.
    before = len(journal.entries)
    journal = _record(journal, _resume)
    session = journal.entries[-1].session or journal.entries[-2].session
    for part in (1 / 4, 2 / 4, 3 / 4):
        length = before + int((len(journal.entries) - before) * part)
        crashed = MemoryJournal(journal.entries[:length])
        journal = _record(crashed, partial(_resume, session=session))
    journal = _record(journal, _queue, ONE_AT_A_TIME)
    # The process dies in the midst of a run, which no other resumes.
    before = len(journal.entries)
    whole = _record(journal, _lose)
    half = before + (len(whole.entries) - before) // 2
    return _record(MemoryJournal(whole.entries[:half]), _nothing)


def make() -> MemoryJournal:
    """Return the same journal with long strings, and a session that nothing has resumed."""
    journal = _record(make_ended(), _read)
    before = len(journal.entries)
    whole = _record(journal, _resume)
    half = before + (len(whole.entries) - before) // 2
    return MemoryJournal(whole.entries[:half])


def write(file: Path) -> None:
    entries = make().entries

    async def store() -> None:
        async with open_sqlite_journal(file) as journal:
            for entry in entries:
                is_new = isinstance(entry.event, SessionOpened)
                listed = {entry.session: None} if is_new else {}
                journal.append(entry, encode(entry.event), listed)
            await journal.wait_durable(entries[-1].seq)

        async with open_orchestrator(file):
            pass

    trio.run(store)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
