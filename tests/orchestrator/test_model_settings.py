"""Settings of a model reach its calls and no other, the journal, replay, cassettes and budgets."""

from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    CallId,
    DefinitionError,
    ModelError,
    ModelRequest,
    ModelSettings,
    ReasoningBlock,
    ScriptedModel,
    ToolCall,
    Usage,
    tool,
)
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel
from orchestrator.delegation.events import ModelAnswered, ModelCalled, ModelFailed
from orchestrator.products.history.replay.run import replay
from tests.kit import FunctionModel, facts, hand_on, worker
from tests.orchestrator.test_cli import Shell

SECRET = f"sk-ant-{'aB3dE6gH9k' * 4}"
COLD = ModelSettings(temperature=0, stop="END")


async def journal_of(agent: Agent[Any], goal: str = "go") -> MemoryJournal:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, goal)
    return journal


def settings_of(journal: MemoryJournal) -> list[Any]:
    return [fact.settings for fact in facts(journal.entries, ModelAnswered)]


async def test_the_journal_records_the_settings_of_each_call_and_children_have_none() -> None:
    agent = Agent(
        "editor", model=ScriptedModel([hand_on("a"), "end"]), delegates=[worker()], settings=COLD
    )

    journal = await journal_of(agent)

    given = {"temperature": 0, "stop": ["END"]}
    assert settings_of(journal) == [given, msgspec.UNSET, given]


async def test_a_fact_without_settings_is_as_it_always_was() -> None:
    journal = await journal_of(worker())

    (fact,) = facts(journal.entries, ModelAnswered)
    assert b"settings" not in msgspec.json.encode(fact)


async def test_a_call_that_fails_is_recorded_with_its_settings() -> None:
    model = ScriptedModel([ModelError("no")])

    journal = await journal_of(Agent("editor", model=model, settings=COLD))

    (fact,) = facts(journal.entries, ModelFailed)
    assert fact.settings == {"temperature": 0, "stop": ["END"]}


async def test_a_secret_in_extra_is_not_recorded() -> None:
    settings = ModelSettings(extra={"user": SECRET})
    agent = Agent("editor", model=ScriptedModel(["so"]), settings=settings)

    journal = await journal_of(agent)

    (given,) = settings_of(journal)
    assert SECRET not in str(given)
    assert given["extra"].keys() == {"user"}


@pytest.mark.realtime
async def test_a_replay_compares_the_settings() -> None:
    agent = Agent("editor", model=ScriptedModel.always("so"), settings=COLD)
    journal = await journal_of(agent)

    same = await replay(journal.entries, agent)
    warm = attrs.evolve(agent, settings=ModelSettings(temperature=1))
    other = await replay(journal.entries, warm)

    assert same.is_same
    assert other.difference is not None
    assert "temperature=0" in other.difference.recorded
    assert "temperature=1" in other.difference.replayed


