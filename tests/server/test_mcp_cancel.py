"""Calls over MCP that a client of revision 2025-11-25 cancels by a notification."""

from typing import Any

import httpx2
import pytest
import trio

from orchestrator.agents import Agent, AssistantMessage, ModelRequest
from tests.kit import FunctionModel
from tests.server.kit import Served, serving

pytestmark = pytest.mark.realtime


async def _send(served: Served, body: dict[str, Any]) -> httpx2.Response:
    return await served.http.post(
        "/mcp",
        json={"jsonrpc": "2.0", **body},
        headers={
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        },
    )


def _cancel(id_: int) -> dict[str, Any]:
    return {"method": "notifications/cancelled", "params": {"requestId": id_}}


CALL: dict[str, Any] = {
    "id": 7,
    "method": "tools/call",
    "params": {"name": "slow", "arguments": {"goal": "go"}},
}


def _slow() -> tuple[trio.Semaphore, Agent]:
    """Return an agent whose model never answers, and a semaphore that each call releases."""
    begun = trio.Semaphore(0)

    async def wait(request: ModelRequest) -> AssistantMessage:
        begun.release()
        await trio.sleep_forever()
        raise AssertionError

    return begun, Agent("slow", model=FunctionModel(wait))


async def test_a_notification_for_two_calls_with_one_id_is_refused() -> None:
    begun, agent = _slow()
    async with serving(agent) as served:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(_send, served, CALL)
                    await begun.acquire()
                answer = await _send(served, _cancel(7))
                runs = (await served.http.get("/v1/runs")).json()["data"]
                nursery.cancel_scope.cancel()

    assert answer.status_code == 409
    assert [run["status"] for run in runs] == ["in_progress"] * 2


async def test_a_notification_cancels_the_call_with_its_id_and_the_run() -> None:
    begun, agent = _slow()
    async with serving(agent) as served:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send, served, CALL)
                await begun.acquire()
                other = await _send(served, _cancel(8))
                (still,) = (await served.http.get("/v1/runs")).json()["data"]
                answer = await _send(served, _cancel(7))
            (run,) = (await served.http.get("/v1/runs")).json()["data"]

    assert (other.status_code, answer.status_code) == (202, 202)
    assert still["status"] == "in_progress"
    assert run["status"] == "cancelled"
