"""Servers that are reached by HTTP: restarted, refusing, slow, and with secrets in headers."""

from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import ToolCall
from tests.mcp.kit import Caller, Log, at, serving, use, user

pytestmark = pytest.mark.realtime


def reply(text: str) -> ToolCall:
    content = [{"type": "text", "text": text}]
    return ToolCall("bad__reply", {"result": {"content": content}})


async def test_a_server_on_http_is_called(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    async with serving(HOSTILE_LOG=log.path) as port:
        model = await use(at(port), calls=[reply("hello")])

        assert model.answers[0].text == "hello"
        # Its session is ended with the connection.
        await log.wait_heard("deleted")


async def test_a_restarted_server_is_connected_again_and_the_call_made_once(tmp_path: Path) -> None:
    """A session that the server does not know has run nothing, so the call is repeated."""
    count = tmp_path / "count"
    calls = [ToolCall("bad__count"), ToolCall("bad__count")]
    model = Caller(calls[0])
    again = Caller(calls[1])
    async with open_orchestrator(":memory:") as orchestrator:
        async with serving(HOSTILE_COUNT=str(count)) as port:
            await orchestrator.run(user(model, at(port)), "go")
        async with serving(port=port, HOSTILE_COUNT=str(count)):
            await orchestrator.run(user(again, at(port)), "go")

    assert model.answers[0].text == "1"
    assert again.answers[0].text == "2"
    assert count.read_text() == "2"


async def test_a_call_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    """Its tools stay listed, and the call is made when it is back."""
    async with open_orchestrator(":memory:") as orchestrator:
        async with serving() as port:
            server = at(port, timeout=30)
            await orchestrator.run(user(Caller(reply("one")), server), "go")
        model = Caller(reply("two"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, user(model, server), "go")
            await model.wait_asked()
            async with serving(port=port):
                await model.wait_asked(times=2)

    assert "bad__reply" in model.tools
    assert model.answers[0].text == "two"


async def test_a_call_ends_with_its_deadline_where_the_server_stays_away() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with serving() as port:
            server = at(port, timeout=0.6)
            await orchestrator.run(user(Caller(reply("one")), server), "go")
        model = Caller(reply("two"))
        await orchestrator.run(user(model, server), "go")

    assert model.answers[0].failed
    assert "was not called" in model.answers[0].text
    assert "cannot be reached" in model.answers[0].text


async def test_a_refusal_of_one_call_fails_alone() -> None:
    async with serving("--status", "503") as port:
        model = await use(at(port), calls=[[reply("one"), reply("two")]])

    assert [it.failed for it in model.answers] == [True, True]
    assert "503" in model.answers[0].text


async def test_secret_headers_reach_only_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "correct-horse-battery"
    monkeypatch.setenv("SHOP_LOGIN", secret)
    journal = MemoryJournal()
    async with serving() as port:
        server = at(port, headers={"Authorization": "Bearer ${SHOP_LOGIN}"})
        model = Caller(reply(f"you are {secret}"))
        async with open_orchestrator(journal) as orchestrator:
            done = await orchestrator.run(user(model, server), "go")

    assert secret not in repr(server)
    assert secret not in repr(done)
    assert secret not in _text(journal.entries)
    assert "you are" in _text(journal.entries)


def _text(entries: Any) -> str:
    return "\n".join(map(repr, entries))
