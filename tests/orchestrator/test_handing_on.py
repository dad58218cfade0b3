"""What a model sees of handing work on: the answer, the copy, the schema, the share, the news."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio

from agents import (
    Agent,
    AssistantMessage,
    Compaction,
    DefinitionError,
    Limits,
    ModelError,
    ModelRequest,
    Price,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    tool,
)
from delegation import Ending, Rules, Tree
from delegation.events import TaskSettled, ToolAnswered, TurnStarted
from orchestrator import (
    JournalError,
    MemoryJournal,
    Run,
    open_orchestrator,
)
from tests.kit import facts, hand_on, worker

FIELDS = [
    "task_id",
    "path",
    "agent",
    "label",
    "status",
    "output",
    "error",
    "schema_errors",
    "tokens",
    "cost_usd",
    "seconds",
]
LEFT_OUT = re.compile(
    r"\n\[(\d+) of (\d+) characters are left out here: task\(action="
    r'"result", ids=\["(\w+)"\], offset=(\d+)\) reads on\.\]$'
)


class Watched(ScriptedModel):
    """A scripted model that remembers what it was sent."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.requests: list[ModelRequest] = []
        self.sent: list[list[str]] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.requests.append(request)
        # As it is now: the list goes on growing.
        self.sent.append([message.text for message in request.transcript])
        return await super().answer(request)

    @property
    def tools(self) -> list[str]:
        return [tool.name for tool in self.requests[0].tools]


def handed(goal: str = "", **arguments: Any) -> ToolCall:
    return ToolCall("delegate_task", {"goal": goal, **arguments} if goal else arguments)


def last_text(transcript: Transcript) -> str:
    return transcript[-1].text


def editor(*steps: Any, delegates: Sequence[Agent[Any]], **options: Any) -> Agent:
    return Agent("editor", model=ScriptedModel(steps), delegates=delegates, **options)


async def run(agent: Agent[Any], **options: Any) -> Run[Any]:
    async with open_orchestrator(":memory:", **options) as orchestrator:
        return await orchestrator.run(agent, "go")


async def answer_to(call: ToolCall, *delegates: Agent[Any], **options: Any) -> Any:
    """Return what a model reads when it hands work on within a run."""
    finished = await run(editor(call, last_text, delegates=delegates, **options))
    return json.loads(finished.output)


# The answer.


async def test_an_answer_has_exactly_these_fields_in_task_order() -> None:
    fast, slow = worker("fast", says="hare"), worker("slow", seconds=7, says="tortoise")
    call = handed(
        tasks=[
            {"goal": "a", "agent": "slow", "label": "first"},
            {"goal": "b", "agent": "fast"},
        ],
        background=False,
    )

    answer = await answer_to(call, fast, slow)

    assert list(answer) == ["status", "results"]
    assert answer["status"] == "completed"
    first, second = answer["results"]
    assert list(first) == list(second) == FIELDS
    assert re.fullmatch(r"t_[0-9a-f]+", first.pop("task_id"))
    assert first == {
        "path": "/editor/slow[1]",
        "agent": "slow",
        "label": "first",
        "status": "succeeded",
        "output": "tortoise",
        "error": "",
        "schema_errors": [],
        "tokens": 3,
        "cost_usd": 0.0,
        "seconds": 7.0,
    }
    assert (second["path"], second["output"]) == ("/editor/fast[1]", "hare")


@pytest.mark.parametrize("background", [None, True])
async def test_a_note_says_so_when_it_joined_although_nobody_asked_to_wait(
    background: bool | None,
) -> None:
    call = hand_on("a", background=background)

    answer = await answer_to(call, worker())

    assert list(answer) == ["status", "results", "note"]
    assert answer["note"] == (
        "This ran within the same response, not in the background: whoever asked cannot be"
        " told anything after its turn ends."
    )


async def test_a_receipt_is_given_before_the_work_begins() -> None:
    begun: list[float] = []

    def work(_: Transcript) -> str:
        begun.append(trio.current_time())
        return "done"

    slow = Agent("slow", model=ScriptedModel.always(work, 5))
    call = handed(
        tasks=[{"goal": "a", "label": "first"}, {"goal": "b"}], background=True
    )
    agent = editor(call, last_text, *["news"] * 9, delegates=[slow])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            receipt = json.loads((await session.ask("go")).text)
            assert begun == []
            ids = session.tree.children(session.tree.root)
            await session.wait_idle()

    assert list(receipt) == ["status", "tasks", "note"]
    assert receipt["status"] == "dispatched"
    assert receipt["tasks"] == [
        {"task_id": ids[0], "path": "/editor/slow[1]", "label": "first"},
        {"task_id": ids[1], "path": "/editor/slow[2]"},
    ]
    assert "You will be told when each ends" in receipt["note"]
    assert begun == [5, 5]


