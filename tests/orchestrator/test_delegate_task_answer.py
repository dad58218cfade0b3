"""`delegate_task` answers with a result or a receipt for each task, in order."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, Price, ScriptedModel, ToolCall, Transcript
from orchestrator.testing import SpyModel, StreamingModel
from tests.kit import editor, hand_on, last_text, run, worker
from tests.orchestrator.delegate_task_kit import answer_to, handed

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


async def test_an_answer_has_exactly_these_fields_in_task_order() -> None:
    fast, slow = worker("fast", says="hare"), worker("slow", seconds=7, says="tortoise")
    call = handed(
        tasks=[{"goal": "a", "agent": "slow", "label": "first"}, {"goal": "b", "agent": "fast"}],
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
async def test_a_note_explains_a_task_that_was_joined_unasked(background: bool | None) -> None:
    call = hand_on("a", background=background)

    answer = await answer_to(call, worker())

    assert list(answer) == ["status", "results", "note"]
    assert answer["note"] == (
        "This ran within the same response, not in the background: the caller cannot be"
        " told anything after its turn ends."
    )


async def test_a_receipt_is_given_before_the_work_begins() -> None:
    begun: list[float] = []

    def work(_: Transcript) -> str:
        begun.append(trio.current_time())
        return "done"

    slow = Agent("slow", model=ScriptedModel.always(work, 5))
    call = handed(tasks=[{"goal": "a", "label": "first"}, {"goal": "b"}], background=True)
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
async def test_invalid_arguments_are_an_error_that_the_model_reads(
    arguments: Mapping[str, Any], why: str
) -> None:
    call = ToolCall("delegate_task", arguments)

    finished = await run(editor(call, last_text, delegates=[worker()]))

    assert why in finished.output
    assert len(finished.tree) == 1


async def test_shared_arguments_of_a_batch_apply_to_each_of_its_tasks() -> None:
    model = SpyModel(["x", "y"])
    call = handed(
        tasks=[{"goal": "a"}, {"goal": "b", "context": "own"}], context="shared", background=False
    )

    await answer_to(call, Agent("worker", model=model))

    assert sorted(texts[0] for texts in model.texts) == [
        "Context:\nown\n\nYour task:\nb",
        "Context:\nshared\n\nYour task:\na",
    ]


async def test_tokens_and_costs_cover_the_whole_subtree() -> None:
    price = Price(input=1_000, output=1_000)
    leaf = Agent("leaf", model=ScriptedModel.always("four" * 4, price=price))

    def split(transcript: Transcript) -> Any:
        return "done" if len(transcript) > 1 else hand_on("x", "y")

    middle = Agent("middle", model=ScriptedModel.always(split, price=price), delegates=[leaf])
    finished = await run(editor(hand_on("a", background=False), last_text, delegates=[middle]))

    (result,) = json.loads(finished.output)["results"]
    (task,) = finished.tree.children(finished.tree.root)
    below = finished.tree.children(task)
    own = finished.tree[task].usage
    total = sum((finished.tree[one].usage for one in below), own)
    assert result["tokens"] == total.tokens > own.tokens
    assert result["cost_usd"] == pytest.approx(total.tokens / 1_000)
    assert finished.usage.micro_usd == total.micro_usd


async def test_an_unknown_cost_is_null() -> None:
    unpriced = StreamingModel.always("x", price=None)
    answer = await answer_to(hand_on("a", background=False), Agent("worker", model=unpriced))

    assert answer["results"][0]["cost_usd"] is None
