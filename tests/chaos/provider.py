"""A model provider on loopback that counts: it speaks OpenAI's chat completions.

It is part of the parent, so no kill takes away what it has seen. An answer follows from the
conversation that it is sent, so it needs no memory to go on after a kill. Each answer has its own
number in it: a process that asks again is told something else, and every effect names the answer
that it comes from.
"""

import json
import random
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import attrs
import h11
import trio
from msgspec.structs import replace

from orchestrator.agents import AssistantMessage, CallId, ToolCall
from tests.chaos.life import Life
from tests.chaos.plan import (
    LISTENS,
    Act,
    Command,
    Control,
    Delegate,
    Fault,
    Hang,
    Listen,
    Node,
    Plan,
    Step,
    plan_of,
)
from tests.fake_provider import FakeProvider, Heard, Raw, Reply, Say, Then, encode, send_reply

LABEL: Final = re.compile(r"round (\S+) node (\S+)")
ASK: Final = re.compile(r"ask (\d+) of ")
NOTICE: Final = re.compile(r"has ended: \S+ \((\S+?), '([^']+)'\)")
STEERING: Final = re.compile(r"while you work:\n(.+)")
LATENCY: Final = 0.006


def answer_number(answer: AssistantMessage) -> int:
    """Return the number of the exchange that an answer comes from."""
    # Calls have it in their ids, and texts at their end.
    mark = answer.calls[0].id.split("_")[1] if answer.calls else answer.text
    return int(mark.rpartition("#")[2])


@attrs.define(kw_only=True)
class Exchange:
    """One request, and what became of it."""

    number: int
    node: str
    step: int
    """How many answers the conversation had."""
    begun: float
    heard: list[str]
    """The steering messages in it."""
    told: list[tuple[str, str]]
    """The notices in it: id and label of each task."""
    results: list[Mapping[str, Any]]
    """The results that tools have answered with."""
    receipts: dict[str, str]
    """The ids of detached tasks that it was told of, by label."""
    abandoned: bool
    """Its client had hung up before it was read."""
    answered: float | None = None
    """When the whole answer was sent."""
    fault: Fault | None = None
    is_final: bool = False
    tokens: int = 0
    """The usage that the client was told."""

    @property
    def is_whole(self) -> bool:
        return self.answered is not None and self.fault is None


class Counted:
    """The requests of one round at the provider."""

    def __init__(self, plan: Plan, effects: str, on_event: Callable[[str], None]) -> None:
        self.plan = plan
        self.effects = effects
        """The log to which commands write."""
        self.exchanges: list[Exchange] = []
        self._on_event = on_event
        self._attempts: Counter[tuple[str, int]] = Counter()
        self._chance = random.Random(f"provider {plan.seed}")

    def begin(self, node: Node, seen: "Conversation", *, abandoned: bool) -> tuple[Exchange, int]:
        """Count a request, and return it with the number of earlier ones for the same step."""
        exchange = Exchange(
            number=len(self.exchanges) + 1,
            node=node.id,
            step=seen.answers,
            begun=time.time(),
            heard=seen.heard,
            told=seen.told,
            results=seen.results,
            receipts=seen.receipts,
            abandoned=abandoned,
        )
        self.exchanges.append(exchange)
        attempt = self._attempts[node.id, seen.answers]
        self._attempts[node.id, seen.answers] += 1
        self._on_event("request")
        return exchange, attempt

    def answered(self, exchange: Exchange) -> None:
        exchange.answered = time.time()
        self._on_event("response")

    async def pause(self) -> None:
        await trio.sleep(self._chance.uniform(0, LATENCY))

    def is_plain(self) -> bool:
        """Return whether the next answer comes whole, and not as a stream."""
        return self._chance.randrange(4) == 0


class Conversation:
    """The past in a request."""

    def __init__(self, messages: Sequence[Any]) -> None:
        assistant = [it for it in messages if it["role"] == "assistant"]
        self.answers = len(assistant)
        self.calls = sum("tool_calls" in it for it in assistant)
        said = [it["content"] for it in messages if it["role"] == "user"]
        self.asks = len({number for text in said for number in ASK.findall(text)})
        self.heard: list[str] = [it for text in said for it in STEERING.findall(text)]
        self.told: list[tuple[str, str]] = [
            found for text in said for found in NOTICE.findall(text)
        ]
        self.results: list[Mapping[str, Any]] = []
        self.receipts: dict[str, str] = {}
        for message in messages:
            if message["role"] == "tool":
                self._read_answer(message["content"])

    def _read_answer(self, text: str) -> None:
        try:
            answer = json.loads(text)
        except ValueError:
            return
        if isinstance(answer, dict):
            found = cast("Mapping[str, Any]", answer)
            self.results += found.get("results", ())
            for task in found.get("tasks", ()):
                self.receipts[task.get("label", "")] = task["task_id"]


def next_step(node: Node, seen: Conversation) -> tuple[int, Step | None]:
    """Return the number of the step that a conversation has come to, and the step.

    None is the final answer, of a task or of a turn.
    """
    if node.is_root:
        due = sum(node.asks[: seen.asks])
        return seen.calls, node.steps[seen.calls] if seen.calls < due else None
    at = seen.answers
    if node.steps and isinstance(node.steps[-1], Listen) and at >= len(node.steps) - 1:
        is_over = seen.heard or at >= len(node.steps) + LISTENS
        return at, None if is_over else node.steps[-1]
    return at, node.steps[at] if at < len(node.steps) else None


