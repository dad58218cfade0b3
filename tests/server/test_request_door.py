"""One place decides what can be delivered after a request, and it ends with the request."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel, ToolCall, UserMessage, tool
from orchestrator.delegation import DeliveryCapability, Mode, SessionId
from orchestrator.delegation.events import TaskRequested, TurnStarted
from orchestrator.delegation.session_context import (
    async_delivery_supported,
    bind_session,
    get_session_env,
)
from orchestrator.kernel.doors.inbound import InboundRequest
from orchestrator.products.server.app import ROUTES
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.testing import facts, hand_on
from tests.server.chat_kit import HELLO
from tests.server.chokepoint import breaches_in, breaches_of
from tests.server.kit import Served, serving

CHAT_ID = "ORCHESTRATOR_SESSION_CHAT_ID"


def test_no_route_opens_a_session_by_itself() -> None:
    assert breaches_of(ROUTES) == []


def test_every_route_is_looked_at() -> None:
    """The check would also pass if it found no routes."""
    paths = {operation.path for operation in ROUTES}

    assert {"/v1/models", "/v1/chat/completions", "/mcp"} <= paths
    assert all(operation.name for operation in ROUTES)


MADE_UP = """
from starlette.responses import Response
{imports}

async def handle(call):
    {does}
    return Response()
"""


@pytest.mark.parametrize(
    ("imports", "does", "found"),
    [
        (
            "from orchestrator.delegation import DeliveryCapability",
            "call.capability = DeliveryCapability.PUSH",
            "uses DeliveryCapability",
        ),
        (
            "from orchestrator import delegation",
            "call.server.give(delegation.DeliveryCapability.PUSH)",
            "uses DeliveryCapability",
        ),
        (
            "from orchestrator.delegation.session_context import bind_session",
            "bind_session(async_delivery=True).__enter__()",
            "calls bind_session",
        ),
        (
            "from orchestrator.delegation import session_context",
            "session_context.set_session_vars(async_delivery=True)",
            "calls set_session_vars",
        ),
        (
            "from orchestrator.kernel.doors.one_shot import run_once",
            "await run_once(call.journal.orchestrator.sessions, None, '', ())",
            "imports orchestrator.kernel.doors.one_shot",
        ),
        (
            "from orchestrator.kernel.doors.inbound import open_inbound_session",
            "open_inbound_session(call.journal.orchestrator.sessions, None, 'r_1')",
            "imports open_inbound_session",
        ),
        (
            "from orchestrator.kernel.doors import inbound",
            "inbound.post_message(call.journal.orchestrator.sessions, None, 'r_1')",
            "calls inbound.post_message",
        ),
        (
            "from orchestrator.kernel.doors.lifecycle import connect_door",
            "connect_door(call.journal.orchestrator.sessions, None, None, None)",
            "imports orchestrator.kernel.doors.lifecycle",
        ),
        (
            "from orchestrator.kernel.doors import lifecycle",
            "lifecycle.open_new_session(call.journal.orchestrator.sessions, None)",
            "calls open_new_session",
        ),
        ("", "await call.journal.orchestrator.run(None, '')", "calls orchestrator.run"),
        ("", "call.journal.orchestrator.open_session(None)", "calls open_session"),
        (
            "from orchestrator.delegation.events import MessageReceived",
            "call.book.append(MessageReceived('r_1', ''))",
            "makes the fact MessageReceived",
        ),
        (
            "from orchestrator.delegation.events import MessageReceived as Told",
            "call.book.append(Told('r_1', ''))",
            "makes the fact Told",
        ),
        ("", "call.journal.orchestrator.facts.post(call.fact)", "calls facts.post"),
        (
            "",
            "turns = call.journal.orchestrator.sessions.turns; turns.begin(None, None)",
            "calls turns.begin",
        ),
        ("", "seq = call.journal.orchestrator._engine.book.ledger.last_seq", "uses _engine"),
        ("from orchestrator.ports.journals import Bookkeeper", "del call", "imports Bookkeeper"),
        (
            "from orchestrator.kernel.journal.bookkeeper import Bookkeeper",
            "del call",
            "imports orchestrator.kernel.journal.bookkeeper",
        ),
        (
            "from orchestrator.kernel.doors.request import RequestDoor",
            "RequestDoor(None, {}, None)",
            "calls RequestDoor",
        ),
    ],
)
def test_an_added_route_that_does_is_found(
    imports: str, does: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "made_up_route.py"
    file.write_text(MADE_UP.format(imports=imports, does=does))
    spec = importlib.util.spec_from_file_location("made_up_route", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "made_up_route", module)
    spec.loader.exec_module(module)
    added = Operation("POST", "/v1/made-up", None, Answer("Made up"))(module.handle)

    breaches = breaches_of([added])

    assert any(it.startswith("made_up_route:") and it.endswith(found) for it in breaches), breaches


def test_door_calls_and_comparisons_are_no_breach() -> None:
    source = """
