"""`delegate_task`: how a model hands work on."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import pytest
import trio

from orchestrator.agents import (
    Agent,
    CallId,
    DefinitionError,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    tool,
)
from orchestrator.delegation import (
    Assignment,
    Delegator,
    DeliveryCapability,
    Mode,
    Origin,
    Rules,
    SessionId,
    Status,
    TaskId,
    TaskRecord,
    delegate_tool,
)
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.tree.node import TaskNode

MODEL = ScriptedModel([])
RESEARCHER = Agent("researcher", instructions="Answer one question.", model=MODEL)
CHECKER = Agent("checker", model=MODEL)
ALONE = Agent("editor", model=MODEL, delegates=[RESEARCHER])
TEAM = Agent("editor", model=MODEL, delegates=[RESEARCHER, CHECKER])
COPIES = Agent("editor", model=MODEL, copies=True)
BOTH = Agent("editor", model=MODEL, copies=True, delegates=[RESEARCHER])
S = SessionId("s")
ROOT = TaskRecord(
    TaskId(S), S, TaskNode(None, "boss", "", "", "/boss", Mode.ROOT, Status.RUNNING, "", 0)
)
EDITOR = TaskNode(
    *(ROOT.id, "editor", "", "", "/boss/editor[1]", Mode.JOINED, Status.RUNNING, "", 0), level=1
)
PARENT = TaskRecord(TaskId("a"), S, EDITOR, ROOT)
ORIGIN = Origin(session=S, turn=3, capability=DeliveryCapability.PUSH)
CALL = CallId("call_1")
NUMBER = {"type": "integer"}


@attrs.frozen(kw_only=True)
class Asked:
    """The requests to a delegator."""

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
        handoff: bool = False,
        choices: Sequence[Choices] = (),
        by_tool: bool = False,
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


def tool_of(
    agent: Agent[Any], memory: Memory, *, children: int = 3, rules: Rules | None = None
) -> Tool:
    return delegate_tool(
        agent,
        parent=PARENT,
        origin=ORIGIN,
        rules=rules or Rules(children_per_call=children),
        delegator=cast("Delegator", memory),
        summarize=summary_of,
    )


async def summary_of(call: CallId) -> str:
    await trio.lowlevel.checkpoint()
    return f"All before {call}."


async def use(delegate: Tool, **arguments: object) -> str:
    answer = await delegate.run(ToolCall(delegate.name, arguments, id=CALL))
    assert isinstance(answer, str)
    return answer


def test_the_delegate_tool_describes_the_team_and_the_limit(memory: Memory) -> None:
    shown = tool_of(TEAM, memory, children=7)

    assert shown.name == "delegate_task"
    assert "at most 7 in one call" in shown.description
    assert "- researcher: Answer one question." in shown.description
    assert "- checker: no description" in shown.description


def test_a_description_stands_for_the_instructions_of_an_agent(memory: Memory) -> None:
    seeker = Agent("seeker", description="Finds one fact.", instructions="Search.", model=MODEL)

    shown = tool_of(Agent("editor", model=MODEL, delegates=[seeker]), memory)

    assert "- seeker: Finds one fact." in shown.description


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        pytest.param(
            Rules(depth=4, live_children=5, live_tasks=6, detached=7),
            "Below this task there may be 3 more levels, 5 of its tasks run at once, 6 of"
            " the whole tree work at once, 7 of the session in the background; others wait"
            " for their turn.",
            id="all of them",
        ),
        pytest.param(
            Rules(depth=2, live_tasks=None, detached=None),
            "Below this task there may be 1 more level; others wait for their turn.",
            id="only the depth",
        ),
        pytest.param(
            Rules(depth=1, live_tasks=0, detached=0, queue=0),
            "Below this task there may be 0 more levels, 0 of the whole tree work at once,"
            " 0 of the session in the background; more are refused.",
            id="none at all",
        ),
    ],
)
def test_the_tool_shows_every_limit_that_holds_for_this_task(
    memory: Memory, rules: Rules, sentence: str
) -> None:
    assert sentence in tool_of(TEAM, memory, rules=rules).description


@pytest.mark.parametrize(
    ("agent", "is_offered"),
    [
        pytest.param(ALONE, False, id="one to ask is who is meant"),
        pytest.param(TEAM, True, id="several to ask"),
        pytest.param(COPIES, True, id="nobody but itself"),
        pytest.param(BOTH, True, id="one, and itself"),
    ],
)
def test_the_tool_offers_copies_if_an_omitted_agent_means_one(
    memory: Memory, agent: Agent[Any], is_offered: bool
) -> None:
    assert ("left out: a copy of yourself" in tool_of(agent, memory).description) is is_offered


def test_the_tool_can_run_again_after_a_crash(memory: Memory) -> None:
    """Its call finds the tasks that it asked for."""
    assert tool_of(ALONE, memory).idempotent


def test_the_name_of_the_tool_is_taken() -> None:
    """A model that sees two tools of one name calls either."""
    with pytest.raises(DefinitionError, match="'delegate_task'"):

        @tool(name="delegate_task")
        def own() -> str:
            return "mine"


def test_the_schema_lets_a_model_give_one_goal_or_many(memory: Memory) -> None:
    schema = tool_of(ALONE, memory).parameters
    task = schema["$defs"]["Assignment"]

    assert schema["type"] == "object"
    assert set(schema["properties"]) == {
        "goal",
        "context",
        "agent",
        "output_schema",
        "label",
        "tasks",
        "background",
    }
    assert schema["required"] == []
    assert schema["properties"]["tasks"]["items"] == {"$ref": "#/$defs/Assignment"}
    assert set(task["properties"]) == {
        "goal",
        "context",
        "agent",
        "output_schema",
        "label",
        "depends_on",
    }
    assert task["required"] == ["goal"]
    for part in (schema, task):
        assert part["additionalProperties"] is False
        assert all(it["description"] for it in part["properties"].values())


async def test_one_goal_is_one_task(memory: Memory) -> None:
    """The delegator learns the caller, its path and the call."""
    answer = await use(
        tool_of(TEAM, memory),
        goal="find it",
        context="it is red",
        agent="checker",
        label="keys",
        output_schema=NUMBER,
    )

    assert answer == "I will remember"
    assert memory.asked == [
        Asked(
            assignments=[Assignment("find it", "it is red", "checker", NUMBER, "keys")],
            parent=PARENT.id,
            origin=ORIGIN,
            call=CALL,
            background=None,
        )
    ]


async def test_a_batch_is_delegated_as_one(memory: Memory) -> None:
    """It is decided as a whole: all of it begins, or none."""
    tasks = [
        {"goal": "find it", "agent": "researcher"},
        {"goal": "check it", "agent": "checker", "context": "twice", "label": "sure"},
    ]
    await use(tool_of(TEAM, memory), tasks=tasks)

    (asked,) = memory.asked
    assert asked.assignments == [
        Assignment("find it", "", "researcher"),
        Assignment("check it", "twice", "checker", label="sure"),
    ]


async def test_shared_arguments_apply_to_every_task_without_its_own(memory: Memory) -> None:
    await use(
        tool_of(TEAM, memory),
        context="of 1984",
        agent="researcher",
        output_schema=NUMBER,
        tasks=[
            {"goal": "count"},
            {"goal": "check", "context": "of 1985", "agent": "checker"},
            {"goal": "list", "output_schema": {"type": "array"}},
        ],
    )

    (asked,) = memory.asked
    assert asked.assignments == [
        Assignment("count", "of 1984", "researcher", NUMBER),
        Assignment("check", "of 1985", "checker", NUMBER),
        Assignment("list", "of 1984", "researcher", {"type": "array"}),
    ]


async def test_tasks_may_need_each_other_in_a_chain(memory: Memory) -> None:
    tasks = [
        {"goal": "sum up", "label": "sum", "depends_on": ["facts", "dates"]},
        {"goal": "check dates", "label": "dates", "depends_on": ["facts"]},
        {"goal": "find facts", "label": "facts"},
    ]
    await use(tool_of(ALONE, memory), tasks=tasks)

    (asked,) = memory.asked
    assert [it.depends_on for it in asked.assignments] == [("facts", "dates"), ("facts",), ()]


@pytest.mark.parametrize("background", [None, True, False])
async def test_the_wish_to_wait_is_passed_on(memory: Memory, background: bool | None) -> None:
    """Whether it can be granted is for the rules to say."""
    await use(tool_of(ALONE, memory), goal="find it", background=background)

    (asked,) = memory.asked
    assert asked.background is background


async def test_a_team_of_one_needs_no_name(memory: Memory) -> None:
    await use(tool_of(ALONE, memory), goal="find it")
    await use(tool_of(ALONE, memory), tasks=[{"goal": "find it"}, {"goal": "again"}])

    agents = {it.agent for asked in memory.asked for it in asked.assignments}
    assert agents == {"researcher"}


@pytest.mark.parametrize("agent", [TEAM, COPIES, BOTH])
async def test_an_omitted_agent_means_a_copy_unless_there_is_exactly_one(
    memory: Memory, agent: Agent[Any]
) -> None:
    await use(tool_of(agent, memory), goal="find it")

    (asked,) = memory.asked
    assert asked.assignments == [Assignment("find it")]


async def test_a_delegate_can_be_named_where_copies_are_the_usual(memory: Memory) -> None:
    """Both are there to be asked."""
    await use(tool_of(BOTH, memory), goal="find it", agent="researcher")

    (asked,) = memory.asked
    assert asked.assignments == [Assignment("find it", agent="researcher")]


async def test_an_agent_with_only_copies_must_omit_the_name(memory: Memory) -> None:
    """An empty list of names would help no model."""
    with pytest.raises(ToolError, match="copies of yourself only: leave it out"):
        await use(tool_of(COPIES, memory), goal="find it", agent="researcher")


async def test_a_batch_of_exactly_the_limit_is_allowed(memory: Memory) -> None:
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
            {"tasks": [{"goal": "find it"}] * 4}, "tasks at most, and this one asks", id="too many"
        ),
        pytest.param(
            {"goal": "find it", "agent": "boss"},
            "agent is 'boss'; it must be one of: researcher, checker",
            id="an unknown agent",
        ),
        pytest.param(
            {"goal": "find it", "output_schema": {"type": "nonsense"}},
            "output_schema: the schema cannot be used",
            id="a schema that is none",
        ),
        pytest.param(
            {"tasks": [{"goal": "find it"}, {"goal": "count it", "output_schema": {"type": 5}}]},
            "no task was started",
            id="a schema that is none in a batch",
        ),
        pytest.param(
            {"tasks": [{"goal": "a", "label": "a", "depends_on": ["b"]}]},
            "depends_on names 'b', and no task of this call has that label",
            id="a need that nobody is",
        ),
        pytest.param(
            {
                "tasks": [
                    {"goal": "a", "label": "x"},
                    {"goal": "b", "label": "x"},
                    {"goal": "c", "depends_on": ["x"]},
                ]
            },
            "depends_on names 'x', and more than one task of this call has that label",
            id="a need that two are",
        ),
        pytest.param(
            {"tasks": [{"goal": "a", "label": "a", "depends_on": ["a"]}]},
            "these tasks wait for each other: a -> a; no task was started",
            id="a task that needs itself",
        ),
        pytest.param(
            {"tasks": [{"goal": "a"}, {"goal": "b", "depends_on": [""]}]},
            "depends_on names ''",
            id="a need without a name",
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
async def test_invalid_arguments_are_refused_and_no_task_is_delegated(
    memory: Memory, arguments: Mapping[str, object], reason: str
) -> None:
    with pytest.raises(ToolError) as refused:
        await use(tool_of(TEAM, memory), **arguments)

    assert reason in str(refused.value)
    assert memory.asked == []


async def test_a_limit_of_zero_children_refuses_every_task(memory: Memory) -> None:
    """0 means none at all."""
    with pytest.raises(
        ToolError, match="one call may ask for 0 tasks at most, and this one asks for 1"
    ):
        await use(tool_of(ALONE, memory, children=0), goal="find it")

    assert memory.asked == []


async def test_tasks_that_wait_for_each_other_are_named_in_the_order_they_wait(
    memory: Memory,
) -> None:
    """Each arrow goes from who waits to whom it waits for: any of them can be cut."""
    tasks = [
        {"goal": "go", "label": "a", "depends_on": ["b"]},
        {"goal": "go", "label": "b", "depends_on": ["c"]},
        {"goal": "go", "label": "c", "depends_on": ["a"]},
        {"goal": "go", "label": "free"},
    ]
    with pytest.raises(ToolError) as refused:
        await use(tool_of(ALONE, memory, children=4), tasks=tasks)

    circles = ("a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c")
    assert any(circle in str(refused.value) for circle in circles)
    assert memory.asked == []