async def test_an_empty_list_beside_a_goal_is_one_task() -> None:
    answer = await answer_to(handed("a", tasks=[], background=False), worker())

    assert [result["status"] for result in answer["results"]] == ["succeeded"]


async def test_the_same_goal_twice_is_two_tasks() -> None:
    answer = await answer_to(hand_on("a", "a", background=False), worker())

    assert [result["path"] for result in answer["results"]] == [
        "/editor/worker[1]",
        "/editor/worker[2]",
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "every task needs a goal"),
        ({"goal": "  "}, "every task needs a goal"),
        ({"tasks": [{"goal": ""}]}, "every task needs a goal"),
        ({"goal": "a", "tasks": [{"goal": "b"}]}, "either one goal or a list of tasks"),
        ({"goal": "a", "agent": "nobody"}, "must be one of: worker"),
        ({"goal": "a", "toolsets": ["all"]}, "toolsets"),
        ({"goal": 5}, "goal"),
        ({"tasks": [{"goal": "a"}, {"goal": "b", "agent": "x"}]}, "'x'"),
    ],
)
async def test_what_makes_no_sense_is_an_error_that_the_model_reads(
    arguments: Mapping[str, Any], why: str
) -> None:
    call = ToolCall("delegate_task", arguments)

    finished = await run(editor(call, last_text, delegates=[worker()]))

    assert why in finished.output
    assert len(finished.tree) == 1


async def test_what_is_said_once_for_a_batch_holds_for_each_of_its_tasks() -> None:
    model = Watched(["x", "y"])
    call = handed(
        tasks=[{"goal": "a"}, {"goal": "b", "context": "own"}],
        context="shared",
        background=False,
    )

    await answer_to(call, Agent("worker", model=model))

    assert sorted(sent[0] for sent in model.sent) == [
        "a\n\nContext:\nshared",
        "b\n\nContext:\nown",
    ]


async def test_tokens_and_costs_are_those_of_a_task_and_all_below_it() -> None:
    price = Price(input=1_000, output=1_000)
    leaf = Agent("leaf", model=ScriptedModel.always("four" * 4, price=price))

    def split(transcript: Transcript) -> Any:
        return "done" if len(transcript) > 1 else hand_on("x", "y")

    middle = Agent(
        "middle", model=ScriptedModel.always(split, price=price), delegates=[leaf]
    )
    finished = await run(
        editor(hand_on("a", background=False), last_text, delegates=[middle])
    )

    (result,) = json.loads(finished.output)["results"]
    (task,) = finished.tree.children(finished.tree.root)
    below = finished.tree.children(task)
    own = finished.tree[task]["usage"]
    total = sum((finished.tree[one]["usage"] for one in below), own)
    assert result["tokens"] == total.tokens > own.tokens
    assert result["cost_usd"] == pytest.approx(total.tokens / 1_000)
    assert finished.usage.cost == total.cost


