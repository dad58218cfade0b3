"""`task`: how a model looks after the work that it has delegated, and only after that."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents import (
    Agent,
    CallId,
    Compaction,
    DefinitionError,
    MessageId,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    tool,
)
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import (
    Delegator,
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Receipt,
    Rules,
    SessionId,
    TaskId,
    control_tool,
)
from orchestrator.delegation.events import (
    Steered,
    SteeringOrigin,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
)
from orchestrator.delegation.notices import excerpt

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

PUSH = DeliveryCapability.PUSH
S, OTHER = SessionId("s"), SessionId("other")
A, B, C, D = map(TaskId, "abcd")
CALL = CallId("call_1")
DONE = Outcome(Ending.SUCCEEDED, "42")
EDITOR = Agent("editor", model=ScriptedModel([]))
NOW = 100.0


class House:
    """A controller that only remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def wait(
        self, tasks: Sequence[TaskId], *, any_of_them: bool, seconds: float | None
    ) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(("wait", list(tasks), any_of_them, seconds))

    async def steer(
        self,
        messages: Mapping[TaskId, MessageId],
        text: str,
        *,
        by: str,
        origin: SteeringOrigin,
        seconds: float,
    ) -> Mapping[TaskId, Receipt]:
        await trio.lowlevel.checkpoint()
        self.asked.append(("steer", dict(messages), text, by, origin, seconds))
        return {task: Receipt("seen", 3) for task in messages}

    async def cancel(self, tasks: Sequence[TaskId]) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(("cancel", list(tasks)))

    def now(self) -> float:
        return NOW


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def tool_of(ledger: Ledger, house: House) -> Callable[..., Tool]:
    """Return the tool of a task; the session's, if nobody says otherwise."""

    def tool_of(caller: str = S, agent: Agent[Any] = EDITOR) -> Tool:
        record = ledger.tasks[TaskId(caller)]
        return control_tool(agent, caller=record, ledger=ledger, delegator=cast("Delegator", house))

    return tool_of


ToolOf: TypeAlias = Callable[..., Tool]


async def use(control: Tool, **arguments: object) -> Any:
    return json.loads((await result_of(control, **arguments)).text)


async def result_of(control: Tool, **arguments: object) -> ToolResult:
    result = await control.run(ToolCall(control.name, arguments, id=CALL))
    assert isinstance(result, ToolResult)
    return result


@pytest.fixture
def family(begin: Tell, tell: Tell, requested: Asked) -> None:
    """The editor has a, which has b and c below it, and d in the background; b has ended."""
    begin(PUSH)
    tell(requested(A, label="facts"), TaskStarted(A))
    tell(requested(B, parent=A), TaskStarted(B), requested(C, parent=A))
    tell(requested(D, mode=Mode.DETACHED), TaskSettled(B, DONE))
    begin(PUSH, session=OTHER)
    tell(requested("theirs", OTHER, session=OTHER))


@pytest.mark.usefixtures("family")
def test_the_tool_can_run_again_after_a_crash_and_explains_itself(tool_of: ToolOf) -> None:
    shown = tool_of()

    assert shown.name == "task"
    assert shown.idempotent
    assert shown.parameters["required"] == ["action"]
    assert all(it["description"] for it in shown.parameters["properties"].values())


def test_an_agent_with_delegates_has_no_tool_of_this_name() -> None:
    @tool(name="task")
    def own() -> str:
        return "mine"

    writer = Agent("writer", model=ScriptedModel([]))
    with pytest.raises(DefinitionError, match="'task'"):
        Agent("editor", model=ScriptedModel([]), tools=[own], delegates=[writer])


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("action", ["list", "wait", "result", "steer", "cancel"])
@pytest.mark.parametrize(
    ("caller", "other"),
    [
        pytest.param(S, "theirs", id="another session's task"),
        pytest.param(S, OTHER, id="another session"),
        pytest.param(S, S, id="the session itself"),
        pytest.param(S, "nobody", id="nobody"),
        pytest.param(A, A, id="itself"),
        pytest.param(A, S, id="its parent"),
        pytest.param(A, D, id="its sibling"),
        pytest.param(D, B, id="its sibling's child"),
        pytest.param(B, C, id="the child of its parent"),
    ],
)
async def test_a_task_outside_of_the_subtree_is_unknown(
    tool_of: ToolOf, house: House, *, action: str, caller: str, other: str
) -> None:
    """The answer does not reveal whether such a task exists elsewhere."""
    with pytest.raises(ToolError) as refused:
        await use(tool_of(caller), action=action, ids=[other], message="faster")

    assert str(refused.value) == f"there is no such task: {other!r}; nothing was done"
    assert house.asked == []


@pytest.mark.usefixtures("family")
async def test_an_unknown_id_fails_the_whole_call(tool_of: ToolOf, house: House) -> None:
    """Half of it done would be worse than nothing."""
    with pytest.raises(ToolError, match="there is no such task: 'theirs'"):
        await use(tool_of(), action="cancel", ids=[A, "theirs"])
    assert house.asked == []


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("action", ["result", "steer", "cancel"])
async def test_an_action_without_ids_is_refused(tool_of: ToolOf, action: str) -> None:
    """An omitted id must not cancel all tasks."""
    with pytest.raises(ToolError, match=f"{action}: say which tasks are meant"):
        await use(tool_of(), action=action, message="faster")


