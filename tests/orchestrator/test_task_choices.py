"""A parent chooses the model, the effort and the budget of each task that it delegates."""

from typing import Any

import attrs
import pytest
import trio

from orchestrator import Machine, MemoryJournal, delegate, detach, open_orchestrator
from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    ModelRequest,
    ModelSettings,
    ScriptedModel,
    ToolCall,
    Transcript,
    agent,
)
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.events import ModelAnswered, SessionOpened, TaskRequested
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import Harness, SpyModel
from tests.kit import FunctionModel, editor, facts, last_text, run, tool_answers, worker
from tests.orchestrator.test_replay import run_of


def writer(**options: Any) -> Agent:
    own = SpyModel(ScriptedModel.always("from own"), name="own")
    choices: dict[str, Any] = {"models": [named("small"), named("large")]}
    return Agent("writer", model=own, **(choices | options))


def named(name: str) -> SpyModel:
    return SpyModel(ScriptedModel.always(f"from {name}"), name=name)


def ask(goal: str, **arguments: Any) -> ToolCall:
    return ToolCall("delegate_task", {"goal": goal} | arguments)


def outputs(transcript: Transcript) -> list[str]:
    (answer,) = tool_answers(transcript)
    return [it["output"] for it in answer["results"]]


def joined_outputs(transcript: Transcript) -> str:
    return " | ".join(outputs(transcript))


async def test_parent_chooses_the_model_of_each_task() -> None:
    tasks = [{"goal": "a", "model": "small"}, {"goal": "b"}]
    boss = editor(
        ToolCall("delegate_task", {"tasks": tasks, "model": "large"}),
        joined_outputs,
        delegates=[writer()],
    )

    ended = await run(boss)

    assert ended.output == "from small | from large"
    chosen = [ended.tree[it].chosen for it in ended.tree.find(agent="writer")]
    assert chosen == ["model small", "model large"]
    assert "model small · a" in ended.tree.to_text()


async def test_model_that_is_not_in_the_list_is_refused_with_the_list() -> None:
    boss = editor(ask("a", model="huge"), last_text, delegates=[writer()])

    ended = await run(boss)

    assert "it must be one of: small, large; no task was started" in ended.output
    assert len(ended.tree) == 1


async def test_agent_without_choices_has_the_same_tool_as_ever() -> None:
    plain, choosing = named("plain"), named("choosing")
    await run(Agent("plain", model=plain, delegates=[worker()]))
    await run(
        Agent("choosing", model=choosing, delegates=[writer(efforts=["low"])], gives_budgets=True)
    )

    def properties(model: SpyModel) -> list[str]:
        return [*model.requests[0].tools[0].parameters["properties"]]

    assert properties(plain) == [
        *("goal", "context", "agent", "output_schema", "label", "tasks", "background")
    ]
    assert {*properties(choosing)} == {*properties(plain), "model", "effort", "budget"}
    about = choosing.requests[0].tools[0].description
    assert "- writer: no description (models: small, large; efforts: low)" in about


async def test_argument_that_no_agent_allows_is_refused() -> None:
    boss = editor(ask("a", budget={"calls": 1}), last_text, delegates=[writer()])

    assert "unknown field `budget`" in (await run(boss)).output


async def test_effort_of_a_task_goes_over_the_settings_of_its_agent() -> None:
    model = named("own")
    settings = ModelSettings(temperature=0.5, reasoning_effort="high")
    child = Agent("writer", model=model, settings=settings, efforts=["low", "medium"])
    boss = editor(ask("a", effort="low"), ask("a"), "done", delegates=[child])

    ended = await run(boss)

    efforts = [it.settings.reasoning_effort for it in model.requests]
    assert efforts == ["low", "high"]
    assert model.requests[0].settings.temperature == 0.5
    assert [ended.tree[it].chosen for it in ended.tree.find(agent="writer")] == ["effort low", ""]


async def test_effort_that_the_chosen_model_rejects_is_refused_before_the_task() -> None:
    child = Agent("writer", model="local:llama", efforts=["low"])
    boss = editor(ask("a", effort="low"), last_text, delegates=[child])

    async with open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator:
        with pytest.raises(DefinitionError):
            await orchestrator.run(boss, "go")


