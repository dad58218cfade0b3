"""Hooks see, change and refuse what goes to models and tools, before it is recorded."""

from typing import Any

import attrs
import pytest
import trio
from msgspec.structs import replace

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Hooks,
    ModelRequest,
    ScriptedModel,
    TaskContext,
    ToolCall,
    ToolError,
    ToolMessage,
    Usage,
    deny,
    tool,
)
from orchestrator.delegation import Cause
from orchestrator.delegation.events import ModelAnswered, ToolAnswered
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import editor, facts, hand_on, run, worker
from tests.orchestrator.test_replay import run_of


@tool
async def look(at: str) -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return f"{at} is blue"


def looker(hooks: Hooks[Any], **options: Any) -> Agent:
    def answer(transcript: Any) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return last.text
        return ToolCall("look", {"at": "the sky"})

    options.setdefault("model", ScriptedModel.always(answer))
    return Agent("looker", tools=[look], hooks=[hooks], **options)


async def test_hooks_see_all_calls_in_order() -> None:
    seen: list[str] = []

    async def before_model(task: TaskContext[str], request: ModelRequest) -> None:
        await trio.sleep(1)
        seen.append(f"before model {task.path} {len(request.transcript)} {task.deps}")

    def after_model(task: TaskContext[str], answer: AssistantMessage) -> None:
        seen.append(f"after model {answer.text or answer.calls[0].name} {task.deps}")

    async def before_tool(task: TaskContext[str], call: ToolCall) -> None:
        await trio.sleep(1)
        seen.append(f"before {call.name} {task.deps}")

    def after_tool(task: TaskContext[str], call: ToolCall, text: str) -> None:
        seen.append(f"after {call.name}: {text} {task.deps}")

    agent = looker(
        Hooks(
            before_model=before_model,
            after_model=after_model,
            before_tool=before_tool,
            after_tool=after_tool,
        ),
        deps=str,
    )
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(agent, "go", deps="Ann")

    assert seen == [
        "before model /looker 1 Ann",
        "after model look Ann",
        "before look Ann",
        "after look: the sky is blue Ann",
        "before model /looker 3 Ann",
        "after model the sky is blue Ann",
    ]


async def test_a_request_may_be_changed_for_the_model_alone() -> None:
    def before_model(_: TaskContext, request: ModelRequest) -> ModelRequest:
        return replace(request, instructions="Say nothing.")

    heard: list[str] = []

    @attrs.frozen
    class Listening:
        name: str = "listening"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            heard.append(request.instructions)
            return AssistantMessage("done")

    agent = looker(Hooks(before_model=before_model), model=Listening())
    await run(attrs.evolve(agent, instructions="Say all."))

    assert heard == ["Say nothing."]


async def test_an_answer_changed_by_a_hook_is_recorded_approved_and_run() -> None:
    def after_model(_: TaskContext, answer: AssistantMessage) -> AssistantMessage:
        calls = tuple(replace(call, arguments={"at": "the sea"}) for call in answer.calls)
        return replace(answer, calls=calls, usage=Usage(), model="another")

    journal = MemoryJournal()
    agent = looker(Hooks(after_model=after_model))
    async with open_orchestrator(journal) as orchestrator:
        done = await orchestrator.run(agent, "go")
    first = facts(journal.entries, ModelAnswered)[0].message

    assert done.output == "the sea is blue"
    assert first.calls[0].arguments == {"at": "the sea"}
    # What was used was used.
    assert first.usage.calls == 1
    assert first.model == "scripted"


async def test_a_call_may_be_refused_and_the_model_reads_why() -> None:
    def before_tool(_: TaskContext, call: ToolCall) -> None:
        raise ToolError(f"{call.name} is closed")

    assert (await run(looker(Hooks(before_tool=before_tool)))).output == "look is closed"


async def test_a_call_that_is_denied_reaches_no_hook() -> None:
    seen: list[str] = []
    hooks = Hooks(before_tool=lambda _, call: seen.append(call.name))
    done = await run(looker(hooks, approve=[deny("look")]))

    assert done.outcome.succeeded
    assert seen == []


async def test_the_answer_of_a_tool_may_be_changed_before_it_is_recorded() -> None:
    async def after_tool(_: TaskContext, __: ToolCall, text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text.replace("blue", "grey")

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        done = await orchestrator.run(looker(Hooks(after_tool=after_tool)), "go")

    assert done.output == "the sky is grey"
    assert facts(journal.entries, ToolAnswered)[0].message.text == "the sky is grey"


async def test_several_hooks_act_one_after_the_other() -> None:
    def adding(word: str) -> Hooks:
        return Hooks(after_tool=lambda _, __, text: f"{text} {word}")

    agent = attrs.evolve(looker(Hooks()), hooks=[adding("now"), adding("here")])

    assert (await run(agent)).output == "the sky is blue now here"


@pytest.mark.parametrize("hook", ["before_model", "after_model", "before_tool", "after_tool"])
async def test_an_error_in_a_hook_fails_the_task_and_keeps_its_usage(hook: str) -> None:
    def broken(*_: object) -> None:
        raise LookupError("no such hook")

    done = await run(looker(Hooks(**{hook: broken})))

    assert done.outcome.cause is Cause.ERROR
    assert "LookupError: no such hook" in done.outcome.error
    assert done.usage.calls == (0 if hook == "before_model" else 1)


@pytest.mark.parametrize("hook", ["before_model", "after_model", "after_tool"])
async def test_a_hook_with_a_wrong_result_is_named(hook: str) -> None:
    wrong: Any = {hook: lambda *_: 5}
    ended = (await run(looker(Hooks(**wrong)))).outcome

    assert f"the hook {hook} returned 5" in ended.error


async def test_hooks_are_of_one_agent_and_of_its_own_tools() -> None:
    seen: list[str] = []
    hooks = Hooks(before_tool=lambda _, call: seen.append(call.name))
    boss = editor(hand_on("x"), "done", delegates=[worker()], hooks=[hooks])
    await run(boss)

    assert seen == []


def test_an_invalid_hook_is_refused() -> None:
    async def change_later(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(DefinitionError, match=r"Hooks\(after_tool=5\) is not a function"):
        Hooks(after_tool=5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="must not be async"):
        Hooks(after_model=change_later)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="in hooks= must be Hooks"):
        Agent("a", model="m", hooks=[print])  # type: ignore[list-item]


def test_a_replay_calls_no_hook_and_is_the_same() -> None:
    seen: list[str] = []

    def after_tool(_: TaskContext, __: ToolCall, text: str) -> str:
        seen.append(text)
        return f"{text}!"

    agent = looker(Hooks(after_tool=after_tool))
    entries = run_of(agent)

    assert replay_sync(entries, agent).is_same
    assert seen == ["the sky is blue"]


async def test_a_resumed_run_does_not_apply_hooks_to_recorded_answers_again() -> None:
    """The journal has the answer that the hook made."""

    def hooked() -> Agent:
        return looker(Hooks(after_tool=lambda _, __, text: f"{text}!"))

    whole = MemoryJournal()
    async with open_orchestrator(whole) as orchestrator:
        ran = await orchestrator.run(hooked(), "go")
    answered = next(at for at, it in enumerate(whole.entries) if isinstance(it.event, ToolAnswered))
    for length in range(answered + 1, len(whole.entries) - 1):
        journal = MemoryJournal(whole.entries[:length])
        async with open_orchestrator(journal) as orchestrator:
            resumed = await orchestrator.resume(hooked(), ran.id)
        assert resumed.output == "the sky is blue!", length