async def test_a_cost_that_nobody_knows_is_not_nothing() -> None:
    class Unpriced:
        name = "unpriced"

        async def answer(self, _: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            return AssistantMessage("x", usage=Usage(calls=1, unpriced=1))

    answer = await answer_to(
        hand_on("a", background=False), Agent("worker", model=Unpriced())
    )

    assert answer["results"][0]["cost_usd"] is None


# Whom the work is handed to.


@tool
async def own() -> str:
    """Be the parent's tool."""
    await trio.lowlevel.checkpoint()
    return "own"


@tool
async def special() -> str:
    """Be a delegate's tool."""
    await trio.lowlevel.checkpoint()
    return "special"


async def test_a_copy_has_the_tools_of_its_parent_and_may_hand_on_too() -> None:
    model = Watched([hand_on("half", background=False), "leaf", "whole"])
    agent = Agent("editor", instructions="Edit.", model=model, tools=[own], copies=True)

    finished = await run(agent)

    parent, child, _ = model.requests
    assert [tool.name for tool in parent.tools] == ["own", "delegate_task", "task"]
    assert [tool.name for tool in child.tools] == ["own", "delegate_task", "task"]
    assert child.instructions == "Edit."
    assert [finished.tree[task]["path"] for task in finished.tree.graph] == [
        "/editor",
        "/editor/editor[1]",
    ]


async def test_with_two_to_ask_and_none_named_a_leaf_copy_does_it() -> None:
    model = Watched([handed("half", background=False), "leaf", last_text])
    delegates = [
        Agent("a", model=ScriptedModel([]), tools=[special]),
        Agent("b", model=ScriptedModel([]), tools=[special]),
    ]
    agent = Agent("editor", model=model, tools=[own], delegates=delegates)

    finished = await run(agent)

    assert [tool.name for tool in model.requests[1].tools] == ["own"]
    (result,) = json.loads(finished.output)["results"]
    assert (result["path"], result["agent"]) == ("/editor/editor[1]", "editor")
    assert result["output"] == "leaf"


async def test_with_one_to_ask_and_none_named_that_one_does_it() -> None:
    answer = await answer_to(handed("a", background=False), worker("only"))

    assert answer["results"][0]["path"] == "/editor/only[1]"


async def test_whoever_has_copies_and_names_none_means_a_copy() -> None:
    model = Watched([handed("half", background=False), "leaf", last_text])
    agent = Agent(
        "editor",
        model=model,
        tools=[own],
        delegates=[Agent("only", model=ScriptedModel([]), tools=[special])],
        copies=True,
    )

    finished = await run(agent)

    assert json.loads(finished.output)["results"][0]["path"] == "/editor/editor[1]"
    assert "special" not in [tool.name for tool in model.requests[1].tools]


async def test_a_leaf_that_asks_for_more_is_told_that_there_is_no_such_tool() -> None:
    model = Watched(
        [handed("half", background=False), handed("quarter"), last_text, last_text]
    )
    agent = Agent(
        "editor", model=model, tools=[own], delegates=[worker("a"), worker("b")]
    )

    finished = await run(agent)

    assert "there is no tool 'delegate_task'" in finished.output
    assert len(finished.tree) == 2


async def test_whoever_may_not_hand_on_has_no_tool_for_it() -> None:
    model = Watched(["x"])

    await run(Agent("solo", model=model, tools=[own]))

    assert model.tools == ["own"]


@pytest.mark.parametrize("copies", [True, False])
async def test_a_child_sees_nothing_of_its_parents_history(copies: bool) -> None:
    """No history, no memory: what it must know is in its goal and its context."""
    model = Watched(
        [ToolCall("own"), handed("part", context="Be brief.", background=False), "x"]
    )
    child = Watched(["done"])
    if copies:
        agent = Agent("editor", model=Either(model, child), tools=[own], copies=True)
    else:
        helper = Agent("helper", instructions="Help.", model=child)
        agent = Agent(
            "editor",
            instructions="Know a secret.",
            model=model,
            tools=[own],
            delegates=[helper],
        )
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(agent, "the whole story, with a secret")

    (request,) = child.requests
    assert child.sent == [["part\n\nContext:\nBe brief."]]
    assert isinstance(request.transcript[0], UserMessage)
    assert "secret" not in request.instructions


class Either:
    """A model for an agent and its copies: those whose goal is a part have another script."""

    name = "either"

    def __init__(self, parent: ScriptedModel, child: ScriptedModel) -> None:
        self._parent = parent
        self._child = child

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        is_child = request.transcript[0].text.startswith("part")
        return await (self._child if is_child else self._parent).answer(request)


async def test_a_copy_is_found_again_after_a_crash() -> None:
    def say(transcript: Transcript) -> Any:
        if transcript[0].text.startswith("part"):
            return "copied"
        answered = any(isinstance(message, ToolMessage) for message in transcript)
        return last_text(transcript) if answered else handed("part", background=True)

    def agent(seconds: float) -> Agent:
        model = ScriptedModel.always(say, seconds)
        return Agent("editor", model=model, delegates=[worker("a"), worker("b")])

    journal = MemoryJournal()
    with trio.move_on_after(10):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent(4)) as session:
                await session.ask("go")
                await trio.sleep_forever()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent(0), session=session.id) as again:
            await again.wait_idle()

            assert "copied" in again.replies.receive_nowait().text


async def test_a_copy_promises_what_its_parent_promises() -> None:
    model = ScriptedModel([handed("part", background=False), "no list", "[1]", "[2]"])
    agent = Agent("editor", model=model, output=list[int], copies=True)

    finished = await run(agent)

    assert finished.output == [2]
    (child,) = finished.tree.children(finished.tree.root)
    assert finished.tree[child]["usage"].calls == 2  # one repair


# What the answer must look like.

SCHEMA = {
    "type": "object",
    "properties": {"pages": {"type": "integer", "minimum": 1}},
    "required": ["pages"],
    "additionalProperties": False,
}