async def test_copy_of_an_agent_runs_on_the_chosen_model() -> None:
    small = named("small")
    boss = editor(ask("a", model="small"), last_text, delegates=[], copies=True)

    ended = await run(attrs.evolve(boss, models=[small]))

    assert "from small" in ended.output
    assert len(small.requests) == 1


@pytest.mark.parametrize(
    ("given", "kind"),
    [({"calls": 1}, "calls"), ({"tokens": 300}, "tokens"), ({"usd": 1e-6}, "usd")],
)
async def test_task_ends_at_the_budget_that_its_parent_gave(given: Any, kind: str) -> None:
    script = ScriptedModel.always(ToolCall("delegate_task", {"goal": "x"}))
    child = Agent("writer", model=script, delegates=[worker()])
    boss = editor(ask("a", budget=given), last_text, delegates=[child], gives_budgets=True)

    ended = await run(boss)

    (task,) = ended.tree.find(agent="writer")
    assert ended.tree[task].status is Ending.OVER_BUDGET
    assert kind in ended.tree[task].chosen


async def test_seconds_of_a_given_budget_are_a_deadline(autojump_clock: object) -> None:
    child = worker("writer", seconds=100)
    boss = editor(ask("a", budget={"seconds": 5}), last_text, delegates=[child], gives_budgets=True)

    ended = await run(boss)

    (task,) = ended.tree.find(agent="writer")
    assert ended.tree[task].status is Ending.TIMED_OUT
    assert ended.tree[task].seconds() == pytest.approx(5, abs=1)