@pytest.mark.realtime
async def test_a_cassette_distinguishes_requests_by_settings(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    recorded = RecordingModel(ScriptedModel.always("so"), file)
    cold = Agent("editor", model=recorded, settings=COLD)
    await journal_of(cold)

    async with open_orchestrator(":memory:") as orchestrator:
        again = attrs.evolve(cold, model=ReplayModel(file))
        assert (await orchestrator.run(again, "go")).output == "so"
        warm = attrs.evolve(again, model=ReplayModel(file), settings=ModelSettings())
        outcome = (await orchestrator.run(warm, "go")).outcome

    assert "this request was not recorded" in outcome.error
    assert '"temperature": 0' in outcome.error


@pytest.mark.parametrize("most", [100, 20_000])
async def test_a_budget_reserves_no_longer_answer_than_the_settings_allow(most: int) -> None:
    asked: list[int | None] = []

    async def answer(request: Any) -> str:
        await trio.lowlevel.checkpoint()
        asked.append(request.max_output)
        return "so"

    agent = Agent(
        "editor",
        model=FunctionModel(answer),
        settings=ModelSettings(max_output_tokens=most),
        budget=Budget(tokens=1_000_000),
    )

    journal = await journal_of(agent)

    (called,) = facts(journal.entries, ModelCalled)
    assert called.reserved.output_tokens == most
    assert asked == [most]


async def test_a_budget_that_is_tight_still_shortens_the_answer() -> None:
    asked: list[int | None] = []

    async def answer(request: Any) -> str:
        await trio.lowlevel.checkpoint()
        asked.append(request.max_output)
        return "so"

    agent = Agent(
        "editor",
        model=FunctionModel(answer),
        settings=ModelSettings(max_output_tokens=20_000),
        budget=Budget(tokens=6_000),
    )

    await journal_of(agent)

    assert asked == [5_000]


async def test_settings_that_a_model_refuses_fail_before_a_call() -> None:
    """A name that no table has at definition is looked up when the agent is used."""

    class Picky(ScriptedModel):
        has_changed = False

        def settings_problem(self, settings: ModelSettings) -> str | None:
            return "not today" if self.has_changed else None

    model = Picky(["so"])
    agent = Agent("editor", model=model, settings=COLD)
    model.has_changed = True

    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(DefinitionError, match="not today"):
            await orchestrator.run(agent, "go")


AGENT = """
from orchestrator.agents import Agent, ModelSettings, ScriptedModel
editor = Agent("editor", model=ScriptedModel(["so"]), settings=ModelSettings(seed=7))
"""


@pytest.fixture
def shell(tmp_path: Path, python: list[str]) -> Shell:
    return Shell(tmp_path, python)


@pytest.mark.realtime
def test_a_run_shows_the_settings_of_its_calls(shell: Shell) -> None:
    shell.run("run", shell.write("editor.py", AGENT), "go")

    shown, _ = shell.run("show", "/editor")

    assert "asked with seed=7" in shown


@pytest.mark.realtime
@pytest.mark.parametrize("command", ["run", "chat"])
def test_the_command_line_can_name_another_model(shell: Shell, command: str) -> None:
    """It is looked up like any other, and the settings of the agent have to fit it."""
    file = shell.write("editor.py", AGENT)
    goal = ["go"] if command == "run" else []
    shell.environ.pop("OPENAI_API_KEY", None)

    without_key = shell.error(command, file, *goal, "--model", "openai:gpt-5")
    unfit = shell.error(command, file, *goal, "--model", "anthropic:claude-opus-5")

    assert "OPENAI_API_KEY" in without_key
    assert "it has no seed" in unfit


@pytest.mark.realtime
def test_a_pipeline_has_no_model_to_replace(shell: Shell) -> None:
    file = shell.write("line.py", f"{AGENT}\nline = editor >> editor\n")

    problem = shell.error("run", f"{file}:line", "go", "--model", "openai:gpt-5")

    assert "is a pipeline, which calls no model" in problem


async def test_reasoning_is_recorded_unless_it_holds_a_secret() -> None:
    """It is signed: with a word removed, its provider would refuse it."""
    call = ToolCall("look", {}, id=CallId("c_1"))
    thoughts = (
        ReasoningBlock("m", {"type": "thinking", "signature": "c2ln"}),
        ReasoningBlock("m", {"type": "thinking", "thinking": f"the key is {SECRET}"}),
    )

    async def answer(request: ModelRequest) -> AssistantMessage | str:
        await trio.lowlevel.checkpoint()
        if len(request.transcript) > 1:
            return "so"
        return AssistantMessage("", (call,), Usage(calls=1), reasoning=thoughts)

    @tool
    async def look() -> str:
        await trio.lowlevel.checkpoint()
        return "dark"

    journal = await journal_of(Agent("seer", model=FunctionModel(answer), tools=[look]))

    answered, _ = facts(journal.entries, ModelAnswered)
    kept, dropped = answered.message.reasoning
    assert kept == thoughts[0], kept.data
    assert dropped == ReasoningBlock("m", {}), dropped.data