async def test_an_answer_that_fits_at_once_is_not_asked_for_again() -> None:
    model = Watched(['{"pages": 3}'])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False),
        Agent("worker", model=model),
    )

    (result,) = answer["results"]
    assert (result["status"], result["output"]) == ("succeeded", '{"pages": 3}')
    assert result["schema_errors"] == []
    assert len(model.requests) == 1
    assert model.requests[0].output == SCHEMA


async def test_an_answer_that_does_not_fit_is_repaired_once() -> None:
    model = Watched(['{"pages": 0}', '{"pages": 3}'])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False),
        Agent("worker", model=model),
    )

    (result,) = answer["results"]
    assert (result["status"], result["output"]) == ("succeeded", '{"pages": 3}')
    assert result["schema_errors"] == []
    complaint = model.sent[1][-1]
    assert "could not be read" in complaint
    assert "pages" in complaint


async def test_an_answer_that_never_fits_is_a_failure_with_the_errors() -> None:
    model = Watched(['{"pages": 0}', '{"leaves": 3}', "never asked"])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False),
        Agent("worker", model=model),
    )

    (result,) = answer["results"]
    assert result["status"] == "failed"
    assert result["output"] == '{"leaves": 3}'
    assert any("pages" in problem for problem in result["schema_errors"])
    assert "does not fit the schema" in result["error"]
    assert len(model.requests) == 2


async def test_what_is_no_json_at_all_is_repaired_too() -> None:
    model = Watched(["three pages", '{"pages": 3}'])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False),
        Agent("worker", model=model),
    )

    assert answer["results"][0]["status"] == "succeeded"


async def test_a_provider_that_fails_in_the_repair_fails_the_task() -> None:
    model = Watched(["three pages", ModelError("HTTP 500")])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False),
        Agent("worker", model=model),
    )

    (result,) = answer["results"]
    assert (result["status"], result["error"]) == ("failed", "HTTP 500")
    assert result["output"] == "three pages"


async def test_a_child_that_failed_for_another_reason_has_no_schema_errors() -> None:
    model = Watched([ModelError("HTTP 500")])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False),
        Agent("worker", model=model),
    )

    (result,) = answer["results"]
    assert (result["status"], result["schema_errors"]) == ("failed", [])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "https://example.com/schema.json"},
        {"type": "object", "required": "pages"},
    ],
)
async def test_a_schema_that_is_none_is_an_error_before_anything_starts(
    schema: Mapping[str, Any],
) -> None:
    call = handed(
        tasks=[{"goal": "a"}, {"goal": "b", "output_schema": schema}], background=False
    )

    finished = await run(editor(call, last_text, delegates=[worker()]))

    assert finished.output.startswith("output_schema: ")
    assert "no task was started" in finished.output
    assert len(finished.tree) == 1


async def test_each_task_of_a_batch_may_have_its_own_schema() -> None:
    def say(transcript: Transcript) -> str:
        return '{"pages": 3}' if transcript[0].text == "object" else "[1, 2]"

    call = handed(
        tasks=[
            {"goal": "object"},
            {"goal": "array", "output_schema": {"type": "array"}},
        ],
        output_schema=SCHEMA,
        background=False,
    )

    answer = await answer_to(call, Agent("worker", model=ScriptedModel.always(say)))

    assert [result["status"] for result in answer["results"]] == ["succeeded"] * 2


@attrs.frozen
class Book:
    title: str
    pages: int


async def test_an_agent_that_promises_a_type_keeps_the_schema_as_well() -> None:
    """What the agent promises and what is asked for both hold."""
    schema = {"properties": {"pages": {"minimum": 100}}}
    model = Watched(
        ['{"title": "Trio", "pages": 3}', '{"title": "Trio", "pages": 300}']
    )

    answer = await answer_to(
        handed("write", output_schema=schema, background=False),
        Agent("writer", model=model, output=Book),
    )

    (result,) = answer["results"]
    assert result["status"] == "succeeded"
    assert result["output"] == '{"title": "Trio", "pages": 300}'
    assert len(model.requests) == 2


async def test_an_agent_that_promises_a_type_breaks_it_whatever_the_schema() -> None:
    model = Watched(['{"title": "Trio"}', '{"title": "Trio"}'])

    answer = await answer_to(
        handed("write", output_schema={"type": "object"}, background=False),
        Agent("writer", model=model, output=Book),
    )

    (result,) = answer["results"]
    assert result["status"] == "failed"
    assert any("pages" in problem for problem in result["schema_errors"])