async def test_given_budget_can_only_narrow_the_budget_of_the_agent() -> None:
    child = attrs.evolve(worker("writer"), budget=Budget(calls=3, tokens=50_000, name="own"))
    boss = editor(
        ask("a", budget={"calls": 9, "tokens": 40_000}), "x", delegates=[child], gives_budgets=True
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(boss, "go")

    (request,) = [it.request for it in facts(journal.entries, TaskRequested)]
    assert request.budget == Budget(calls=3, tokens=40_000, name="own")
    assert request.chosen == Choices(budget=Budget(calls=9, tokens=40_000))


async def test_budgets_beyond_the_rest_are_refused_with_the_rest() -> None:
    tasks = [{"goal": "a", "budget": {"calls": 5}}, {"goal": "b", "budget": {"calls": 5}}]
    boss = editor(
        ToolCall("delegate_task", {"tasks": tasks}),
        last_text,
        delegates=[worker()],
        gives_budgets=True,
        budget=Budget(calls=10),
    )

    ended = await run(boss)

    assert "has 9 model calls left, not the 10 model calls of this call" in ended.output
    assert len(ended.tree) == 1


@pytest.mark.parametrize(("more", "is_refused"), [(4, True), (3, False)])
async def test_rest_is_without_the_budgets_of_running_tasks(more: int, is_refused: bool) -> None:
    first = ask("a", budget={"calls": 5}, background=True)
    second = ask("b", budget={"calls": more}, background=True)
    boss = editor(
        first,
        second,
        last_text,
        "bye",
        "bye",
        delegates=[worker(seconds=1_000)],
        gives_budgets=True,
        budget=Budget(calls=10),
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss) as session:
            reply = await session.ask("go")
            assert ("has 3 model calls left" in reply.text) is is_refused
            await orchestrator.cancel(session.id, tree=True)


@agent
async def program(goal: str) -> list[str]:
    child = writer(efforts=["low"])
    kept = await detach(child, goal, model="large")
    return [
        await delegate(child, goal, model="small", effort="low", budget=Budget(calls=2)),
        await delegate(child, goal),
        await kept.result(),
    ]


async def test_programs_choose_as_models_do() -> None:
    ended = await run(program)

    assert ended.output == ["from small", "from own", "from large"]
    chosen = [ended.tree[it].chosen for it in ended.tree.find(agent="writer")]
    assert chosen == ["model large", "model small, effort low, budget (calls=2)", ""]


async def test_program_gets_an_error_for_a_model_that_is_not_allowed() -> None:
    @agent
    async def wrong(goal: str) -> str:
        return await delegate(writer(), goal, model="huge")

    ended = await run(wrong)

    assert "it must be one of: small, large" in ended.outcome.error


async def test_program_gets_an_error_for_a_budget_that_is_used_up() -> None:
    @agent
    async def wrong(goal: str) -> str:
        return await delegate(writer(), goal, budget=Budget(calls=0))

    assert (await run(wrong)).outcome.cause is Cause.CHILD


def choosing_team() -> Agent:
    def lead(transcript: Transcript) -> Any:
        if len(transcript) > 1:
            return " | ".join(outputs(transcript))
        tasks = [
            {"goal": "a", "model": "small", "budget": {"calls": 2}},
            {"goal": "b", "effort": "low"},
        ]
        return ToolCall("delegate_task", {"tasks": tasks})

    child = writer(efforts=["low"])
    model = ScriptedModel.always(lead)
    return Agent("boss", model=model, delegates=[child], gives_budgets=True, budget=Budget(calls=9))


@pytest.mark.parametrize("team", [choosing_team, lambda: program], ids=["model", "program"])
async def test_crash_after_any_fact_keeps_the_choices(team: Any) -> None:
    whole = Harness()
    expected = await whole.run(team(), "go")
    requested = [it.request.chosen for it in whole.facts(TaskRequested)]
    first = next(it.seq for it in whole.entries if isinstance(it.event, SessionOpened)) + 2
    for length in range(first, len(whole.entries)):
        harness = Harness()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(team(), "go")
        (opened,) = harness.facts(SessionOpened)
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(team(), opened.session)

        assert again.output == expected.output, length
        assert [it.request.chosen for it in harness.facts(TaskRequested)] == requested
        harness.assert_laws()


async def test_run_resumes_only_if_the_agent_still_allows_the_model() -> None:
    whole, harness = Harness(), Harness()
    await whole.run(choosing_team(), "go")
    asked = next(it.seq for it in whole.entries if isinstance(it.event, TaskRequested))
    async with harness.open(crash_after=asked + 1) as orchestrator:
        await orchestrator.run(choosing_team(), "go")
    (opened,) = harness.facts(SessionOpened)
    team = choosing_team()
    without = attrs.evolve(
        team, delegates=[attrs.evolve(team.delegates[0], models=[named("large")])]
    )
    async with harness.open() as orchestrator:
        again = await orchestrator.resume(without, opened.session)

    task, _ = again.tree.find(agent="writer")
    assert "it must be one of: large" in again.tree[task].error


async def test_cancel_ends_a_task_on_a_chosen_model() -> None:
    async def never(request: ModelRequest) -> str:
        await trio.sleep_forever()
        return ""

    child = attrs.evolve(writer(), models=[FunctionModel(never)])
    boss = editor(ask("a", model="never"), delegates=[child])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(boss, "go")

    assert not [it for it in facts(journal.entries, ModelAnswered) if it.message.text]


def test_replay_repeats_choices() -> None:
    assert replay_sync(run_of(choosing_team()), choosing_team()).is_same


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"models": [3]}, "3 in models= is neither the name of a model nor a Model"),
        ({"models": ["a", "a"]}, "two of its models have one name: a, a"),
        ({"efforts": ["much"]}, "'much' in efforts= must be one of none, minimal"),
        ({"gives_budgets": True}, "it has no delegates to give a budget to"),
    ],
)
def test_definition_of_wrong_choices_is_refused(options: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        attrs.evolve(worker(), **options)


@pytest.mark.parametrize(
    ("given", "above", "refusal"),
    [
        ({"usd": 5}, Budget(usd=1), "has $1.0000 left, not the $5.0000 of this call"),
        ({"tokens": 9_000}, Budget(calls=9, usd=1), ""),
        ({"seconds": 9_000}, Budget(seconds=9), ""),
    ],
)
async def test_rest_is_compared_by_kind(given: Any, above: Budget, refusal: str) -> None:
    boss = editor(
        ask("a", budget=given), last_text, delegates=[worker()], gives_budgets=True, budget=above
    )

    ended = await run(boss)

    assert refusal in ended.output
    assert len(ended.tree) == (1 if refusal else 2)