@pytest.mark.usefixtures("family")
async def test_a_list_shows_all_that_run_and_then_its_own_that_have_ended(
    tool_of: ToolOf, tell: Tell, requested: Asked
) -> None:
    """Each parent before its children, oldest first; of those that have ended the newest first."""
    tell(requested("e"), TaskSettled(TaskId("e"), DONE))
    tell(requested("f"), TaskSettled(TaskId("f"), DONE))

    listed = (await use(tool_of(), action="list"))["tasks"]
    assert [it["task_id"] for it in listed] == [A, C, D, "f", "e"]
    listed = (await use(tool_of(A), action="list"))["tasks"]
    assert [it["task_id"] for it in listed] == [C, B]
    listed = (await use(tool_of(), action="list", ids=[D, B, D]))["tasks"]
    assert [it["task_id"] for it in listed] == [D, B]


@pytest.mark.usefixtures("family")
async def test_a_list_shows_the_state_and_the_steering_of_each_task(
    tool_of: ToolOf, tell: Tell
) -> None:
    tell(Steered(A, MessageId("m"), "faster", "/editor"))
    tell(Steered(A, MessageId("n"), "slower", "/editor"))
    tell(SteeringSeen(A, (MessageId("m"),)))
    (first, *_) = (await use(tool_of(), action="list"))["tasks"]

    assert first == {
        "task_id": "a",
        "path": "/editor/researcher[1]",
        "label": "facts",
        "status": "running",
        "goal": "find it",
        "mode": "joined",
        "tokens": 0,
        "seconds": 95.0,
        "messages": [
            {"text": "faster", "seen_at_model_call": 1},
            {"text": "slower", "seen_at_model_call": None},
        ],
    }


