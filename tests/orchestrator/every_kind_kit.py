"""A session with tasks of every kind, and what a client says to it.

Its models are functions of the transcript, so that they go on wherever a crash left them.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from orchestrator import Orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    Limits,
    ModelError,
    ModelRequest,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)
from orchestrator.delegation.events import Entry, MessageReceived, SessionOpened
from tests.kit import facts

LATENCY: Final = 0.004
SPENDER_CALLS: Final = 3
MIDDLE_CALLS: Final = 40
"""Far more than it makes: a call that a crash interrupts is charged, and made again."""
LISTENS: Final = 40
MESSAGES: Final = ("go", "one more")


class JumpyModel(ScriptedModel):
    """Takes a little while, never quite the same."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep(random.uniform(0, LATENCY))
        return await super().answer(request)


def team(tools: Sequence[Tool]) -> Agent:
    """Return the lead, with its delegates.

    Their models are functions of the transcript: they go on wherever a crash left them.

    Args:
        tools: `launch`, `measure` and `pay`.
    """

    def plain(name: str, step: Any, **options: Any) -> Agent:
        return Agent(name, model=JumpyModel.always(step), tools=tuple(tools), **options)

    leaf = plain("leaf", leaf_says)
    middle = plain("middle", middle_says, delegates=[leaf], budget=Budget(calls=MIDDLE_CALLS))
    sleeper = Agent("sleeper", model=ScriptedModel.always("never", 1000))
    return Agent(
        "lead",
        model=JumpyModel.always(lead_says),
        tools=tuple(tools),
        budget=Budget(calls=300, tasks=len(EXPECTED)),
        delegates=[
            middle,
            sleeper,
            plain("slow", lambda transcript: f"did {transcript[0].text[:2]}"),
            plain("broken", ModelError("it is broken")),
            plain("listener", listener_says),
            plain("spender", measures_for_ever, budget=Budget(calls=SPENDER_CALLS)),
            plain("limited", measures_for_ever, limits=Limits(calls=2)),
            plain("restarter", pays_and_ends, on_restart="restart"),
            plain("loser", pays_and_ends, on_restart="lose"),
        ],
    )


def _call(name: str, goal: str) -> ToolCall:
    # A model that is asked again says something else: what it had said must be known for ever
    # before a task acts on it.
    return ToolCall(name, {"tag": f"{goal} #{random.randrange(1_000_000)}"})


def answers(transcript: Transcript) -> int:
    return sum(isinstance(said, AssistantMessage) for said in transcript)


def leaf_says(transcript: Transcript) -> Any:
    goal = transcript[0].text
    steps: list[Any] = [[_call("launch", goal), _call("pay", goal)], f"leaf of {goal}"]
    return steps[answers(transcript)]


def middle_says(transcript: Transcript) -> Any:
    goal = transcript[0].text
    steps: list[Any] = [
        ToolCall("delegate_task", {"goal": f"below {goal}"}),
        _call("launch", goal),
        f"middle of {goal}",
    ]
    return steps[answers(transcript)]


def measures_for_ever(transcript: Transcript) -> Any:
    return ToolCall("measure", {"tag": f"{transcript[0].text} {answers(transcript)}"})


def pays_and_ends(transcript: Transcript) -> Any:
    goal = transcript[0].text
    return "paid it" if answers(transcript) else _call("pay", goal)


def listener_says(transcript: Transcript) -> Any:
    heard = any(isinstance(said, UserMessage) and said.aside for said in transcript)
    if heard or answers(transcript) >= LISTENS:
        return "heard it" if heard else "heard nothing"
    return measures_for_ever(transcript)


def lead_says(transcript: Transcript) -> Any:
    """Hand on work of every kind at the first message, one more at the second, and else report."""
    called = sum(isinstance(said, AssistantMessage) and bool(said.calls) for said in transcript)
    is_late = any(said.text == MESSAGES[1] for said in transcript)
    if called < len(LEAD_STEPS):
        return LEAD_STEPS[called](_ids(transcript))
    if is_late and called == len(LEAD_STEPS):
        return _tasks(_task("late", "slow"), background=True)
    news = sum(
        isinstance(said, UserMessage) and said.text.startswith("A task") for said in transcript
    )
    return f"heard {news}"


def _ids(transcript: Transcript) -> Mapping[str, str]:
    """Return the ids of the tasks that the lead has been told of, by label."""
    ids: dict[str, str] = {}
    for said in transcript:
        if isinstance(said, ToolMessage):
            with suppress(ValueError, TypeError):
                answer = json.loads(said.text)
                ids |= {it["label"]: it["task_id"] for it in answer.get("tasks", ())}
    return ids


def _tasks(*tasks: Mapping[str, Any], background: bool) -> ToolCall:
    return ToolCall("delegate_task", {"tasks": [*tasks], "background": background})


def _task(label: str, agent: str, *needs: str) -> Mapping[str, Any]:
    return {"goal": f"{label} of the lead", "agent": agent, "label": label, "depends_on": [*needs]}


LEAD_STEPS: Final[list[Callable[[Mapping[str, str]], Any]]] = [
    lambda _: [_call(name, "lead") for name in ("launch", "measure", "pay")],
    lambda _: _tasks(
        _task("listener", "listener"),
        _task("sleeper", "sleeper"),
        _task("spender", "spender"),
        background=True,
    ),
    lambda _: _tasks(
        _task("m1", "middle"),
        _task("m2", "middle"),
        _task("x", "broken"),
        _task("restarter", "restarter"),
        background=False,
    ),
    lambda ids: ToolCall(
        "task", {"action": "steer", "ids": [ids["listener"]], "message": "hey", "seconds": 1}
    ),
    lambda _: _tasks(
        _task("a", "slow"),
        _task("b", "slow", "a"),
        _task("c", "broken"),
        _task("d", "slow", "c"),
        _task("loser", "loser"),
        _task("limited", "limited"),
        background=True,
    ),
    lambda ids: ToolCall("task", {"action": "wait", "ids": [ids["a"]]}),
    lambda ids: ToolCall("task", {"action": "cancel", "ids": [ids["sleeper"]]}),
]
EXPECTED: Final[Mapping[str, set[str]]] = {
    "m1": {"succeeded"},
    "m2": {"succeeded"},
    "below m1": {"succeeded"},
    "below m2": {"succeeded"},
    "x": {"failed"},
    "a": {"succeeded"},
    "b": {"succeeded"},
    "c": {"failed"},
    "d": {"refused"},
    "listener": {"succeeded"},
    "sleeper": {"cancelled"},
    "spender": {"over_budget"},
    "limited": {"over_budget"},
    "restarter": {"succeeded"},
    "loser": {"succeeded", "lost"},
    "late": {"succeeded"},
}
"""How each task may end, by the beginning of its goal."""


async def converse(orchestrator: Orchestrator, agent: Agent, entries: Sequence[Entry]) -> None:
    """Say what was not said, wait until the session is idle, and take all replies.

    Args:
        orchestrator: where the session is, or will be.
        agent: whom it talks to.
        entries: what the journal had when it was opened.
    """
    opened = facts(entries, SessionOpened)
    id_: str | None = opened[0].session if opened else None
    said = len(facts(entries, MessageReceived))
    for number, message in enumerate(MESSAGES, 1):
        # In between no client is attached, and it is idle.
        async with orchestrator.open_session(agent, session=id_) as session:
            id_ = session.id
            if number > said:
                await session.ask(message)
            await session.wait_idle()
            with suppress(trio.WouldBlock):
                while True:
                    session.replies.receive_nowait()