def calls_of(step: Step, counted: Counted, seen: Conversation, tag: str) -> Iterator[ToolCall]:
    """Yield the tool calls of a step.

    Args:
        step: the step.
        counted: the round.
        seen: the conversation so far.
        tag: names the step and the answer in every effect.
    """
    arguments: dict[str, Any]
    match step:
        case Act(tools):
            for name in tools:
                yield ToolCall(name, {"tag": tag})
        case Listen():
            yield ToolCall("measure", {"tag": tag})
        case Delegate(children, background):
            tasks = [
                {
                    "goal": f"do {child}",
                    "agent": child,
                    "label": child,
                    "depends_on": counted.plan.nodes[child].needs,
                }
                for child in children
            ]
            arguments = {"tasks": tasks, "background": background}
            yield ToolCall("delegate_task", arguments)
        case Control(action, child):
            arguments = {"action": action}
            if child in seen.receipts:
                arguments["ids"] = [seen.receipts[child]]
            if action == "steer":
                arguments |= {"message": f"hear {tag}", "seconds": 0.1}
            yield ToolCall("task", arguments)
        case Command(seconds, notify, stubborn):
            line = json.dumps({"kind": "command", "tag": tag})[:-1]
            command = (
                f"{'trap : TERM; ' if stubborn else ''}"
                "at=$(date +%s.%N) && "
                f"""echo '{line}, "at": '$at'}}' >> {counted.effects};"""
                f" sleep {seconds}{'; sleep 0.2' * stubborn}; echo ended"
            )
            arguments = {"command": command, "background": True}
            yield ToolCall("terminal", arguments | {"notify_on_complete": notify})
        case Hang():
            raise AssertionError("it is never finished")


class CountingProvider(FakeProvider):
    """The server, and what it has counted of each round."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: dict[str, Counted] = {}

    @contextmanager
    def counting(self, life: Life, on_event: Callable[[str], None]) -> Generator[Counted]:
        """Answer for the agents of a round, as long as the block lasts."""
        counted = Counted(plan_of(life.plan), str(life.effects.path), on_event)
        self.rounds[life.label] = counted
        yield counted
        del self.rounds[life.label]

    async def answer(
        self, http: h11.Connection, connection: trio.SocketStream, heard: Heard
    ) -> Then:
        # Only what is counted is kept.
        self.heard.clear()
        messages: Sequence[Any] = heard.body["messages"]
        found = LABEL.search(messages[0]["content"])
        assert found is not None, messages[0]
        counted = self.rounds.get(found[1])
        if counted is None:
            # The last words of a process that is dead.
            return Then.HANG_UP
        node = counted.plan.nodes[found[2]]
        seen = Conversation(messages)
        exchange, attempt = counted.begin(node, seen, abandoned=_has_left(connection))
        await counted.pause()
        number, step = next_step(node, seen)
        exchange.fault = node.fault(number, attempt)
        reply = _reply(counted, exchange, heard, seen, step)
        then = await send_reply(http, connection, heard, reply)
        if isinstance(reply, Say) and reply.cut is None:
            exchange.tokens = reply.read + reply.wrote
            counted.answered(exchange)
        return then


def _has_left(connection: trio.SocketStream) -> bool:
    """Return whether the client has closed its end already."""
    is_readable, _, _ = select.select([connection.socket.fileno()], [], [], 0)
    if not is_readable:
        return False
    with socket.fromfd(connection.socket.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
        try:
            return not same.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except ConnectionError:
            return True


def _reply(
    counted: Counted, exchange: Exchange, heard: Heard, seen: Conversation, step: Step | None
) -> Reply:
    match exchange.fault:
        case "500" | "400" | "429":
            problem = {"error": {"message": "not now", "type": "chaos"}}
            return Raw(encode(problem), int(exchange.fault))
        case "cut":
            return Say(text="half an answer", cut=1, then=Then.HANG_UP)
        case "filter" | None:
            pass
    if isinstance(step, Hang):
        return Say(text="half an answer", cut=1, then=Then.SILENCE)
    # An answer can be recognized wherever it turns up.
    tag = f"{exchange.node}/{exchange.step}#{exchange.number}"
    calls = (
        ()
        if step is None
        else tuple(
            replace(call, id=CallId(f"call_{exchange.number}_{index}"))
            for index, call in enumerate(calls_of(step, counted, seen, tag))
        )
    )
    text = "" if calls else f"done {tag}"
    read = len(encode([heard.body["messages"], heard.body.get("tools")])) // 6
    wrote = len(text + str(calls)) // 6
    most = heard.body.get("max_tokens")
    stop = "content_filter" if exchange.fault else ""
    if most is not None and wrote > most:
        # As a provider does: it says less, and is paid for that.
        exchange.fault, stop, wrote = "filter", "length", most
    return Say(
        text=text, calls=calls, stop=stop, read=read, wrote=wrote, is_plain=counted.is_plain()
    )