from orchestrator.delegation import DeliveryCapability
from orchestrator.delegation.events import Entry

async def handle(call):
    session = call.journal.door.open_one_turn(call.request)
    is_pushed = session.door is DeliveryCapability.PUSH
    match call.entry:
        case Entry():
            return await call.journal.door.run_turn(session)
"""

    assert breaches_in(source) == []


def prober(seen: list[tuple[bool, str]]) -> Agent:
    """Return an agent whose tool says what the turn that it works for can do."""

    @tool
    async def probe() -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        seen.append((async_delivery_supported(), get_session_env(CHAT_ID, "never set")))
        return "seen"

    def answer(said: Any) -> Any:
        return ToolCall("probe") if isinstance(said[-1], UserMessage) else "done"

    return Agent("prober", model=ScriptedModel.always(answer), tools=[probe])


async def chat(served: Served, chat_id: str | None) -> None:
    await served.openai.chat.completions.create(
        model="prober",
        messages=HELLO,
        extra_headers={} if chat_id is None else {"X-Session-Chat-Id": chat_id},
    )


@pytest.mark.realtime
async def test_a_request_leaves_no_values_for_the_next_turn() -> None:
    """The same connection, the same process, the same agent: each turn has its own door's."""
    seen: list[tuple[bool, str]] = []
    agent = prober(seen)
    async with serving(agent) as served:
        door = served.server.state.journals.first.door
        await chat(served, "a")
        await chat(served, None)
        kept = door.open_background(InboundRequest(agent=agent, message=UserMessage("go")))
        await door.wait_over(kept)
        with bind_session(chat_id="of a chat program"):
            async with served.orchestrator.open_session(agent) as session:
                await session.ask("go")
        await chat(served, "b")

        assert seen == [
            (False, "a"),
            (False, ""),
            (True, "never set"),
            (True, "of a chat program"),
            (False, "b"),
        ]
        # And nothing is left where the server itself runs.
        assert async_delivery_supported()
        assert get_session_env(CHAT_ID, "never set") == "never set"


@pytest.mark.realtime
async def test_the_session_of_a_request_can_be_told_again_behind_another_door() -> None:
    """The request cannot receive later results, but its session can."""
    child = Agent("child", model=ScriptedModel.always("found it"))
    dig = hand_on("dig", background=True)
    agent = Agent(
        "parent", model=ScriptedModel([dig, "joined", dig, "detached", "told"]), delegates=[child]
    )
    async with serving(agent) as served:
        answer = await served.openai.chat.completions.create(model="parent", messages=HELLO)
        run = SessionId(f"r_{answer.id.removeprefix('chatcmpl-')}")
        async with served.orchestrator.open_session(agent, session=run) as session:
            await session.ask("again")
            await session.wait_idle()
        entries = await served.orchestrator.read.entries(run)

    capabilities = [turn.capability for turn in facts(entries, TurnStarted)]
    assert capabilities[0] is DeliveryCapability.NONE
    assert DeliveryCapability.NONE not in capabilities[1:]
    modes = [asked.mode for asked in facts(entries, TaskRequested)]
    assert modes == [Mode.JOINED, Mode.DETACHED]
