"""An editor that talks to a team in this process, message by message."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

from orchestrator import open_orchestrator
from orchestrator.agents import Agent
from orchestrator.backends import journals_at
from orchestrator.cli.journal_queries import read_runs
from orchestrator.ports.journals import HeldJournal
from orchestrator.ports.sessions import Orchestrator
from orchestrator.products.acp.team import Served, serve_editor

PATIENCE: Final = 30
Message = dict[str, Any]


class RefusedError(Exception):
    """The agent answered with an error."""

    def __init__(self, error: Message) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class Editor:
    """The client: it sends requests, and keeps the messages of the agent."""

    def __init__(self, stream: trio.abc.SendStream, orchestrators: list[Orchestrator]) -> None:
        self._stream = stream
        self._last_id = 0
        self.orchestrators = orchestrators
        self.messages: list[Message] = []
        """All messages of the agent, in their order."""
        self.changed = trio.Event()
        self.chosen: str | None = "once"
        """The option that the user chooses; None leaves a question open."""
        self.asked: list[Message] = []
        """The questions of the agent."""

    async def send(self, **message: Any) -> None:
        await self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def send_line(self, line: bytes) -> None:
        await self._stream.send_all(line + b"\n")

    async def begin(self, method: str, **params: Any) -> int:
        """Send a request, and return its id."""
        self._last_id += 1
        await self.send(id=self._last_id, method=method, params=params)
        return self._last_id

    async def answer(self, id_: int | None) -> Any:
        """Return the answer to a request, once it is there."""

        def is_answer(message: Message) -> bool:
            return "method" not in message and message["id"] == id_

        message = await self.wait_message(is_answer)
        if "error" in message:
            raise RefusedError(message["error"])
        return message["result"]

    async def ask(self, method: str, **params: Any) -> Any:
        """Send a request, and return the answer."""
        return await self.answer(await self.begin(method, **params))

    async def prompt(self, session: str, text: str = "Go.") -> str:
        """Send a prompt, and return the stop reason."""
        ended = await self.answer(await self.begin_prompt(session, text))
        return str(ended["stopReason"])

    async def begin_prompt(self, session: str, text: str = "Go.") -> int:
        blocks = [{"type": "text", "text": text}]
        return await self.begin("session/prompt", sessionId=session, prompt=blocks)

    async def open(self, cwd: Path, **capabilities: Any) -> str:
        """Begin, and open a session."""
        await self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)
        opened = await self.ask("session/new", cwd=str(cwd), mcpServers=[])
        return str(opened["sessionId"])

    async def wait_message(self, fits: Callable[[Message], bool]) -> Message:
        """Return the first message that fits, once it is there."""
        with trio.fail_after(PATIENCE):
            while True:
                for message in self.messages:
                    if fits(message):
                        return message
                await self.changed.wait()

    async def wait_update(self, kind: str, fits: Callable[[Message], bool] = lambda _: True) -> Any:
        """Return the first update of a kind that fits, once it is there."""

        def is_it(message: Message) -> bool:
            update = message.get("params", {}).get("update", {})
            return update.get("sessionUpdate") == kind and fits(update)

        return (await self.wait_message(is_it))["params"]["update"]

    def updates(self, *kinds: str, session: str | None = None) -> list[Message]:
        """Return the updates so far, of some kinds and one session, or all."""
        found = [it["params"] for it in self.messages if it.get("method") == "session/update"]
        return [
            it["update"]
            for it in found
            if (not kinds or it["update"]["sessionUpdate"] in kinds)
            and session in {None, it["sessionId"]}
        ]

    def text(self, session: str | None = None) -> str:
        """Return the text that the agent has written."""
        chunks = self.updates("agent_message_chunk", session=session)
        return "".join(it["content"]["text"] for it in chunks)

    async def leave(self) -> None:
        """Close the stdin of the agent."""
        await self._stream.aclose()

    async def read_forever(self, stream: trio.abc.ReceiveStream) -> None:
        """Read the messages of the agent, and answer its questions."""
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.messages.append(message)
                self.changed.set()
                self.changed = trio.Event()
                if message.get("method") == "session/request_permission":
                    self.asked.append(message["params"])
                    if self.chosen is not None:
                        outcome = {"outcome": "selected", "optionId": self.chosen}
                        await self.send(id=message["id"], result={"outcome": outcome})


@asynccontextmanager
async def open_editor(agent: Agent[Any], journal: Path) -> AsyncGenerator[Editor]:
    """Serve an agent to an editor, as long as the block lasts."""
    journals = journals_at(f"{journal}/")
    orchestrators: list[Orchestrator] = []

    def opened(held: HeldJournal) -> Any:
        return open_orchestrator(held.journal)

    served = Served(
        agent=agent,
        journals=journals,
        open_orchestrator=opened,
        list_runs=lambda: read_runs(journals).shown,
        orchestrators=orchestrators,
    )
    to_agent, stdin = trio.testing.memory_stream_one_way_pair()
    stdout, from_agent = trio.testing.memory_stream_one_way_pair()
    editor = Editor(to_agent, orchestrators)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(editor.read_forever, from_agent)
        nursery.start_soon(partial(_serve, served, stdin, stdout))
        yield editor
        await editor.leave()


async def _serve(
    served: Served, stdin: trio.abc.ReceiveStream, stdout: trio.abc.SendStream
) -> None:
    with trio.fail_after(PATIENCE):
        async with stdout:
            await serve_editor(served, stdin, stdout)
