"""Summaries: a parent gives its tasks a summary of its conversation, which one call writes."""

import json
from collections import Counter
from typing import Any, cast

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    Compaction,
    DefinitionError,
    Failure,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    Transcript,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.wrappers.compaction import summary_request
from orchestrator.delegation import Ending, Ledger
from orchestrator.delegation.events import (
    ModelCalled,
    ModelFailed,
    ModelFailure,
    SessionOpened,
    TaskRequested,
)
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import Harness, SpyModel
from tests.kit import FunctionModel, facts, last_text, run, worker, worker_on
from tests.orchestrator.test_replay import run_of

SUMMARY = "They want to move to Oslo."


def ask(*goals: str, **arguments: Any) -> ToolCall:
    tasks = [{"goal": goal} for goal in goals]
    return ToolCall("delegate_task", {"tasks": tasks, "conversation": "summary"} | arguments)


@tool
async def look(name: str) -> str:
    """Look something up."""
    await trio.lowlevel.checkpoint()
    return f"{name} is far " * 50


def is_summary(request: ModelRequest) -> bool:
    return request.instructions.startswith("You summarize")


class Team:
    """A lead that follows its steps and writes summaries, and one worker."""

    def __init__(self, *steps: Any, summary: Any = SUMMARY, **options: Any) -> None:
        self.asked: Counter[str] = Counter()
        self.summarized: list[ModelRequest] = []
        self.worker = SpyModel(ScriptedModel.always("done"))

        async def answer(request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            usage = Usage(calls=1, input_tokens=50, output_tokens=5)
            if is_summary(request):
                self.asked["summary"] += 1
                self.summarized.append(request)
                said: Any = summary() if callable(summary) else summary
            else:
                self.asked["lead"] += 1
                said = steps[sum(isinstance(it, AssistantMessage) for it in request.transcript)]
                said = said(request.transcript) if callable(said) else said
            if isinstance(said, str):
                return AssistantMessage(said, usage=usage)
            calls = cast("tuple[ToolCall, ...]", said) if isinstance(said, tuple) else (said,)
            return AssistantMessage("", calls, usage)

        self.lead = Agent(
            "lead",
            model=FunctionModel(answer),
            delegates=[worker_on(self.worker)],
            summaries=True,
            tools=[look],
            **options,
        )

    @property
    def briefs(self) -> list[str]:
        """The first messages of the workers."""
        return [it.transcript[0].text for it in self.worker.requests]


def written(entries: Any) -> list[ModelFailed]:
    return [it for it in facts(entries, ModelFailed) if it.reason is ModelFailure.CONVERSATION]


async def test_one_summary_is_the_context_of_all_tasks_of_a_call() -> None:
    tasks = [{"goal": "a"}, {"goal": "b", "context": "In May."}]
    team = Team(ToolCall("look", {"name": "Oslo"}), ask(tasks=tasks), "done")

    ended = await run(team.lead, "Plan it.")

    assert team.asked["summary"] == 1
    (request,) = team.summarized
    assert "Plan it." in request.transcript[0].text
    assert "Oslo is far" in request.transcript[0].text
    assert request.transcript[0].text.count("Oslo is far") < 20
    assert request.tools == ()
    first, second = sorted(team.briefs, key=lambda it: it[-1])
    assert first.startswith(
        f"Context:\nA summary of the conversation that your task comes from:\n{SUMMARY}"
    )
    assert "In May." not in first
    assert f"{SUMMARY}\n\nIn May." in second
    assert [ended.tree[it].chosen for it in ended.tree.children(ended.tree.root)] == [
        "summary of the conversation"
    ] * 2
    assert {it.transcript[0].shared > 0 for it in team.worker.requests} == {True}  # type: ignore[union-attr]


async def test_calls_of_one_answer_share_a_summary_and_the_next_answer_gets_a_new_one() -> None:
    team = Team((ask("a"), ask("b")), ask("c"), "done")

    await run(team.lead)

    assert team.asked["summary"] == 2
    assert len(team.briefs) == 3
    assert "'goal': 'b'" in team.summarized[1].transcript[0].text


async def test_task_without_a_summary_starts_with_its_goal() -> None:
    team = Team(ask(conversation="none", tasks=[{"goal": "a"}]), "done")

    await run(team.lead)

    assert team.briefs == ["a"]
    assert team.asked["summary"] == 0


async def test_parent_pays_for_the_summary() -> None:
    journal = MemoryJournal()
    team = Team(ask("a", "b"), "done", budget=Budget(tokens=100_000))
    async with open_orchestrator(journal) as orchestrator:
        ended = await orchestrator.run(team.lead, "go")

    (fact,) = written(journal.entries)
    assert (fact.task, fact.text, fact.usage.calls) == (ended.tree.root, SUMMARY, 1)
    assert ended.tree[ended.tree.root].usage.calls == 3
    ledger = Ledger()
    for entry in journal.entries:
        ledger.fold(entry)
    (account,) = ledger.accounts.values()
    assert account.used.calls == 5
    assert (
        len([it for it in facts(journal.entries, ModelCalled) if it.task == ended.tree.root]) == 3
    )


@pytest.mark.parametrize(
    ("summary", "problem"),
    [
        ("  ", "is empty"),
        (lambda: (_ for _ in ()).throw(ModelError("no", kind=Failure.REFUSED)), "no task was"),
    ],
)
async def test_model_reads_why_there_is_no_summary(summary: Any, problem: str) -> None:
    team = Team(ask("a"), last_text, summary=summary)

    ended = await run(team.lead)

    assert problem in ended.output
    assert team.briefs == []


async def test_summary_beyond_the_budget_starts_no_task() -> None:
    team = Team(ask("a"), last_text, budget=Budget(calls=1))

    ended = await run(team.lead)

    assert ended.outcome.ending is Ending.OVER_BUDGET
    assert team.asked["summary"] == 0
    assert team.briefs == []


async def test_summary_is_written_by_the_summarizer_of_the_agent() -> None:
    model = SpyModel(ScriptedModel.always("Short."))
    team = Team(ask("a"), "done", compaction=Compaction(window=8_000, summarizer=model))

    await run(team.lead)

    assert team.asked["summary"] == 0
    assert "Short." in team.briefs[0]


def test_record_of_a_long_conversation_is_cut_to_the_window() -> None:
    said = Transcript([UserMessage(f"{number}" * 6_000) for number in range(6)])

    cut, whole = (summary_request(said, window).transcript[0].text for window in (8_000, None))

    assert 10_000 < len(cut) < 32_000
    assert "characters are left out" in cut
    assert len(whole) > 36_000


async def test_summary_has_no_secrets() -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    journal = MemoryJournal()
    team = Team(ask("a"), "done", summary=f"The key is {key}.")
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(team.lead, "go")

    assert key not in str(journal.entries)
    assert key not in team.briefs[0]


async def test_summary_that_ends_like_a_secret_is_whole() -> None:
    team = Team(ask("a"), "done", summary="x" * 40)

    await run(team.lead)

    assert "x" * 40 in team.briefs[0]


async def test_cancel_ends_the_writing_of_a_summary() -> None:
    async def answer(request: ModelRequest) -> AssistantMessage:
        if is_summary(request):
            await trio.sleep_forever()
        return AssistantMessage("", (ask("a"),), Usage(calls=1))

    journal = MemoryJournal()
    lead = Agent(
        "lead",
        model=FunctionModel(answer),
        delegates=[worker()],
        summaries=True,
        budget=Budget(tokens=50_000),
    )
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(lead, "go")

    assert facts(journal.entries, TaskRequested) == []
    (broken,) = facts(journal.entries, ModelFailed)
    assert broken.reason is ModelFailure.QUESTION
    assert broken.charged is not None


def outputs(transcript: Transcript) -> str:
    """Return the outputs of all tasks in the last two answers of tools."""
    answers = [json.loads(it.text)["results"] for it in transcript[-2:]]
    return " ".join(result["output"] for answer in answers for result in answer)


def summarizing_team() -> Team:
    return Team(
        ToolCall("look", {"name": "Oslo"}),
        (ask("a", "b"), ask("c")),
        outputs,
        budget=Budget(tokens=500_000),
    )


async def test_crash_after_any_fact_writes_no_second_summary() -> None:
    whole = Harness()
    expected = await whole.run(summarizing_team().lead, "go")
    assert expected.output == "done done done"
    first = next(it.seq for it in whole.entries if isinstance(it.event, SessionOpened)) + 2
    for length in range(first, len(whole.entries)):
        harness = Harness()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(summarizing_team().lead, "go")
        (opened,) = harness.facts(SessionOpened)
        was_written = bool(written(harness.entries))
        team = summarizing_team()
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(team.lead, opened.session)

        assert again.output == expected.output, length
        assert team.asked["summary"] == int(not was_written), length
        assert len(written(harness.entries)) == 1
        assert len(harness.facts(TaskRequested)) == 3
        assert all(SUMMARY in it for it in team.briefs)
        harness.assert_laws()


def test_replay_repeats_a_summary_without_a_call() -> None:
    team = summarizing_team()

    assert replay_sync(run_of(summarizing_team().lead), team.lead).is_same
    assert not team.asked


async def test_fork_of_a_run_writes_no_second_summary() -> None:
    team = summarizing_team()
    async with open_orchestrator(MemoryJournal()) as orchestrator:
        first = await orchestrator.run(summarizing_team().lead, "go")
        forked = await orchestrator.fork(team.lead, first.id, task="/lead/worker[2]")

    assert forked.output == first.output
    assert team.asked["summary"] == 0
    assert all(SUMMARY in it for it in team.briefs)


def test_simulation_calls_no_model_for_a_summary() -> None:
    team = summarizing_team()

    simulate(team.lead, settings=SimulationSettings(seeds=3))

    assert not team.asked


def test_argument_names_the_conversations_that_the_agent_allows() -> None:
    from orchestrator.delegation.tools.delegate_task import DelegateTask
    from orchestrator.delegation.tools.task_options import arguments_type

    kinds: list[Any] = []
    for options in ({"summaries": True}, {"forks": True}, {"summaries": True, "forks": True}):
        lead = Agent("lead", model="m:x", delegates=[worker()], **options)  # type: ignore[arg-type]
        fields = arguments_type(DelegateTask, lead).__annotations__
        kinds.append(fields["conversation"].__origin__.__args__)
    assert kinds == [("none", "summary"), ("none", "fork"), ("none", "summary", "fork")]


def test_agent_without_delegates_gives_no_summaries() -> None:
    with pytest.raises(DefinitionError, match="no delegates to give a summary to"):
        Agent("lead", model="m:x", summaries=True)


async def test_settled_children_keep_their_summary_in_the_transcript() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        ended = await orchestrator.run(Team(ask("a"), "done").lead, "go")
        conversation = await orchestrator.read.conversation(ended.tree.root)

    assert [it.summary for it in conversation.incidents] == [SUMMARY]
