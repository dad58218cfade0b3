"""Concurrent requests know nothing of each other, and do not wait for each other."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    allow,
    tool,
)
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.terminal import terminal
from orchestrator.delegation import SessionId
from orchestrator.delegation.session_context import async_delivery_supported, get_session_env
from orchestrator.products.server.transport import http11
from orchestrator.testing import hand_on
from tests.server.chat_kit import HELLO, streaming
from tests.server.kit import Served, serving
from tests.server.runs_kit import ended

pytestmark = [
    pytest.mark.realtime,
    # The client leaves its streams to the garbage collector, which is its own to mend.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

REQUESTS: Final = 200
VARIABLES: Final = {
    "ORCHESTRATOR_SESSION_PLATFORM": "X-Session-Platform",
    "ORCHESTRATOR_SESSION_CHAT_ID": "X-Session-Chat-Id",
    "ORCHESTRATOR_SESSION_USER_ID": "X-Session-User-Id",
    "ORCHESTRATOR_SESSION_CWD": "X-Session-Workspace",
}
"""The variables that tools read, and the headers that set them."""
NOT_SENT: Final = (
    *("ORCHESTRATOR_SESSION_THREAD_ID", "ORCHESTRATOR_SESSION_KEY"),
    "ORCHESTRATOR_CRON_AUTO_DELIVER_CHAT_ID",
)
OF_THE_SERVER: Final = "of the server itself"
PATIENCE: Final = 120


def surroundings() -> dict[str, Any]:
    """Return all that a tool can find out about whom it works for."""
    return {
        **{name: get_session_env(name, "nothing") for name in (*VARIABLES, *NOT_SENT)},
        "ORCHESTRATOR_SESSION_ID": get_session_env("ORCHESTRATOR_SESSION_ID"),
        "is_told_later": async_delivery_supported(),
        "workspace": str(current_tool_context().workspace),
    }


class Meeting:
    """Where many wait until all of them are there."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._all_there = trio.Event()

    async def wait(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._all_there.set()
        await self._all_there.wait()


class Inspecting:
    """Has everything looked at that it can, and says what was found."""

    name = "inspecting"

    def __init__(self, calls: Callable[[int], Sequence[ToolCall]]) -> None:
        self._calls = calls

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        said = request.transcript
        number = int(said[0].text.rpartition(" ")[2])
        # Each request uses another number of tokens.
        usage = Usage(calls=1, input_tokens=number, output_tokens=1)
        found = {it.call: it.text for it in said if isinstance(it, ToolMessage)}
        if not found:
            return AssistantMessage("", tuple(self._calls(number)), usage)
        made = [it.calls for it in said if isinstance(it, AssistantMessage)][-1]
        report = {
            "heard": [it.text for it in said if not isinstance(it, ToolMessage)],
            "instructions": request.instructions,
            "found": [found[call.id] for call in made],
        }
        return AssistantMessage(json.dumps(report), (), usage)


LOOK_IN_A_THREAD: Final = ToolCall("look_in_a_thread")
SHELL: Final = ToolCall("terminal", {"command": "env; echo PWD_IS=$(pwd)"})


def inspector(meeting: Meeting) -> Agent:
    """Return an agent that looks around in every way there is, and so does its child."""

    @tool
    async def look() -> Any:
        """Look, wait until all requests look, and look again."""
        before = surroundings()
        await meeting.wait()
        return [before, surroundings()]

    @tool
    def look_in_a_thread() -> Any:
        """Look from a worker thread."""
        return surroundings()

    child = Agent("child", model=Inspecting(lambda _: [LOOK_IN_A_THREAD]), tools=[look_in_a_thread])
    return Agent(
        "inspector",
        model=Inspecting(
            lambda number: [
                ToolCall("look"),
                LOOK_IN_A_THREAD,
                SHELL,
                hand_on(f"look for {number}", background=False),
            ]
        ),
        tools=[look, look_in_a_thread, terminal],
        approve=[allow("*")],
        delegates=[child],
    )


def only_for(number: int) -> str:
    """Return the instructions of a request."""
    return f"only for {number}"


def headers_of(number: int) -> dict[str, str]:
    """Return where a request says that it comes from."""
    return {header: f"{header.lower()}-{number}" for header in VARIABLES.values()}


@attrs.frozen
class Answered:
    """The result of one request."""

    run: str
    text: str
    tokens: int


def said_by(number: int) -> list[Any]:
    """Return the conversation that a request sends."""
    return [
        {"role": "user", "content": f"I am {number}"},
        {"role": "assistant", "content": f"hello {number}"},
        {"role": "user", "content": f"look around, {number}"},
    ]


async def ask_for_a_completion(served: Served, number: int) -> Answered:
    answer: Any = await served.openai.chat.completions.create(
        model="inspector",
        messages=[{"role": "system", "content": only_for(number)}, *said_by(number)],
        extra_headers=headers_of(number),
        timeout=PATIENCE,
    )
    text = answer.choices[0].message.content
    return Answered(answer.run_id, text, answer.usage.total_tokens)


async def ask_for_a_stream(served: Served, number: int) -> Answered:
    stream = await served.openai.chat.completions.create(
        model="inspector",
        messages=[{"role": "system", "content": only_for(number)}, *said_by(number)],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=headers_of(number),
        timeout=PATIENCE,
    )
    chunks: list[Any] = [chunk async for chunk in stream]
    text = "".join(it.choices[0].delta.content or "" for it in chunks if it.choices)
    return Answered(chunks[0].run_id, text, chunks[-1].usage.total_tokens)


async def ask_for_a_response(served: Served, number: int) -> Answered:
    answer = await served.openai.responses.create(
        model="inspector",
        input=said_by(number),
        instructions=only_for(number),
        extra_headers=headers_of(number),
        timeout=PATIENCE,
    )
    assert answer.usage is not None
    run = f"r_{answer.id.removeprefix('resp_')}"
    return Answered(run, answer.output_text, answer.usage.total_tokens)


async def ask_for_a_run(served: Served, number: int) -> Answered:
    begun = await served.http.post(
        "/v1/runs",
        json={"model": "inspector", "input": f"I am {number}", "instructions": only_for(number)},
        headers=headers_of(number),
        timeout=PATIENCE,
    )
    run = await ended(served, begun.json()["id"])
    used = run["usage"]["input_tokens"] + run["usage"]["output_tokens"]
    return Answered(run["id"], run["output"], used)


ASKING: Final = (ask_for_a_completion, ask_for_a_stream, ask_for_a_response, ask_for_a_run)
"""The ways to ask: a request takes the one of its number."""


async def ask(served: Served, number: int) -> Answered:
    return await ASKING[number % len(ASKING)](served, number)


def is_a_run(number: int) -> bool:
    """Tell whether a request can be told more later."""
    return ASKING[number % len(ASKING)] is ask_for_a_run


def assert_own(found: Mapping[str, Any], number: int, run: str, folder: Path) -> None:
    """Hold what a tool has found against what its request has said."""
    headers = headers_of(number)
    for name, header in VARIABLES.items():
        assert found[name] == headers[header]
    for name in NOT_SENT:
        assert found[name] == ""
    assert found["ORCHESTRATOR_SESSION_ID"] == run
    assert found["workspace"] == str(folder / headers["X-Session-Workspace"])


def assert_own_shell(said: str, number: int, run: str, folder: Path) -> None:
    """Hold what a process was given against what its request has said."""
    output = json.loads(said)["output"]
    environ = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    headers = headers_of(number)
    for name, header in VARIABLES.items():
        assert environ[name] == headers[header]
    for name in NOT_SENT:
        assert environ[name] == ""
    assert environ["ORCHESTRATOR_SESSION_ID"] == run
    assert environ["PWD_IS"] == str(folder / headers["X-Session-Workspace"])
    assert OF_THE_SERVER not in output


def assert_all_own(answered: Answered, number: int, served: Served, folder: Path) -> None:
    report = json.loads(answered.text)
    look, thread, shell, child = report["found"]
    run = answered.run

    conversation = said_by(number)[:1] if is_a_run(number) else said_by(number)
    assert report["heard"] == [*(said["content"] for said in conversation), ""]
    assert report["instructions"] == only_for(number)
    for found in (*json.loads(look), json.loads(thread)):
        assert_own(found, number, run, folder)
        assert found["is_told_later"] is is_a_run(number)
    assert_own_shell(shell, number, run, folder)
    (result,) = json.loads(child)["results"]
    below = json.loads(result["output"])
    assert below["heard"] == [f"look for {number}", ""]
    assert below["instructions"] == ""
    found = json.loads(below["found"][0])
    assert_own(found, number, run, folder)
    # A task ends with its parent, and reads nothing afterwards.
    assert not found["is_told_later"]
    # Two calls each of the agent and of its child.
    assert answered.tokens == 4 * (number + 1)
    session = served.orchestrator.read.records.sessions[SessionId(run)]
    assert session.root.context["chat_id"] == f"x-session-chat-id-{number}"
    assert session.tree.total.tokens == 4 * (number + 1)


async def test_200_requests_at_once_each_see_only_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*VARIABLES, *NOT_SENT, "ORCHESTRATOR_SESSION_ID"):
        monkeypatch.setenv(name, OF_THE_SERVER)
    # The clients share the event loop of the server: on a busy machine they connect and send later.
    monkeypatch.setattr(http11, "HEAD_SECONDS", 60)
    for number in range(REQUESTS):
        (tmp_path / headers_of(number)["X-Session-Workspace"]).mkdir()
    answers: dict[int, Answered] = {}

    async with serving(
        inspector(Meeting(REQUESTS)),
        journal=tmp_path / "journal.db",
        workspace=tmp_path,
        environ=os.environ,
    ) as served:

        async def ask_and_keep(number: int) -> None:
            answers[number] = await ask(served, number)

        async with trio.open_nursery() as nursery:
            for number in range(REQUESTS):
                nursery.start_soon(ask_and_keep, number)

        assert len({answered.run for answered in answers.values()}) == REQUESTS
        for number in range(REQUESTS):
            assert_all_own(answers[number], number, served, tmp_path)


