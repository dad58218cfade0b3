"""`delegate_task`: how a model hands work on."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio

from agents import (
    Agent,
    CallId,
    DefinitionError,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    tool,
)
from delegation import (
    Assignment,
    DeliveryCapability,
    Origin,
    Rules,
    SessionId,
    TaskId,
    delegate_tool,
)

MODEL = ScriptedModel([])
RESEARCHER = Agent("researcher", instructions="Answer one question.", model=MODEL)
CHECKER = Agent("checker", model=MODEL)
ALONE = Agent("editor", model=MODEL, delegates=[RESEARCHER])
TEAM = Agent("editor", model=MODEL, delegates=[RESEARCHER, CHECKER])
PARENT = TaskId("a")
ORIGIN = Origin(session=SessionId("s"), turn=3, capability=DeliveryCapability.PUSH)
CALL = CallId("call_1")


@attrs.frozen(kw_only=True)
class Asked:
    """What a delegator was asked for."""

    assignments: list[Assignment]
    parent: TaskId
    origin: Origin
    call: CallId
    background: bool | None


class Memory:
    """A delegator that only remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def delegate(
        self,
        assignments: Sequence[Assignment],
        *,
        parent: TaskId,
        origin: Origin,
        call: CallId,
        background: bool | None,
    ) -> str:
        await trio.lowlevel.checkpoint()
        self.asked.append(
            Asked(
                assignments=list(assignments),
                parent=parent,
                origin=origin,
                call=call,
                background=background,
            )
        )
        return "I will remember"


@pytest.fixture
def memory() -> Memory:
    return Memory()


def tool_of(agent: Agent[Any], memory: Memory, *, children: int = 3) -> Tool:
    return delegate_tool(
        agent,
        parent=PARENT,
        origin=ORIGIN,
        rules=Rules(children_per_call=children),
        delegator=memory,
    )


async def use(delegate: Tool, **arguments: object) -> str:
    return await delegate.run(ToolCall(delegate.name, arguments, id=CALL))


def test_the_tool_shows_whom_to_ask_and_the_limit_that_holds(memory: Memory) -> None:
    """A model knows only what it is told, and is told it anew in every turn."""
    shown = tool_of(TEAM, memory, children=7)

    assert shown.name == "delegate_task"
    assert "at most 7 in one call" in shown.description
    assert "- researcher: Answer one question." in shown.description
    assert "- checker: no description" in shown.description


def test_the_tool_can_run_again_after_a_crash(memory: Memory) -> None:
    """Its call finds the tasks that it asked for."""
    assert tool_of(ALONE, memory).idempotent


def test_the_name_of_the_tool_is_taken(memory: Memory) -> None:
    """A model that sees two of one name calls either, and nobody knows which."""

    @tool(name="delegate_task")
    def own() -> str:
        return "mine"

    with pytest.raises(DefinitionError, match="'delegate_task'"):
        tool_of(Agent("editor", model=MODEL, tools=[own]), memory)


def test_the_schema_lets_a_model_give_one_goal_or_many(memory: Memory) -> None:
    """Nothing is required and nothing unknown is let through; each part explains itself."""
    schema = tool_of(ALONE, memory).parameters
    task = schema["$defs"]["Assignment"]

    assert schema["type"] == "object"
    assert set(schema["properties"]) == {
        "goal",
        "context",
        "agent",
        "label",
        "tasks",
        "background",
    }
    assert schema["required"] == []
    assert schema["properties"]["tasks"]["items"] == {"$ref": "#/$defs/Assignment"}
    assert set(task["properties"]) == {"goal", "context", "agent", "label"}
    assert task["required"] == ["goal"]
    for part in (schema, task):
        assert part["additionalProperties"] is False
        assert all(it["description"] for it in part["properties"].values())


async def test_one_goal_is_one_task(memory: Memory) -> None:
    """Whoever really hands it on learns who asks, from where, and in which call."""
    answer = await use(
        tool_of(TEAM, memory),
        goal="find it",
        context="it is red",
        agent="checker",
        label="keys",
    )

    assert answer == "I will remember"
    assert memory.asked == [
        Asked(
            assignments=[Assignment("find it", "it is red", "checker", "keys")],
            parent=PARENT,
            origin=ORIGIN,
            call=CALL,
            background=None,
        )
    ]