async def test_a_schema_holds_in_the_background_and_is_told() -> None:
    model = ScriptedModel.always('{"pages": 0}')
    call = handed("count", output_schema=SCHEMA, background=True)
    agent = editor(call, "ok", last_text, delegates=[Agent("worker", model=model)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            news = await session.replies.receive()

    assert "Outcome: failed" in news.text
    assert "does not fit the schema" in news.text


async def test_a_schema_holds_after_a_crash() -> None:
    """Wherever the crash is, a wrong answer is repaired once and the right one is taken."""

    def count(transcript: Transcript) -> str:
        return '{"pages": 3}' if len(transcript) > 1 else "three"

    def agent() -> Agent:
        def say(transcript: Transcript) -> Any:
            answered = any(isinstance(message, ToolMessage) for message in transcript)
            call = handed("count", output_schema=SCHEMA, background=True)
            return last_text(transcript) if answered else call

        helper = Agent("worker", model=ScriptedModel.always(count))
        return Agent("editor", model=ScriptedModel.always(say), delegates=[helper])

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent()) as session:
            await session.ask("go")
            await session.wait_idle()
    whole = journal.entries
    for length in range(8, len(whole)):
        cut = MemoryJournal(whole[:length])
        async with open_orchestrator(cut) as orchestrator:
            async with orchestrator.open_session(agent(), session=session.id) as again:
                await again.wait_idle()

        (settled,) = facts(cut.entries, TaskSettled)
        assert settled.outcome.ending is Ending.SUCCEEDED, length
        assert settled.outcome.output == '{"pages": 3}', length


# What is too long to read at once.


def long(characters: int) -> str:
    """Return a text in which every place is different, with letters of several bytes."""
    words = (f"{number:x}·ä😀" for number in range(characters // 4 + 1))
    return "".join(words)[:characters]


def whole_of(page: str) -> tuple[str, int | None]:
    """Return what a page has of the text, and where the next one begins."""
    left_out = LEFT_OUT.search(page)
    if left_out is None:
        return page, None
    left, total, _, offset = left_out.groups()
    assert int(left) + int(offset) == int(total)
    return page[: left_out.start()], int(offset)


class Reader:
    """A model that hands on, and then reads the whole output of the first task, page by page."""

    name = "reader"

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self.pages: list[str] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        said = self._say(request.transcript)
        return await ScriptedModel([said]).answer(request)

    def _say(self, transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, UserMessage) and not last.text.startswith("A task"):
            return self._call
        if isinstance(last, UserMessage):
            page = last.text.partition("Output:\n")[2]
            task = re.findall(r"t_[0-9a-f]+", last.text)[0]
        else:
            answer = json.loads(last.text)
            if answer["status"] == "dispatched":
                return "wait"
            page = answer["results"][0]["output"]
            task = answer["results"][0]["task_id"]
        text, offset = whole_of(page)
        self.pages.append(text)
        if offset is None:
            return "read"
        asked = {"action": "result", "ids": [task], "offset": offset}
        return ToolCall("task", asked)


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("characters", [0, 1, 49_999, 50_000, 50_001, 123_456])
async def test_a_long_output_is_read_in_pages_and_nothing_is_lost(
    characters: int, background: bool
) -> None:
    text = long(characters)
    assert len(text) == characters
    reader = Reader(hand_on("a", background=background))
    agent = Agent("editor", model=reader, delegates=[worker(says=text)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert "".join(reader.pages) == text
    assert len(reader.pages) == max(1, -(-characters // 50_000))


async def test_a_long_output_is_read_on_after_a_restart() -> None:
    text = long(120_000)
    journal = MemoryJournal()
    agent = Agent(
        "editor",
        model=Reader(hand_on("a", background=True)),
        delegates=[worker(says=text)],
    )
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            (task,) = session.tree.children(session.tree.root)
    pages: list[str] = []

    def read(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            page, offset = whole_of(json.loads(last.text)["results"][0]["output"])
            pages.append(page)
        else:
            offset = 0
        if offset is None:
            return "read"
        asked = {"action": "result", "ids": [task], "offset": offset}
        return ToolCall("task", asked)

    again = Agent("editor", model=ScriptedModel.always(read), delegates=[worker()])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(again, session=session.id) as session:
            await session.ask("read it again")

    assert "".join(pages) == text


async def test_several_results_share_what_can_be_read_and_the_short_are_whole() -> None:
    """Whoever is cut is marked, and nobody else."""

    def say(transcript: Transcript) -> str:
        return "short" if transcript[0].text == "s" else long(20_000)

    call = hand_on(*"slsslsssss", background=False)
    answer = await answer_to(call, Agent("worker", model=ScriptedModel.always(say)))

    outputs = [result["output"] for result in answer["results"]]
    assert [whole_of(output)[1] for output in outputs] == [
        None,
        5_000,
        None,
        None,
        5_000,
        *[None] * 5,
    ]
    assert outputs.count("short") == 8


async def test_however_many_there_are_each_can_say_something() -> None:
    call = hand_on(*["l"] * 60, background=False)

    answer = await answer_to(call, worker(says=long(3_000)))

    assert {whole_of(result["output"])[1] for result in answer["results"]} == {2_000}


async def share_of(window: int, said: int) -> int:
    """Return how many characters of a long result a tool answers, to whom so much was said."""
    agent = editor(
        hand_on("a", background=False),
        "end",
        delegates=[worker(says=long(60_000))],
        compaction=Compaction(window=window, summarizer=ScriptedModel.always("short")),
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("x" * said)
    # What the model is sent may be shorter still: this is what the tool has answered.
    (answered,) = facts(journal.entries, ToolAnswered)
    (result,) = json.loads(answered.message.text)["results"]
    shown, offset = whole_of(result["output"])
    assert offset == len(shown)
    return len(shown)


async def test_a_small_window_makes_the_share_small() -> None:
    """And what was said already makes it smaller: whoever reads has to answer, too."""
    filled = await share_of(10_000, 20_000)
    small = await share_of(10_000, 10)
    middle = await share_of(20_000, 10)
    large = await share_of(1_000_000, 10)

    assert 2_000 <= filled < small < middle < large <= 50_000
    assert small <= 10_000 * 4 / 2
    assert middle <= 20_000 * 4 / 2


@pytest.mark.parametrize("window", [4_000, 6_000, 10_000, 20_000, 100_000])
@pytest.mark.parametrize("background", [True, False])
async def test_whoever_can_hand_work_on_can_also_read_what_comes_of_it(
    window: int, background: bool
) -> None:
    """A result that does not fit into the window would end the turn that waits for it."""
    agent = Agent(
        "editor",
        model=ScriptedModel.always(
            lambda transcript: (
                "end" if len(transcript) > 1 else hand_on("a", background=background)
            )
        ),
        delegates=[worker(says="word " * 20_000)],
        compaction=Compaction(window=window, summarizer=ScriptedModel.always("short")),
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            replies = [await session.ask("go")]
            await session.wait_idle()
            if background:
                replies.append(session.replies.receive_nowait())

    assert [reply.text for reply in replies] == ["end"] * len(replies)


# The news.


async def test_news_can_be_understood_without_any_history() -> None:
    told: list[str] = []

    def hear(transcript: Transcript) -> str:
        told.append(last_text(transcript))
        return "thanks"

    price = Price(input=0, output=250_000)
    helper = Agent("helper", model=ScriptedModel(["Found."], 5, price=price))
    call = handed("find the sea", label="sea", background=True)
    agent = editor(call, "wait", hear, delegates=[helper])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            (task,) = session.tree.children(session.tree.root)

    pattern = (
        r"A task that you handed on in the background has ended: /editor/helper\[1\]"
        rf" \({task}, 'sea'\)\.\n"
        r"Asked: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, in turn 1\.\n"
        r"Goal: find the sea\n"
        r"Outcome: succeeded after 5\.0 s; 5 tokens, \$0\.5000\.\n"
        r"Output:\nFound\."
    )
    assert re.fullmatch(pattern, told[0])


async def test_news_of_a_failure_says_what_went_wrong() -> None:
    helper = Agent("helper", model=ScriptedModel([ModelError("HTTP 401")]))
    agent = editor(
        hand_on("find the sea", background=True), "wait", last_text, delegates=[helper]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            news = await session.replies.receive()

    assert "Goal: find the sea" in news.text
    assert "Outcome: failed" in news.text
    assert "Error: HTTP 401" in news.text
    assert "Output:" not in news.text


async def test_only_the_news_that_is_cut_says_so() -> None:
    told: list[str] = []

    def hear(transcript: Transcript) -> str:
        told[:] = [m.text for m in transcript if m.text.startswith("A task")]
        return "thanks"

    def say(transcript: Transcript) -> str:
        return "short" if transcript[0].text == "s" else long(60_000)

    helper = Agent("helper", model=ScriptedModel.always(say, 5))
    agent = editor(hand_on("s", "l", background=True), "wait", hear, delegates=[helper])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    marked = {("Goal: l" in news, "are left out here" in news) for news in told}
    assert marked == {(True, True), (False, False)}


async def test_news_that_is_due_together_makes_one_turn_and_sessions_never_merge() -> (
    None
):
    journal = MemoryJournal()
    heard: dict[str, list[str]] = {}
    async with open_orchestrator(journal) as orchestrator:

        async def talk(name: str) -> None:
            def hear(transcript: Transcript) -> str:
                heard.setdefault(name, []).append(
                    "\n".join(m.text for m in transcript if m.text.startswith("A task"))
                )
                return "thanks"

            agent = editor(
                hand_on(f"{name}1", f"{name}2", f"{name}3", background=True),
                "wait",
                hear,
                delegates=[worker(seconds=5)],
            )
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()

        async with trio.open_nursery() as nursery:
            for name in "abcdefgh":
                nursery.start_soon(talk, name)

    assert len(facts(journal.entries, TurnStarted)) == 2 * 8
    for name, (news,) in heard.items():
        told = sorted(re.findall(r"Goal: (\w+)", news))
        assert told == [f"{name}{number}" for number in (1, 2, 3)]


async def test_news_that_comes_later_makes_a_turn_of_its_own() -> None:
    journal = MemoryJournal()
    agent = editor(
        [
            hand_on("a", agent="fast", background=True),
            hand_on("b", agent="slow", background=True),
        ],
        "wait",
        "first",
        "second",
        delegates=[worker("fast", seconds=5), worker("slow", seconds=50)],
    )
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            assert (await session.replies.receive()).text == "first"
            assert trio.current_time() == 5
            assert (await session.replies.receive()).text == "second"
            assert trio.current_time() == 50


# How things end.


@tool
async def wait() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return "never"


async def test_every_ending_is_told_for_what_it_is() -> None:
    def crash(_: Transcript) -> str:
        raise ZeroDivisionError

    never = ScriptedModel.always(ToolCall("wait"))
    delegates = [
        worker("good"),
        Agent("broken", model=ScriptedModel.always(crash)),
        Agent("stopped", model=never, tools=[wait]),
        Agent("late", model=never, tools=[wait], limits=Limits(seconds=5)),
        Agent(
            "greedy",
            model=ScriptedModel.always(ToolCall("x")),
            limits=Limits(model_calls=2),
        ),
    ]
    names = [delegate.name for delegate in delegates]
    tasks: list[dict[str, Any]] = [
        {"goal": name, "agent": name, "label": name} for name in names
    ]
    tasks.append({"goal": "x", "agent": "good", "label": "x", "depends_on": ["broken"]})
    agent = editor(
        handed(tasks=tasks, background=False), last_text, delegates=delegates
    )
    async with open_orchestrator(":memory:") as orchestrator:
        outputs: list[str] = []

        async def go() -> None:
            outputs.append((await orchestrator.run(agent, "go")).output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            (stopped,) = (id_ for id_ in tree.graph if tree[id_]["agent"] == "stopped")
            await orchestrator.cancel(stopped)

    results = {result["label"]: result for result in json.loads(outputs[0])["results"]}
    assert {label: result["status"] for label, result in results.items()} == {
        "good": "succeeded",
        "broken": "failed",
        "stopped": "cancelled",
        "late": "timed_out",
        "greedy": "over_budget",
        "x": "refused",
    }
    assert "ZeroDivisionError" in results["broken"]["error"]
    assert "5 seconds" in results["late"]["error"]
    assert "2 model calls" in results["greedy"]["error"]
    assert all(result["error"] for label, result in results.items() if label != "good")


async def test_what_died_with_its_process_is_lost() -> None:
    """A process that is killed writes nothing: its journal just ends."""
    waiting = Agent("w", model=ScriptedModel.always(ToolCall("wait")), tools=[wait])
    agent = editor(hand_on("a", "b", background=False), "never", delegates=[waiting])
    journal = MemoryJournal()
    async with open_orchestrator(journal, rules=Rules(live_tasks=1)) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await trio.sleep(10)
            left = MemoryJournal(journal.entries)
            nursery.cancel_scope.cancel()
    async with open_orchestrator(left) as orchestrator:
        (run_id,) = orchestrator.runs
        tree = orchestrator.tree(run_id)

        assert tree.counts() == {"lost": 3}
        assert "process died" in tree[tree.root]["error"]


# Deep down.


def chain(depth: int, bottom: Any, tools: Sequence[Any] = ()) -> Agent:
    """Return an agent whose copies hand on one level further, down to the bottom."""

    def say(transcript: Transcript) -> Any:
        level = int(transcript[0].text)
        if level == depth:
            return bottom
        return "up" if len(transcript) > 1 else handed(str(level + 1), background=False)

    return Agent("link", model=ScriptedModel.always(say), tools=tools, copies=True)


@pytest.mark.parametrize("depth", [200, 250])
async def test_a_deep_chain_comes_back_up(depth: int) -> None:
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        finished = await orchestrator.run(chain(depth, "bottom"), "0")

    assert finished.output == "up"
    assert finished.tree.counts() == {"succeeded": depth + 1}


@pytest.mark.parametrize("depth", [200, 250])
async def test_a_cancel_crosses_a_deep_chain(depth: int) -> None:
    agent = chain(depth, ToolCall("wait"), [wait])
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "0")
            await trio.sleep(10)
            tree = orchestrator.tree(orchestrator.runs[-1])
            (first,) = tree.children(tree.root)
            await orchestrator.cancel(first)

    assert tree.counts() == {"cancelled": depth, "succeeded": 1}


@pytest.mark.parametrize("depth", [200, 250])
async def test_a_cancel_from_outside_crosses_a_deep_chain(depth: int) -> None:
    agent = chain(depth, ToolCall("wait"), [wait])
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        with trio.move_on_after(10):
            await orchestrator.run(agent, "0")
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert tree.counts() == {"cancelled": depth + 1}


async def test_a_deep_chain_in_the_background_is_interrupted_and_goes_on() -> None:
    depth = 200

    def agent(*, to_wait: bool) -> Agent:
        link = chain(depth, ToolCall("wait") if to_wait else "bottom", [wait])
        calls = ScriptedModel.always(
            lambda transcript: (
                "ok" if len(transcript) > 1 else hand_on("1", background=True)
            )
        )
        return Agent("lead", model=calls, delegates=[link])

    journal = MemoryJournal()
    rules = Rules(depth=depth)
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent(to_wait=True)) as session:
                await session.ask("go")
                await trio.sleep_forever()
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(
            agent(to_wait=False), session=session.id
        ) as again:
            await again.wait_idle()

            assert again.tree.counts() == {"succeeded": depth + 1}


@pytest.mark.parametrize("depth", [200, 250])
async def test_an_error_at_the_bottom_is_a_result_one_level_up(depth: int) -> None:
    @tool
    async def fall() -> str:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    agent = chain(depth, ToolCall("fall"), [fall])
    async with open_orchestrator(":memory:", rules=Rules(depth=depth)) as orchestrator:
        finished = await orchestrator.run(agent, "0")

    assert finished.tree.counts() == {"succeeded": depth, "failed": 1}


@pytest.mark.parametrize("depth", [200, 250])
async def test_an_error_that_ends_everything_crosses_a_deep_chain(depth: int) -> None:
    """It comes out alone: groups that grew with every level would end in a RecursionError."""

    class Breaking(MemoryJournal):
        broken = False

        async def wait_durable(self, seq: int) -> None:
            await trio.lowlevel.checkpoint()
            if self.broken:
                raise JournalError("journal", "the disk is full")

    journal = Breaking()

    @tool
    async def fill() -> str:
        await trio.lowlevel.checkpoint()
        journal.broken = True
        return "full"

    agent = chain(depth, ToolCall("fill"), [fill])
    with pytest.raises(JournalError, match="the disk is full"):
        async with open_orchestrator(journal, rules=Rules(depth=depth)) as orchestrator:
            await orchestrator.run(agent, "0")


async def test_an_interrupt_of_the_user_crosses_a_deep_chain() -> None:
    @tool
    async def press() -> str:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    agent = chain(200, ToolCall("press"), [press])
    with pytest.raises(KeyboardInterrupt):
        async with open_orchestrator(
            ":memory:", rules=Rules(depth=200)
        ) as orchestrator:
            await orchestrator.run(agent, "0")


@pytest.mark.parametrize("depth", [251, 1_000])
def test_what_no_cancel_could_cross_is_refused(depth: int) -> None:
    with pytest.raises(DefinitionError, match=f"depth={depth}"):
        Rules(depth=depth)


def test_a_negative_limit_makes_no_sense() -> None:
    for rule in ("depth", "children_per_call", "live_children", "live_tasks", "queue"):
        negative: dict[str, Any] = {rule: -1}
        with pytest.raises(DefinitionError, match=rf"Rules\({rule}=-1\)"):
            Rules(**negative)


# What belongs to a turn and what outlives it.


async def test_cancelling_a_turn_leaves_what_runs_in_the_background() -> None:
    agent = editor(
        hand_on("apart", background=True),
        hand_on("within", background=False),
        "news",
        delegates=[worker(seconds=100)],
    )

    def modes(tree: Tree) -> dict[str, str]:
        return {tree[task]["goal"]: tree[task]["status"] for task in tree.graph}

    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)

                assert modes(session.tree) == {
                    "go": "waiting",
                    "apart": "running",
                    "within": "cancelled",
                }
            await session.wait_idle()

            assert session.replies.receive_nowait().text == "news"
