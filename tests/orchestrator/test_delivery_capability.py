"""The delivery capability belongs to the turn and travels by value."""

import ast
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import orchestrator as house
from orchestrator import MemoryJournal, Orchestrator, Session, SessionOpenError, open_orchestrator
from orchestrator.agents import (
    Agent,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.delegation import DeliveryCapability, Mode, Reply, Rules
from orchestrator.delegation.events import (
    DoorOpened,
    MessageReceived,
    SessionOpened,
    TaskRequested,
    TurnStarted,
)
from orchestrator.delegation.session_context import (
    async_delivery_supported,
    bind_session,
    get_session_env,
    reset_session_vars,
    set_session_vars,
)
from tests.kit import facts, hand_on, worker

PLATFORM = "ORCHESTRATOR_SESSION_PLATFORM"
CHAT = "ORCHESTRATOR_SESSION_CHAT_ID"
SESSION = "ORCHESTRATOR_SESSION_ID"
LOOK = ToolCall("look")


@attrs.frozen
class Look:
    """The values that a tool saw."""

    where: str
    platform: str
    chat: str
    session: str
    delivers: bool


def look_now(where: str) -> Look:
    return Look(
        where,
        get_session_env(PLATFORM),
        get_session_env(CHAT),
        get_session_env(SESSION),
        async_delivery_supported(),
    )


def looking(seen: list[Look], where: str) -> Tool:
    @tool(name="look", idempotent=True)
    async def look() -> str:
        await trio.sleep(1)
        seen.append(look_now(where))
        return "looked"

    return look


def this_turn(transcript: Transcript) -> tuple[str, int]:
    """Return what a turn is about, and how many calls were answered in it."""
    answered = 0
    for message in reversed(transcript):
        if isinstance(message, UserMessage):
            return message.text, answered
        answered += isinstance(message, ToolMessage)
    raise AssertionError("no message was found")


def turns(first: list[Any], woken: list[Any]) -> ScriptedModel:
    """Return a model that makes these calls in a turn, and then says what it heard last.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def say(transcript: Transcript) -> Any:
        about, answered = this_turn(transcript)
        calls = woken if about.startswith("A task") else first
        return calls[answered] if answered < len(calls) else transcript[-1].text

    return ScriptedModel.always(say)


def watched(seen: list[Look]) -> Agent:
    """Return a lead that looks, joins a child, detaches another, and looks when it is woken.

    Its children look, too, and so do theirs.
    """
    leaf = Agent("leaf", model=turns([LOOK], []), tools=[looking(seen, "leaf")])

    def child(name: str) -> Agent:
        return Agent(
            name,
            model=turns([LOOK, hand_on("below", background=True), LOOK], []),
            tools=[looking(seen, name)],
            delegates=[leaf],
        )

    return Agent(
        "lead",
        model=turns(
            [
                LOOK,
                hand_on("within", agent="joined", background=False),
                hand_on("apart", agent="detached", background=True),
                LOOK,
            ],
            [LOOK],
        ),
        tools=[looking(seen, "lead")],
        delegates=[child("joined"), child("detached")],
    )


# What the door of a turn can do decides who owns the work.


async def test_a_caller_without_delivery_gets_the_result_with_a_note() -> None:
    journal = MemoryJournal()
    agent = Agent(
        "lead",
        model=turns([hand_on("a", background=True)], []),
        delegates=[worker(seconds=60, says="found")],
    )
    async with open_orchestrator(journal) as orchestrator:
        answer = json.loads((await orchestrator.run(agent, "go")).output)

    assert answer["results"][0]["output"] == "found"
    assert "cannot be told anything after its turn ends" in answer["note"]
    assert [fact.mode for fact in facts(journal.entries, TaskRequested)] == [Mode.JOINED]


@pytest.mark.parametrize("background", [None, True])
async def test_a_caller_with_delivery_gets_a_receipt(background: bool | None) -> None:
    agent = Agent(
        "lead",
        model=turns([hand_on("a", background=background)], []),
        delegates=[worker(seconds=60)],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            answer = json.loads((await session.ask("go")).text)
            assert trio.current_time() == 0

    assert answer["status"] == "dispatched"


async def test_background_false_waits_behind_every_door() -> None:
    agent = Agent(
        "lead", model=turns([hand_on("a", background=False)], []), delegates=[worker(seconds=60)]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            answer = json.loads((await session.ask("go")).text)

    assert answer["status"] == "completed"
    assert "note" not in answer
    assert trio.current_time() == 60


class Mailbox:
    """A door of our own, whose other side comes and asks: there is none yet in the house."""

    capability = DeliveryCapability.POLL

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self.replies.append(reply)

    def disconnect(self) -> None:
        pass


async def test_a_polling_caller_gets_a_receipt() -> None:
    seen: list[Look] = []
    agent = Agent(
        "lead",
        model=turns([LOOK, hand_on("a")], [LOOK]),
        tools=[looking(seen, "lead")],
        delegates=[worker(seconds=60, says="found")],
    )
    mailbox = Mailbox()
    async with open_orchestrator(":memory:") as orchestrator:
        inside = orchestrator.sessions
        id_ = inside.new_session_id()
        inside.registry.register_session(id_, agent)
        inside.facts.post(SessionOpened(id_, agent.name))
        inside.deliveries.attach(id_, mailbox)
        inside.facts.post(DoorOpened(id_, mailbox.capability))
        inside.facts.post(MessageReceived(id_, "go"))
        await trio.sleep(100)

    receipt, _ = mailbox.replies
    assert json.loads(receipt.text)["status"] == "dispatched"
    assert [look.delivers for look in seen] == [True, True]


async def test_a_session_used_without_delivery_detaches_again_with_it() -> None:
    journal = MemoryJournal()
    agent = Agent(
        "lead",
        model=turns([hand_on("a", background=True)], []),
        delegates=[worker(seconds=60, says="found")],
    )
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(agent, "go")
        async with orchestrator.open_session(agent, session=run.id) as session:
            answer = json.loads((await session.ask("again")).text)
            news = await session.replies.receive()

    assert "note" in json.loads(run.output)
    assert answer["status"] == "dispatched"
    assert "Output:\nfound" in news.text
    assert [turn.capability for turn in facts(journal.entries, TurnStarted)] == [
        DeliveryCapability.NONE,
        DeliveryCapability.PUSH,
        DeliveryCapability.PUSH,
    ]


async def test_a_live_run_opens_as_a_session_or_is_refused() -> None:
    agent = Agent("lead", model=ScriptedModel.always("ok", 10))
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await trio.sleep(1)
            (run,) = orchestrator.runs
            with suppress(SessionOpenError):
                async with orchestrator.open_session(agent, session=run) as session:
                    reply = await session.ask("and then?")

                    assert reply.outcome.error == ""


@pytest.mark.parametrize("background", [True, False])
async def test_a_child_does_not_inherit_the_delivery_capability_of_its_parent(
    background: bool,
) -> None:
    """A child ends with its one turn, so its delegations are joined with a note."""
    middle = Agent("middle", model=turns([hand_on("b", background=True)], []), delegates=[worker()])
    agent = Agent(
        "lead", model=turns([hand_on("a", background=background)], []), delegates=[middle]
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            reply = await session.ask("go")
            await session.wait_idle()
            if background:
                reply = session.replies.receive_nowait()

    assert "cannot be told anything after its turn ends" in reply.text
    above, below = facts(journal.entries, TaskRequested)
    assert above.mode is (Mode.DETACHED if background else Mode.JOINED)
    assert below.mode is Mode.JOINED
    assert below.request.origin.capability is DeliveryCapability.NONE


async def test_rules_that_change_with_a_restart_leave_no_task_with_two_owners() -> None:
    """A call that was half asked for goes on as it began."""
    agent = Agent("lead", model=turns([hand_on("a", "b", "c")], []), delegates=[worker(seconds=5)])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
    asked = [
        place
        for place, entry in enumerate(journal.entries)
        if isinstance(entry.event, TaskRequested)
    ]
    for place in asked:
        cut = MemoryJournal(journal.entries[: place + 1])
        async with open_orchestrator(cut, rules=Rules(detached=1)) as orchestrator:
            async with orchestrator.open_session(agent, session=session.id) as again:
                await again.wait_idle()

                children = again.tree.children(again.tree.root)
                statuses = [again.tree[child].status for child in children]
                assert statuses == ["succeeded"] * 3


# What tools see of it.


async def test_tools_see_whether_their_turn_can_be_told_more_later() -> None:
    seen: list[Look] = []
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(watched(seen)) as session:
            await session.ask("go")
            await session.wait_idle()

    assert {(look.where, look.delivers) for look in seen} == {
        ("lead", True),
        ("joined", False),
        ("detached", False),
        ("leaf", False),
    }
    assert {look.session for look in seen} == {session.id}
    # Before and after its children, and when it was woken.
    assert [look.where for look in seen].count("lead") == 3


async def test_tools_of_a_run_see_that_async_delivery_is_unsupported() -> None:
    seen: list[Look] = []
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(watched(seen), "go")

    assert {look.delivers for look in seen} == {False}
    assert {look.session for look in seen} == {run.id}
    assert {look.where for look in seen} == {"lead", "joined", "detached", "leaf"}


@pytest.mark.realtime
async def test_tools_in_threads_see_the_same() -> None:
    seen: list[Look] = []

    def looked(where: str) -> Tool:
        @tool(name="look")
        def look() -> str:
            seen.append(look_now(where))
            return "looked"

        return look

    child = Agent("child", model=turns([LOOK], []), tools=[looked("child")])
    agent = Agent(
        "lead",
        model=turns([[LOOK, LOOK], [], hand_on("a")], [LOOK]),
        tools=[looked("lead")],
        delegates=[child],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        sessions: list[str] = []

        async def talk(number: int) -> None:
            async with orchestrator.open_session(agent) as session:
                sessions.append(session.id)
                with bind_session(platform="telegram", chat_id=session.id):
                    await session.ask("go")
                await session.wait_idle()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(talk, number)

    assert len(seen) == 10 * (2 + 1 + 1)
    for id_ in sessions:
        own = [look for look in seen if look.session == id_]
        assert {look.chat for look in own} == {id_}
        assert sorted((look.where, look.delivers) for look in own) == [
            ("child", False),
            ("lead", True),
            ("lead", True),
            ("lead", True),
        ]


async def test_a_run_leaves_its_caller_as_it_was() -> None:
    with bind_session(platform="telegram", chat_id="7", session_id="mine"):
        before = look_now("caller")
        async with open_orchestrator(":memory:") as orchestrator:
            run = await orchestrator.run(watched([]), "go")
            async with orchestrator.open_session(watched([])) as session:
                reply = await session.ask("go")
                await session.wait_idle()

            assert look_now("caller") == before
    assert look_now("caller") == Look("caller", "", "", "", delivers=True)
    assert (run.outcome.error, reply.outcome.error) == ("", "")


@pytest.mark.parametrize("how", ["bind", "set"])
async def test_a_session_id_bound_by_the_caller_is_replaced(how: str) -> None:
    """Callers may have bound a session id of their own: inside, ours is the one that holds."""
    seen: list[Look] = []
    agent = watched(seen)
    async with open_orchestrator(":memory:") as orchestrator:

        async def ask(session: Session) -> Reply:
            if how == "bind":
                with bind_session(session_id="mine", chat_id="7"):
                    return await session.ask("go")
            set_session_vars(session_id="mine", chat_id="7")
            return await session.ask("go")

        async with orchestrator.open_session(agent) as session:
            reply = await ask(session)
            await session.wait_idle()

    assert reply.outcome.succeeded, reply.outcome.error
    assert {(look.session, look.chat) for look in seen} == {(session.id, "7")}


async def test_a_tool_may_run_an_orchestrator_of_its_own() -> None:
    seen: list[Look] = []

    async with open_orchestrator(":memory:") as orchestrator:

        @tool
        async def nested() -> str:
            seen.append(look_now("before"))
            inner = Agent("inner", model=turns([LOOK], []), tools=[looking(seen, "in")])
            run = await orchestrator.run(inner, "go")
            seen.append(look_now("after"))
            return run.outcome.error or run.output

        outer = Agent("outer", model=turns([ToolCall("nested")], []), tools=[nested])
        async with orchestrator.open_session(outer) as session:
            reply = await session.ask("go")

    assert reply.text == "looked"
    before, within, after = seen
    assert before.session == after.session == session.id != within.session
    assert (before.delivers, within.delivers, after.delivers) == (True, False, True)


# Where a message comes from.


async def test_values_bound_around_a_run_are_seen_by_its_whole_tree() -> None:
    seen: list[Look] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with bind_session(platform="telegram", chat_id="7"):
            await orchestrator.run(watched(seen), "go")

    assert {(look.platform, look.chat) for look in seen} == {("telegram", "7")}
    assert {look.where for look in seen} == {"lead", "joined", "detached", "leaf"}


async def test_values_bound_around_a_question_are_seen_by_its_turn_and_its_tasks() -> None:
    """By joined and detached children, and by the turn that the news wakes."""
    seen: list[Look] = []
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(watched(seen)) as session:
            with bind_session(platform="telegram", chat_id="7"):
                await session.ask("go")
            await session.wait_idle()

    assert {(look.platform, look.chat) for look in seen} == {("telegram", "7")}
    assert [look.where for look in seen].count("lead") == 3
    assert {look.where for look in seen} == {"lead", "joined", "detached", "leaf"}


async def test_the_next_question_has_its_own() -> None:
    seen: list[Look] = []
    agent = Agent("lead", model=turns([LOOK], []), tools=[looking(seen, "lead")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with bind_session(platform="telegram", chat_id="7"):
                await session.ask("one")
            with bind_session(platform="slack"):
                await session.ask("two")
            await session.ask("three")

    assert [(look.platform, look.chat) for look in seen] == [
        ("telegram", "7"),
        ("slack", ""),
        ("", ""),
    ]


async def ask_both(orchestrator: Orchestrator, agent: Agent, *, at: float) -> Session:
    """Ask from chat 7, and some seconds later from chat 8, in the same session."""
    async with orchestrator.open_session(agent) as session:

        async def ask(chat: str) -> None:
            with bind_session(platform="telegram", chat_id=chat):
                await session.ask(f"from {chat}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "7")
            await trio.sleep(at)
            nursery.start_soon(ask, "8")
        await session.wait_idle()
    return session


async def test_a_question_that_waits_does_not_change_where_the_turn_before_it_is() -> None:
    """Its joined child begins while another client's question waits."""
    seen: list[Look] = []
    child = Agent("child", model=turns([LOOK], []), tools=[looking(seen, "child")])
    pause = ToolCall("pause")

    @tool(name="pause")
    async def waiting() -> str:
        await trio.sleep(10)
        return "waited"

    agent = Agent(
        "lead",
        model=turns([LOOK, pause, hand_on("a", background=False), LOOK], []),
        tools=[looking(seen, "lead"), waiting],
        delegates=[child],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        await ask_both(orchestrator, agent, at=5)

    assert [(look.where, look.chat) for look in seen] == [
        ("lead", "7"),
        ("child", "7"),
        ("lead", "7"),
        ("lead", "8"),
        ("child", "8"),
        ("lead", "8"),
    ]


async def test_a_task_in_the_background_stays_where_it_was_asked_for() -> None:
    """It waits in line while the next turn of its session begins somewhere else."""

    def say(transcript: Transcript) -> Any:
        about, answered = this_turn(transcript)
        if about.startswith("A task") or answered:
            return "ok"
        chat = about.removeprefix("from ")
        return hand_on(f"{chat}a", f"{chat}b", background=True)

    goals: list[tuple[str, str]] = []

    @tool(name="look", idempotent=True)
    async def look(goal: str) -> str:
        await trio.lowlevel.checkpoint()
        goals.append((goal[0], get_session_env(CHAT)))
        return "looked"

    child = Agent(
        "child",
        model=ScriptedModel.always(
            lambda transcript: (
                "done" if len(transcript) > 1 else ToolCall("look", {"goal": transcript[0].text})
            ),
            10,
        ),
        tools=[look],
    )
    agent = Agent("lead", model=ScriptedModel.always(say), delegates=[child])
    async with open_orchestrator(":memory:", rules=Rules(detached=1)) as orchestrator:
        await ask_both(orchestrator, agent, at=5)

    assert goals == [("7", "7"), ("7", "7"), ("8", "8"), ("8", "8")]


async def test_news_wakes_a_turn_where_the_task_was_asked_for() -> None:
    """Not where another client has asked something meanwhile."""
    seen: list[Look] = []

    def say(transcript: Transcript) -> Any:
        about, answered = this_turn(transcript)
        if about == "from 7":
            return "ok" if answered else hand_on("a", background=True)
        return "ok" if answered or about == "from 8" else LOOK

    agent = Agent(
        "lead",
        model=ScriptedModel.always(say),
        tools=[looking(seen, "news")],
        delegates=[worker(seconds=20)],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        await ask_both(orchestrator, agent, at=5)

    assert [(look.where, look.chat) for look in seen] == [("news", "7")]


async def test_concurrent_sessions_never_see_each_others_values() -> None:
    seen: dict[str, list[Look]] = {}
    async with open_orchestrator(":memory:") as orchestrator:

        async def talk(number: int) -> None:
            chat = f"chat {number}"
            own = seen[chat] = []
            async with orchestrator.open_session(watched(own)) as session:
                with bind_session(platform=f"platform {number}", chat_id=chat):
                    await session.ask("go")
                await session.wait_idle()
                assert {look.session for look in own} == {session.id}

        async def run(number: int) -> None:
            chat = f"run {number}"
            own = seen[chat] = []
            with bind_session(platform=f"platform {number}", chat_id=chat):
                finished = await orchestrator.run(watched(own), "go")
            assert {look.session for look in own} == {finished.id}
            assert {look.delivers for look in own} == {False}

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(talk, number)
                nursery.start_soon(run, number)

    assert len(seen) == 40
    for chat, looks in seen.items():
        platform = f"platform {chat.split()[-1]}"
        assert {(look.platform, look.chat) for look in looks} == {(platform, chat)}


async def test_values_bound_around_the_orchestrator_do_not_reach_its_turns() -> None:
    """Its loops run in the opener's context; the turns belong to the client that asks."""
    seen: list[Look] = []
    with bind_session(platform="opener", chat_id="opener"):
        async with open_orchestrator(":memory:") as orchestrator:
            async with orchestrator.open_session(watched(seen)) as session:

                async def ask() -> None:
                    reset_session_vars()
                    with bind_session(platform="telegram"):
                        await session.ask("go")

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
                await session.wait_idle()

    assert {(look.platform, look.chat) for look in seen} == {("telegram", "")}


async def test_bound_values_win_over_the_environment_in_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CHAT, "of the process")
    monkeypatch.setenv(SESSION, "of the process")
    seen: list[Look] = []
    async with open_orchestrator(":memory:") as orchestrator:
        with bind_session(chat_id="7"):
            run = await orchestrator.run(watched(seen), "go")

    assert {(look.chat, look.session) for look in seen} == {("7", run.id)}


async def test_a_tool_that_binds_values_does_not_affect_other_calls() -> None:
    seen: list[Look] = []

    @tool
    async def change() -> str:
        await trio.lowlevel.checkpoint()
        set_session_vars(platform="changed", chat_id="changed", async_delivery=True)
        return "changed"

    change_it = ToolCall("change")
    child = Agent("child", model=turns([LOOK], []), tools=[looking(seen, "child")])
    together = [[change_it, LOOK, hand_on("a")], [], [], LOOK]
    agent = Agent(
        "lead", model=turns(together, []), tools=[change, looking(seen, "lead")], delegates=[child]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        with bind_session(platform="telegram", chat_id="7"):
            run = await orchestrator.run(agent, "go")
            after = look_now("caller")

    assert run.outcome.succeeded
    assert after == Look("caller", "telegram", "7", "", delivers=True)
    assert len(seen) == 3
    assert {(look.chat, look.session, look.delivers) for look in seen} == {("7", run.id, False)}


# Over a restart.


@pytest.mark.realtime
async def test_a_restart_keeps_where_a_question_came_from(tmp_path: Path) -> None:
    """The detached child and the turn that its news wakes run in another process."""
    path = tmp_path / "journal.db"
    seen: list[Look] = []
    begun = trio.Event()
    gate = trio.Event()

    @tool(name="look", idempotent=True)
    async def look_later() -> str:
        begun.set()
        await gate.wait()
        seen.append(look_now("child"))
        return "looked"

    @tool(name="look")
    async def look() -> str:
        await trio.lowlevel.checkpoint()
        seen.append(look_now("news"))
        return "looked"

    child = Agent("child", model=turns([LOOK], []), tools=[look_later])
    agent = Agent(
        "lead",
        model=turns([hand_on("a", background=True)], [LOOK]),
        tools=[look],
        delegates=[child],
    )
    scope = trio.CancelScope()
    with scope:
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                with bind_session(platform="telegram", chat_id="7"):
                    await session.ask("go")
                await begun.wait()
                scope.cancel()
                await trio.sleep_forever()
    gate.set()
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            await again.wait_idle()

    assert seen == [
        Look("child", "telegram", "7", session.id, delivers=False),
        Look("news", "telegram", "7", session.id, delivers=True),
    ]


async def test_a_crash_after_any_entry_keeps_where_a_question_came_from() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(watched([])) as session:
            with bind_session(platform="telegram", chat_id="7"):
                await session.ask("go")
            await session.wait_idle()
    said = next(
        place
        for place, entry in enumerate(journal.entries)
        if isinstance(entry.event, MessageReceived)
    )
    for length in range(said + 1, len(journal.entries)):
        seen: list[Look] = []
        cut = MemoryJournal(journal.entries[:length])
        async with open_orchestrator(cut) as orchestrator:
            with bind_session(platform="opener", chat_id="opener"):
                async with orchestrator.open_session(watched(seen), session=session.id) as again:
                    await again.wait_idle()

        assert {(look.platform, look.chat) for look in seen} <= {("telegram", "7")}


# Every door says what it can do.

DOORS = sorted(
    path
    for path in (Path(house.__file__).parent / "kernel" / "doors").glob("*.py")
    if path.stem
    not in {
        *("__init__", "approvals", "door", "inbound", "lifecycle", "door_state"),
        *("durable_run", "fork_state", "run_events", "streamed_run"),  # they run by `one_shot`
        *("request", "active_span"),  # by `one_shot` and `kept`
    }
)


def declared(source: ast.Module) -> list[str]:
    """Return the capabilities that a module or its classes declare, as they are written."""
    bodies = [source.body] + [
        node.body for node in ast.walk(source) if isinstance(node, ast.ClassDef)
    ]
    found: list[str] = []
    for statement in (statement for body in bodies for statement in body):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name.lower() == "capability":
                found.append(ast.unparse(value))
            case _:
                pass
    return found


def test_the_doors_are_found() -> None:
    assert {path.stem for path in DOORS} >= {"kept", "one_shot", "session"}


@pytest.mark.parametrize("door", DOORS, ids=lambda path: path.stem)
def test_every_door_declares_its_capability_as_a_constant(door: Path) -> None:
    source = ast.parse(door.read_text())

    constants = {f"DeliveryCapability.{name}" for name in DeliveryCapability.__members__}
    assert declared(source)
    assert constants.issuperset(declared(source))


@pytest.mark.parametrize("door", DOORS, ids=lambda path: path.stem)
def test_no_door_takes_a_capability_as_a_parameter(door: Path) -> None:
    """One chokepoint for each, and no parameter that could override it."""
    parameters = [
        argument
        for node in ast.walk(ast.parse(door.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for argument in [
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
            *filter(None, [node.args.vararg, node.args.kwarg]),
        ]
    ]

    for parameter in parameters:
        assert "capability" not in parameter.arg
        assert "async_delivery" not in parameter.arg
        written = ast.unparse(parameter.annotation) if parameter.annotation else ""
        assert "DeliveryCapability" not in written
