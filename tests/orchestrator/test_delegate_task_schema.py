"""A task with a schema: the output fits it, is repaired once, or the task fails."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ModelError, ScriptedModel, ToolMessage, Transcript
from orchestrator.delegation import Ending
from orchestrator.delegation.events import TaskSettled
from orchestrator.testing import SpyModel
from tests.kit import editor, facts, last_text, run, worker
from tests.orchestrator.delegate_task_kit import answer_to, handed

SCHEMA = {
    "type": "object",
    "properties": {"pages": {"type": "integer", "minimum": 1}},
    "required": ["pages"],
    "additionalProperties": False,
}


async def test_an_answer_that_fits_at_once_is_not_asked_for_again() -> None:
    model = SpyModel(['{"pages": 3}'])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False), Agent("worker", model=model)
    )

    (result,) = answer["results"]
    assert (result["status"], result["output"]) == ("succeeded", '{"pages": 3}')
    assert result["schema_errors"] == []
    assert len(model.requests) == 1
    assert model.requests[0].output == SCHEMA


async def test_an_answer_that_does_not_fit_is_repaired_once() -> None:
    model = SpyModel(['{"pages": 0}', '{"pages": 3}'])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False), Agent("worker", model=model)
    )

    (result,) = answer["results"]
    assert (result["status"], result["output"]) == ("succeeded", '{"pages": 3}')
    assert result["schema_errors"] == []
    complaint = model.texts[1][-1]
    assert "could not be read" in complaint
    assert "pages" in complaint


async def test_an_answer_that_never_fits_is_a_failure_with_the_errors() -> None:
    model = SpyModel(['{"pages": 0}', '{"leaves": 3}', "never asked"])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False), Agent("worker", model=model)
    )

    (result,) = answer["results"]
    assert result["status"] == "failed"
    assert result["output"] == '{"leaves": 3}'
    assert any("pages" in problem for problem in result["schema_errors"])
    assert "does not fit the schema" in result["error"]
    assert len(model.requests) == 2


async def test_an_output_that_is_not_json_is_repaired_too() -> None:
    model = SpyModel(["three pages", '{"pages": 3}'])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False), Agent("worker", model=model)
    )

    assert answer["results"][0]["status"] == "succeeded"


async def test_a_provider_that_fails_in_the_repair_fails_the_task() -> None:
    model = SpyModel(["three pages", ModelError("HTTP 500")])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False), Agent("worker", model=model)
    )

    (result,) = answer["results"]
    assert (result["status"], result["error"]) == ("failed", "HTTP 500")
    assert result["output"] == "three pages"


async def test_a_child_that_failed_for_another_reason_has_no_schema_errors() -> None:
    model = SpyModel([ModelError("HTTP 500")])

    answer = await answer_to(
        handed("count", output_schema=SCHEMA, background=False), Agent("worker", model=model)
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
async def test_an_invalid_output_schema_is_refused_before_any_task_starts(
    schema: Mapping[str, Any],
) -> None:
    call = handed(tasks=[{"goal": "a"}, {"goal": "b", "output_schema": schema}], background=False)

    finished = await run(editor(call, last_text, delegates=[worker()]))

    assert finished.output.startswith("output_schema: ")
    assert "no task was started" in finished.output
    assert len(finished.tree) == 1


async def test_each_task_of_a_batch_may_have_its_own_schema() -> None:
    def say(transcript: Transcript) -> str:
        return '{"pages": 3}' if transcript[0].text == "object" else "[1, 2]"

    call = handed(
        tasks=[{"goal": "object"}, {"goal": "array", "output_schema": {"type": "array"}}],
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
    schema = {"properties": {"pages": {"minimum": 100}}}
    model = SpyModel(['{"title": "Trio", "pages": 3}', '{"title": "Trio", "pages": 300}'])

    answer = await answer_to(
        handed("write", output_schema=schema, background=False),
        Agent("writer", model=model, output=Book),
    )

    (result,) = answer["results"]
    assert result["status"] == "succeeded"
    assert result["output"] == '{"title": "Trio", "pages": 300}'
    assert len(model.requests) == 2


async def test_the_promised_type_applies_beside_the_schema() -> None:
    model = SpyModel(['{"title": "Trio"}', '{"title": "Trio"}'])

    answer = await answer_to(
        handed("write", output_schema={"type": "object"}, background=False),
        Agent("writer", model=model, output=Book),
    )

    (result,) = answer["results"]
    assert result["status"] == "failed"
    assert any("pages" in problem for problem in result["schema_errors"])


async def test_a_schema_applies_to_background_tasks_too() -> None:
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