async def test_a_long_list_is_cut_with_a_note(
    tool_of: ToolOf, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """Never in silence."""
    begin(PUSH)
    tell(*(requested(f"t{number}") for number in range(100)))
    assert "note" not in await use(tool_of(), action="list")

    tell(*(requested(f"more{number}") for number in range(3)))
    answer = await use(tool_of(), action="list")
    assert len(answer["tasks"]) == 100
    assert answer["note"] == "3 more are not shown."


@pytest.mark.usefixtures("family")
async def test_waiting_without_ids_means_the_own_running_tasks(
    tool_of: ToolOf, house: House
) -> None:
    """Any of them or all, for ever or for a while."""
    answer = await use(tool_of(), action="wait")
    assert answer["status"] == "still_running"
    assert [it["task_id"] for it in answer["running"]] == [A, D]
    answer = await use(tool_of(A), action="wait", ids=[B, C], mode="any", seconds=5)
    assert [it["task_id"] for it in answer["results"]] == [B]
    assert [it["task_id"] for it in answer["running"]] == [C]

    assert house.asked == [("wait", [A, D], False, None), ("wait", [B, C], True, 5)]


@pytest.mark.usefixtures("family")
async def test_the_results_of_all_that_have_ended_are_complete(tool_of: ToolOf) -> None:
    answer = await use(tool_of(), action="result", ids=[B])

    assert answer["status"] == "completed"
    assert "running" not in answer
    assert answer["results"][0]["output"] == "42"


@pytest.mark.usefixtures("family")
async def test_a_repeated_steer_call_sends_one_message(tool_of: ToolOf, house: House) -> None:
    """A call that is made again after a crash says nothing twice."""
    answer = await use(tool_of(), action="steer", ids=[A, C, A], message="faster")
    await use(tool_of(), action="steer", ids=[A], message="faster", seconds=0)

    assert answer == {"receipts": dict.fromkeys("ac", "seen before its model call 3")}
    names = {A: "m_s_call_1_a", C: "m_s_call_1_c"}
    assert house.asked == [
        ("steer", names, "faster", "/editor", SteeringOrigin.TASK, 30.0),
        ("steer", {A: names[A]}, "faster", "/editor", SteeringOrigin.TASK, 0),
    ]


@pytest.mark.usefixtures("family")
async def test_an_empty_steering_message_is_refused(tool_of: ToolOf, house: House) -> None:
    with pytest.raises(ToolError, match="steer: say something, in `message`"):
        await use(tool_of(), action="steer", ids=[A], message=" \n")
    assert house.asked == []


@pytest.mark.parametrize(
    ("receipt", "sentence"),
    [
        (Receipt("seen", 2), "seen before its model call 2"),
        (Receipt("too_late"), "too late: it ended before it could see this"),
        (Receipt("gone"), "gone: it had ended already"),
        (Receipt("waiting"), "not seen yet: it will be, before its next model call"),
    ],
)
def test_a_receipt_states_the_fate_of_its_message(receipt: Receipt, sentence: str) -> None:
    """A message is never lost without a word."""
    assert receipt.sentence == sentence


@pytest.mark.usefixtures("family")
async def test_a_cancel_returns_the_partial_results(tool_of: ToolOf, house: House) -> None:
    """The same answer as to a wait: partial results are results."""
    answer = await use(tool_of(), action="cancel", ids=[B, A])

    assert house.asked == [("cancel", [B, A])]
    assert [it["task_id"] for it in answer["results"]] == [B]


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("action", ["wait", "result", "cancel"])
async def test_an_answer_consumes_the_notices_of_its_tasks(
    ledger: Ledger, tool_of: ToolOf, tell: Tell, action: str
) -> None:
    """Notices are mail, and mail is read once; a task that still runs has none."""
    tell(TaskSettled(D, DONE))
    notice = ledger.last_seq

    of_ended = await result_of(tool_of(), action=action, ids=[D])
    of_running = await result_of(tool_of(), action=action, ids=[A])
    below = await result_of(tool_of(A), action=action, ids=[B])

    assert list(of_ended.consumes) == [notice]
    assert list(of_running.consumes) == []
    assert list(below.consumes) == [], "a task has no mail"


@pytest.mark.usefixtures("family")
async def test_a_result_that_is_too_long_is_read_page_by_page(
    ledger: Ledger, tool_of: ToolOf, tell: Tell
) -> None:
    text = "".join(f"{number} [offset={number}) reads on.]\n" for number in range(9_000))
    tell(TaskSettled(D, Outcome(Ending.SUCCEEDED, text)))
    assert len(text) > 3 * 50_000
    pages, offset = "", 0
    sizes: list[int] = []
    while True:
        answer = await use(tool_of(), action="result", ids=[D], offset=offset)
        output = answer["results"][0]["output"]
        page, left = split(output)
        pages += page
        sizes.append(len(page))
        if left is None:
            break
        assert left > offset
        offset = left

    assert pages == text
    assert max(sizes) == 50_000
    assert ledger.tasks[D].outcome == Outcome(Ending.SUCCEEDED, text)


def split(output: str) -> tuple[str, int | None]:
    """Return a page, and where the next one begins if there is one."""
    note = re.search(
        r'\n\[\d+ of \d+ characters are left out here: task\(action="result",'
        r' ids=\["d"\], offset=(\d+)\) reads on\.\]\Z',
        output,
    )
    return (output[: note.start()], int(note[1])) if note else (output, None)


@given(text=st.text(max_size=60), share=st.integers(1, 20))
def test_pages_of_any_size_make_up_the_text(text: str, share: int) -> None:
    pages, offset = "", 0
    while True:
        page, left = split(excerpt(text, share, D, offset=offset))
        assert len(page) <= max(share, len(text) - offset if left is None else share)
        pages += page
        if left is None:
            break
        offset = left

    assert pages == text


@pytest.mark.usefixtures("family")
async def test_results_share_the_readable_characters(
    tool_of: ToolOf, tell: Tell, requested: Asked
) -> None:
    """Two long ones are half as long, and a small window makes all of them shorter."""
    text = "x" * 60_000
    tell(requested("e"))
    for task in (D, TaskId("e")):
        tell(TaskSettled(task, Outcome(Ending.SUCCEEDED, text)))

    async def shown(agent: Agent[Any], *ids: str) -> list[int]:
        answer = await use(tool_of(agent=agent), action="result", ids=ids)
        return [it["output"].count("x") for it in answer["results"]]

    assert await shown(EDITOR, D) == [50_000]
    assert await shown(EDITOR, D, "e") == [25_000, 25_000]
    small = Agent("editor", model=ScriptedModel([]), compaction=Compaction(window=10_000))
    (alone,) = await shown(small, D)
    half, other = await shown(small, D, "e")
    assert 200 <= half == other == alone // 2 < 10_000


@pytest.mark.parametrize("rules", [Rules(live_tasks=1)])
async def test_a_list_shows_the_position_and_the_dependencies_of_each_task(
    tool_of: ToolOf, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """For room, with its position, or for tasks that it needs."""
    begin(PUSH)
    tell(requested(A), requested(B), requested(C), requested(D, needs=(C, A)))
    listed = (await use(tool_of(), action="list"))["tasks"]

    assert [it.get("position") for it in listed] == [None, 1, 2, None]
    assert [it.get("waits_for") for it in listed] == [None, None, None, [A, C]]


async def test_mail_named_by_an_answer_is_read_with_it(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """By the very fact of the answer, so that no crash comes between."""
    await trio.lowlevel.checkpoint()
    begin(PUSH)
    tell(requested(A, mode=Mode.DETACHED), requested(B, mode=Mode.DETACHED))
    tell(TaskSettled(A, DONE), TaskSettled(B, DONE))
    session = ledger.sessions[S]
    told, left = session.mail

    answer = ToolAnswered(TaskId(S), ToolMessage(CALL, "both"), (told,))
    tell(answer)
    assert list(session.mail) == [left]
    assert session.root.transcript[-1] == answer.message