async def test_a_batch_is_handed_on_as_one(memory: Memory) -> None:
    """It is decided as a whole: all of it begins, or none."""
    tasks = [
        {"goal": "find it", "agent": "researcher"},
        {"goal": "check it", "agent": "checker", "context": "twice", "label": "sure"},
    ]
    await use(tool_of(TEAM, memory), tasks=tasks)

    (asked,) = memory.asked
    assert asked.assignments == [
        Assignment("find it", "", "researcher"),
        Assignment("check it", "twice", "checker", "sure"),
    ]


@pytest.mark.parametrize("background", [None, True, False])
async def test_the_wish_to_wait_is_passed_on(
    memory: Memory, background: bool | None
) -> None:
    """Whether it can be granted is for the rules to say."""
    await use(tool_of(ALONE, memory), goal="find it", background=background)

    (asked,) = memory.asked
    assert asked.background is background


async def test_a_team_of_one_needs_no_name(memory: Memory) -> None:
    """There is only one that can be meant."""
    await use(tool_of(ALONE, memory), goal="find it")
    await use(tool_of(ALONE, memory), tasks=[{"goal": "find it"}, {"goal": "again"}])

    agents = {it.agent for asked in memory.asked for it in asked.assignments}
    assert agents == {"researcher"}


async def test_as_many_as_the_limit_allows_are_allowed(memory: Memory) -> None:
    """The limit is the last number that is allowed."""
    two_at_most = tool_of(ALONE, memory, children=2)
    await use(two_at_most, tasks=[{"goal": "one"}, {"goal": "two"}])

    assert len(memory.asked) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(
            {"goal": "find it", "tasks": [{"goal": "find it"}]},
            "either one goal or a list of tasks, not both",
            id="both",
        ),
        pytest.param({}, "every task needs a goal", id="nothing"),
        pytest.param({"tasks": []}, "every task needs a goal", id="an empty list"),
        pytest.param({"goal": " \n"}, "every task needs a goal", id="a blank goal"),
        pytest.param(
            {"tasks": [{"goal": "find it"}, {"goal": ""}]},
            "every task needs a goal",
            id="a blank goal in a batch",
        ),
        pytest.param(
            {"tasks": [{"goal": "find it"}] * 4},
            "tasks at most, and this one asks",
            id="too many",
        ),
        pytest.param(
            {"goal": "find it", "agent": "boss"},
            "agent is 'boss'; it must be one of: researcher, checker",
            id="an unknown agent",
        ),
        pytest.param(
            {"goal": "find it"},
            "agent is left out; it must be one of: researcher, checker",
            id="no agent though there are several",
        ),
        pytest.param(
            {"tasks": [{"goal": "a", "agent": "checker"}, {"goal": "b", "agent": "x"}]},
            "agent is 'x'",
            id="one unknown agent in a batch",
        ),
        pytest.param(
            {"goal": "find it", "agent": "checker", "priority": 1},
            "unknown field `priority`",
            id="an unknown argument",
        ),
        pytest.param(
            {"tasks": [{"goal": "find it", "background": True}]},
            "unknown field `background`",
            id="an unknown argument in a batch",
        ),
        pytest.param({"goal": 42}, "Expected `str`, got `int`", id="a number as goal"),
    ],
)
async def test_what_does_not_fit_is_told_to_the_model_and_nothing_is_handed_on(
    memory: Memory, arguments: Mapping[str, object], reason: str
) -> None:
    """It reads what is wrong, and asks again."""
    with pytest.raises(ToolError) as refused:
        await use(tool_of(TEAM, memory), **arguments)

    assert reason in str(refused.value)
    assert memory.asked == []


async def test_a_limit_of_none_lets_nothing_through(memory: Memory) -> None:
    """0 means none at all."""
    with pytest.raises(
        ToolError, match="one call may ask for 0 tasks at most, and this one asks for 1"
    ):
        await use(tool_of(ALONE, memory, children=0), goal="find it")

    assert memory.asked == []
