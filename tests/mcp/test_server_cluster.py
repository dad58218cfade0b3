"""Several servers of one folder: each answers for the tasks of all."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from orchestrator.backends import journals_at
from tests.mcp.server_kit import LEGACY, Rpc, deleter, slow_team
from tests.server.test_folder_server import WORKER, Disk, Served, serving

pytestmark = pytest.mark.realtime


async def test_a_task_is_found_at_every_server_of_a_folder(tmp_path: Path) -> None:
    journals = journals_at(f"{tmp_path / 'runs'}/")
    async with serving(journals, Disk()) as one, serving(journals, Disk()) as other:
        here, there = Rpc(http=one.http), Rpc(http=other.http)
        id_ = (await here.call(WORKER.name, goal="go"))["taskId"]
        done = await there.until(id_, "completed")
        tree = await there.ask("resources/read", uri=f"run://{id_}/tree.txt")
        await there.ask("tasks/cancel", taskId=id_)
        joined = await Rpc(http=other.http, can_poll=False).call(WORKER.name, goal="go")
        listed = await here.ask("resources/list")

    assert done["result"]["isError"] is False
    assert WORKER.name in tree["contents"][0]["text"]
    assert joined["isError"] is False
    assert len(listed["resources"]) == 2


async def send_legacy(served: Served, session: str, **message: Any) -> httpx2.Response:
    """Send a message of the older protocol."""
    return await served.http.post(
        "/mcp",
        json={"jsonrpc": "2.0", **message},
        headers={
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": LEGACY,
            **({"mcp-session-id": session} if session else {}),
        },
    )


async def open_session(served: Served) -> str:
    """Return the id of a session of the older protocol."""
    hello = {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    }
    opened = await send_legacy(served, "", id=1, method="initialize", params=hello)
    return opened.headers["mcp-session-id"]


async def test_a_client_cancels_its_own_call_at_every_server_of_a_folder(tmp_path: Path) -> None:
    journals = journals_at(f"{tmp_path / 'runs'}/")
    boss, gate = slow_team()
    call = {"name": "boss", "arguments": {"goal": "go"}}
    async with (
        serving(journals, Disk(), agents=[boss]) as one,
        serving(journals, Disk(), agents=[boss]) as other,
    ):
        sessions = [await open_session(it) for it in (one, one)]
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for number, session in enumerate(sessions, 1):
                    message = {"id": 7, "method": "tools/call", "params": call}
                    nursery.start_soon(partial(send_legacy, one, session, **message))
                    await gate.wait_called(number)
                cancel = {"method": "notifications/cancelled", "params": {"requestId": 7}}
                nameless = await send_legacy(other, "", **cancel)
                answer = await send_legacy(other, sessions[0], **cancel)
                runs = await statuses(one)
                while "cancelled" not in runs:
                    runs = await statuses(one)
                gate.release()
        runs += await statuses(one)

    assert (nameless.status_code, answer.status_code) == (409, 202)
    assert sorted(runs) == ["cancelled", "cancelled", "completed", "in_progress"]


async def statuses(served: Served) -> list[str]:
    return [it["status"] for it in (await served.http.get("/v1/runs")).json()["data"]]


async def test_a_call_that_asks_goes_on_at_every_server_of_a_folder(tmp_path: Path) -> None:
    journals = journals_at(f"{tmp_path / 'runs'}/")
    agents = [deleter()]
    async with (
        serving(journals, Disk(), agents=agents) as one,
        serving(journals, Disk(), agents=agents) as other,
    ):
        here, there = (Rpc(http=it.http, can_poll=False, can_ask=True) for it in (one, other))
        asked = await here.call("deleter", goal="a.txt")
        answers = {
            it: {"action": "accept", "content": {"confirm": True}} for it in asked["inputRequests"]
        }
        done = await there.ask(
            "tools/call", name="deleter", requestState=asked["requestState"], inputResponses=answers
        )

    assert done["content"][0]["text"] == "done"