async def test_a_request_without_headers_is_not_taken_for_the_owner_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, OF_THE_SERVER)
    async with serving(inspector(Meeting(1)), workspace=tmp_path, environ=os.environ) as served:
        answer = await served.openai.chat.completions.create(
            model="inspector", messages=[{"role": "user", "content": "I am 7"}]
        )

    said = answer.choices[0].message.content
    assert said is not None
    assert OF_THE_SERVER not in said
    for found in json.loads(json.loads(said)["found"][0]):
        assert found["ORCHESTRATOR_SESSION_PLATFORM"] == "http"
        assert found["ORCHESTRATOR_SESSION_CHAT_ID"] == ""
        assert found["workspace"] == str(tmp_path)


async def test_a_slow_request_delays_no_other() -> None:
    """No lock is held while an agent works: the others end while the slow one is at it."""
    may_end = trio.Event()
    slow = streaming("well ", may_end, "done")
    quick = Agent("quick", model=streaming("done"))
    answers: list[str] = []

    async with serving(Agent("slow", model=slow), quick) as served:
        create = served.openai.chat.completions.create

        async def ask_the_slow_one() -> None:
            answer = await create(model="slow", messages=HELLO)
            answers.append(answer.model)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_the_slow_one)
            await slow.wait_called()
            for _ in range(20):
                answer = await create(model="quick", messages=HELLO)
                answers.append(answer.model)
            assert answers == ["quick"] * 20
            may_end.set()

    assert answers[-1] == "slow"
