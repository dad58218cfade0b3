"""The process that is killed, as a server: `orchestrator serve`, and its clients over HTTP.

The clients live in the parent. They send everything again after a kill, under the same
idempotency keys, and read all facts from the beginning.
"""

import json
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import attrs
import httpx2
import trio

from tests.chaos.life import Life
from tests.chaos.plan import Node, Plan, plan_of
from tests.server.server_process import ServerProcess

AGENTS: Final = """
import json
import os

from tests.chaos.fault_points import FaultPoints
from tests.chaos.life import Life
from tests.chaos.team import roots

life = Life(**json.loads(os.environ["CHAOS_LIFE"]))
globals().update(roots(life, FaultPoints(life)))
"""
POINTS: Final = {
    "before the model is asked": 30,
    "after the answer arrived": 30,
    "before the effect": 10,
    "after the effect": 10,
    "after a receipt": 10,
}
"""The points that a server reaches, or that its clients see."""


class ServedWorker:
    """A server that is started again and again on the same journal."""

    def __init__(self, server: ServerProcess, environ: dict[str, str]) -> None:
        self._server = server
        self._environ = environ
        self._is_up = False
        self.killed_at = 0.0

    async def live(self, life: Life, *, seconds: float) -> int:
        """Serve until the sessions are idle, or kill it before, and return its exit code.

        Args:
            life: what is served, and where it dies.
            seconds: when it is killed at the latest.
        """
        self._environ["CHAOS_LIFE"] = json.dumps(attrs.asdict(life))
        try:
            await self._server.start()
        except AssertionError:
            # It resumes what it finds, and may die of that before it listens.
            return await self._server.wait()
        self._is_up = True
        is_done = False
        try:
            with trio.move_on_after(seconds):
                async with self._server.http() as http:
                    await HttpClients(life, http, self.kill).work()
                is_done = True
        except* httpx2.HTTPError:
            # It is dead, and its clients have noticed.
            pass
        code = await self._server.terminate() if is_done else await self._end()
        self._is_up = False
        return code

    def kill(self) -> None:
        """Kill the server that lives now."""
        if self._is_up:
            self.killed_at = time.time()
            self._server.signal(SIGKILL)

    async def _end(self) -> int:
        self.kill()
        return await self._server.wait()


class HttpClients:
    """All that is asked of one server."""

    def __init__(self, life: Life, http: httpx2.AsyncClient, kill: Callable[[], None]) -> None:
        self._life = life
        self._plan: Plan = plan_of(life.plan)
        self._http = http
        self._kill = kill
        self._receipts = life.receipts
        self._left = life.count if life.point == "after a receipt" else 0

    async def work(self) -> None:
        """Converse with all roots until they are idle."""
        async with trio.open_nursery() as sessions:
            for node in self._plan.roots:
                sessions.start_soon(self._converse, node)

    async def _converse(self, node: Node) -> None:
        session = await self._send("/v1/sessions", {"model": node.id}, key=node.id)
        id_ = session["id"]
        if not any(it["session"] == id_ for it in self._receipts.read("session")):
            self._receipt("session", node=node.id, session=id_)
        async with trio.open_nursery() as beside:
            beside.start_soon(self._follow, id_, beside)
            for number in range(1, len(node.asks) + 1):
                text = f"ask {number} of {node.id}"
                path = f"/v1/sessions/{id_}/messages"
                await self._send(path, {"text": text}, key=f"{node.id} {number}")
                self._receipt("asked", session=id_, text=text)
            await self._take_replies(id_)
            beside.cancel_scope.cancel()

    async def _take_replies(self, session: str) -> None:
        """Take replies until the session has nothing left to do."""
        path = f"/v1/sessions/{session}"
        while True:
            inbox = (await self._http.get(f"{path}/inbox?wait=0.5")).json()
            for reply in inbox["data"]:
                self._receipt(
                    "reply", session=session, turn=reply["turn"], text=reply["text"], to=0
                )
                await self._http.delete(f"{path}/inbox/{reply['turn']}")
            shown = (await self._http.get(path)).json()
            if shown["status"] == "idle" and not shown["inbox"]:
                return

    async def _follow(self, session: str, beside: trio.Nursery) -> None:
        """Read the facts of a session, and interfere where the plan says so."""
        path = f"/v1/sessions/{session}/events"
        agents: dict[str, str] = {session: session}
        async with self._http.stream("GET", path) as events:
            async for line in events.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                fact = json.loads(line.removeprefix("data: "))
                body: Mapping[str, Any] = fact.get("body", {})
                match fact.get("kind"):
                    case "SessionOpened":
                        agents[session] = body["agent"]
                    case "TaskRequested":
                        task, agent = body["request"]["id"], body["request"]["agent"]
                        agents[task] = agent
                        if agent in self._plan.cancels:
                            beside.start_soon(self._cancel, agent, task)
                        if body["started"] and agent in self._plan.steers:
                            beside.start_soon(self._steer, agent, task)
                    case "TaskStarted":
                        if (agent := agents[body["task"]]) in self._plan.steers:
                            beside.start_soon(self._steer, agent, body["task"])
                    case "ApprovalAsked":
                        node = self._plan.nodes[agents[body["task"]]]
                        beside.start_soon(self._answer, node, body["id"])
                    case _:
                        pass

    async def _cancel(self, node: str, task: str) -> None:
        await trio.sleep(self._plan.cancels[node])
        await self._send(f"/v1/tasks/{task}/cancel")
        self._receipt("cancelled", node=node, task=task)

    async def _steer(self, node: str, task: str) -> None:
        text = f"hear over http {random.randrange(10**9)}"
        receipt = await self._send(f"/v1/tasks/{task}/steer", {"text": text})
        self._receipt("steered", node=node, task=task, text=text, state=receipt["state"])

    async def _answer(self, node: Node, approval: str) -> None:
        answer = "once" if node.approves else "deny"
        path = f"/v1/approvals/{approval}"
        response = await self._http.post(path, json={"answer": answer})
        # After a kill it is asked again of what was answered before.
        if response.is_success:
            self._receipt("verdict", approval=approval, answer=answer)

    async def _send(self, path: str, body: Any = None, *, key: str = "") -> Any:
        headers = {"idempotency-key": f"{self._life.label} {key}"} if key else {}
        response = await self._http.post(path, json=body, headers=headers)
        assert response.is_success, f"{path}: {response.status_code} {response.text}"
        return response.json()

    def _receipt(self, kind: str, **fields: Any) -> None:
        self._receipts.write(kind, **fields)
        self._left -= 1
        if self._left == 0:
            self._kill()


@asynccontextmanager
async def open_served_worker(home: Path) -> AsyncGenerator[ServedWorker]:
    environ = {"CHAOS_ROUND": str(home)}
    await trio.Path(home / "agents_file.py").write_text(AGENTS)
    server = ServerProcess(home, ("--workspace", str(home)), environ)
    try:
        yield ServedWorker(server, environ)
    finally:
        with trio.CancelScope(shield=True):
            await server.stop()
