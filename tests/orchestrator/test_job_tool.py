"""Agents set jobs of their own session: only where a promise can be kept, and each once."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from orchestrator.agents import (
    Agent,
    DefinitionError,
    Message,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    allow,
    raising_one_error,
    tool,
)
from orchestrator.agents.approval import ApprovalRule
from orchestrator.delegation import SessionRecord
from orchestrator.delegation.events import (
    JobOccurred,
    JobRemoved,
    JobSet,
    MessageReceived,
    ToolAnswered,
)
from orchestrator.delegation.schedule import next_text
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.doors.inbound import InboundRequest
from orchestrator.kernel.doors.kept import KeptDoor
from orchestrator.kernel.engine.scheduler_slot import JobEdit
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.products.schedule.agent_jobs import MOST_JOBS, MOST_TOKENS
from orchestrator.schedule import Job, Scheduler
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import Harness
from tests.orchestrator.schedule_kit import (
    BERLIN,
    HOUR,
    Chat,
    WallClock,
    brief,
    scheduled,
    times_of,
)

SOON = {"name": "tea", "schedule": "in 30m", "goal": "Say that the tea is ready."}


def job(action: str = "set", **arguments: Any) -> ToolCall:
    return ToolCall("job", {"action": action, **arguments})


def remind(transcript: Transcript) -> ToolCall | str:
    """Set a job when a person asks, run it, and tell the person what it said."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "I will."
    if last.text.startswith("[Job tea"):
        return "Your tea!"
    if last.text == SOON["goal"]:
        return "The tea is ready."
    return job(**SOON)


def host(model: Callable[[Transcript], Any] = remind) -> Agent:
    return Agent("host", model=ScriptedModel.always(model), schedules=True)


@attrs.frozen
class House:
    """A process with conversations, in which jobs are set and begin."""

    orchestrator: Orchestrator
    scheduler: Scheduler
    door: KeptDoor
    clock: WallClock

    def say(self, agent: Agent, text: str) -> SessionRecord:
        session = self.door.open_conversation(agent)
        message = UserMessage(text)
        self.door.receive(session, InboundRequest(agent=agent, message=message))
        return session

    async def answers(self, agent: Agent, text: str = "Go.") -> list[str]:
        """Return what the tools answered in a conversation of one turn."""
        session = self.say(agent, text)
        await self.door.wait_over(session)
        return answers_in(session.root.transcript)


def answers_in(transcript: Sequence[Message]) -> list[str]:
    return [it.text for it in transcript if isinstance(it, ToolMessage)]


def job_answers(harness: Harness) -> list[str]:
    return [fact.message.text for fact in harness.facts(ToolAnswered)]


@asynccontextmanager
async def raising_one_nursery() -> AsyncGenerator[trio.Nursery]:
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            yield nursery


@asynccontextmanager
async def house(
    harness: Harness,
    agent: Agent,
    clock: WallClock,
    *,
    jobs: Sequence[Job] | None = None,
    crash_after: int | None = None,
) -> AsyncGenerator[House]:
    async with harness.open(crash_after=crash_after) as orchestrator:
        services, agents = orchestrator.sessions, {agent.name: agent}
        scheduler = Scheduler(services, agents, clock=clock, environ={"TZ": BERLIN})
        async with raising_one_nursery() as nursery:
            door = KeptDoor(
                services, agents, nursery, kinds={SessionKind.JOB_RUN: scheduler.deliver}
            )
            async with scheduler.open(door, jobs):
                await door.resume_sessions()
                yield House(orchestrator, scheduler, door, clock)
            nursery.cancel_scope.cancel()


def script(*calls: ToolCall) -> Agent:
    model = ScriptedModel.always(_in_order(calls))
    return Agent("host", model=model, schedules=True, approve=[allow("job")])


def _in_order(calls: Sequence[ToolCall]) -> Callable[[Transcript], ToolCall | str]:
    def answer(transcript: Transcript) -> ToolCall | str:
        made = len(answers_in(transcript))
        return calls[made] if made < len(calls) else "Done."

    return answer


async def test_an_agent_sets_a_job_and_its_answer_comes_to_the_conversation() -> None:
    harness, clock, agent = Harness(), WallClock("2026-11-17T12:00"), host()
    async with house(harness, agent, clock) as it:
        session = it.say(agent, "Remind me of the tea.")
        await clock.wait_until("2026-11-17T12:29")
        assert len(session.undelivered) == 1
        await clock.wait_until("2026-11-17T12:31")
        replies = [reply.text for reply in session.undelivered.values()]

    assert replies == ["I will.", "Your tea!"]
    assert times_of(harness) == ["11-17 12:30"]
    [answer] = job_answers(harness)
    assert json.loads(answer) == {
        "set": "tea",
        "schedule": "at 2026-11-17T12:30:00+01:00",
        "zone": BERLIN,
        "next": "Tue 2026-11-17 12:30 CET",
        "note": "Its answer comes to this conversation as a message.",
    }


async def test_jobs_are_listed_changed_and_removed_in_their_own_session_alone() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    daily = {"name": "brief", "goal": "Write.", "zone": "America/New_York"}
    agent = script(
        job(**daily, schedule="0 8 * * *"),
        job("list"),
        job(**daily, schedule="0 8 * * *"),
        job(**daily, schedule="every 2h"),
        job("remove", name="brief"),
        job("remove", name="brief"),
        job("list"),
    )
    other = script(job("remove", name="brief"), job("list"))
    async with house(harness, agent, clock) as it:
        session = it.say(agent, "Go.")
        while len(harness.facts(JobSet)) < 1:
            await it.orchestrator.read.wait_posted(after=len(harness.entries))
        others = await it.answers(other)
        await it.door.wait_over(session)
        answers = answers_in(session.root.transcript)

    assert "this session has no job 'brief'; it has: none" in others[0]
    listed = json.loads(answers[1])
    assert listed["now"] == "Tue 2026-11-17 12:00 CET"
    assert listed["jobs"] == [
        {
            "name": "brief",
            "schedule": "0 8 * * *",
            "zone": "America/New_York",
            "next": "Tue 2026-11-17 08:00 EST",
            "ends": "Thu 2026-12-17 06:00 EST",
            "goal": "Write.",
        }
    ]
    assert [fact.job.schedule for fact in harness.facts(JobSet)] == ["0 8 * * *", "every 2h"], (
        "what is as it was is not set again"
    )
    assert json.loads(answers[4]) == {"removed": "brief"}
    assert "this session has no job" in answers[5]
    assert json.loads(answers[6])["jobs"] == []
    assert len(harness.facts(JobRemoved)) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"name": "a b"}, "not a name for a job"),
        ({"name": ""}, "not a name for a job"),
        ({"schedule": "* * * *"}, "4 fields"),
        ({"schedule": "whenever"}, "not a schedule"),
        ({"schedule": "every 10s"}, "too often"),
        ({"schedule": "in 10s"}, "too soon: a minute is the least"),
        ({"schedule": "in a while"}, "not a duration"),
        ({"schedule": "in"}, "not a duration"),
        ({"schedule": "in 99999999999w"}, "ten years are the most"),
        ({"schedule": "every 1000000000000000000000w"}, "ten years are the most"),
        ({"schedule": "2020-01-01T00:00"}, "is over"),
        ({"schedule": "9999-12-31T23:59-12:00"}, "too far ahead"),
        ({"zone": "Mars/Crater"}, "no time zone"),
        ({"zone": "../../etc/passwd"}, "no time zone"),
        ({"goal": "  "}, "say what to do"),
        ({"goal": "x" * 9_000}, "may have 8000"),
        ({"deliver": "file:/etc/passwd"}, "deliver"),
    ],
)
async def test_an_invalid_job_call_returns_an_error_that_the_model_can_fix(
    arguments: dict[str, str], problem: str
) -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    agent = script(job(**{**SOON, **arguments}))
    async with house(harness, agent, clock) as it:
        [answer] = await it.answers(agent)

    assert problem in answer
    assert harness.facts(JobSet) == []


async def test_the_jobs_of_a_session_are_limited_even_in_one_answer() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    calls = [job(**{**SOON, "name": f"tea-{it}"}) for it in range(MOST_JOBS + 3)]
    model = ScriptedModel([calls, "Done."])
    agent = Agent("host", model=model, schedules=True)
    async with house(harness, agent, clock) as it:
        answers = await it.answers(agent)

    refused = [it for it in answers if "the most that it may have" in it]
    assert (len(harness.facts(JobSet)), len(refused)) == (MOST_JOBS, 3)


async def test_a_job_without_a_reachable_target_is_refused() -> None:
    harness, clock, agent = (Harness(), WallClock("2026-11-17T12:00"), script(job(**SOON)))
    async with house(harness, agent, clock) as it:
        await it.orchestrator.run(agent, "Go.")
        request = InboundRequest(agent=agent, message=UserMessage("Go."), kind=SessionKind.RUN)
        background = it.door.open_background(request)
        await it.door.wait_over(background)
    [answer] = job_answers(harness)[:1]
    assert "cannot receive results after its turn has ended" in answer
    [told] = answers_in(background.root.transcript)
    assert "cannot receive results" in told

    alone = Harness()
    await alone.run(agent, "Go.")
    [answer] = job_answers(alone)
    assert "no process starts jobs here" in answer
    assert harness.facts(JobSet) == alone.facts(JobSet) == []


async def test_a_job_of_a_conversation_reports_there() -> None:
    harness, clock, agent = Harness(), WallClock("2026-11-17T12:00"), host()
    async with house(harness, agent, clock) as it:
        async with it.orchestrator.open_session(agent) as session:
            assert (await session.ask("Remind me.")).text == "I will."
            reply = await session.replies.receive()
            assert reply.text == "Your tea!"
        async with it.orchestrator.open_session(agent) as session:
            await session.ask("Remind me.")
            id_ = session.id
        # It is told when the program talks to it again.
        await clock.wait_until("2026-11-17T14:00")
        async with it.orchestrator.open_session(agent, session=id_) as session:
            assert (await session.replies.receive()).text == "Your tea!"


DAILY = {"name": "news", "schedule": "0 8 * * *", "goal": "Read the news."}


def bare(*calls: ToolCall, rules: Sequence[ApprovalRule] = ()) -> Agent:
    """Return an agent that has no rule about jobs."""
    return attrs.evolve(script(*calls), approve=rules)


@pytest.mark.parametrize("rules", [(), (allow("read_file"),)])
async def test_a_job_that_comes_again_is_set_when_a_person_approves_it(
    rules: Sequence[ApprovalRule],
) -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    never = job(name="never", schedule="whenever", goal="Look.")
    agent = bare(job(**DAILY), job(**SOON), job("list"), never, rules=rules)
    async with house(harness, agent, clock) as it:
        session = it.say(agent, "Go.")
        while not (questions := it.orchestrator.approvals):
            await it.orchestrator.read.wait_posted(after=len(harness.entries))
        assert harness.facts(JobSet) == []
        [question] = questions
        assert "Read the news." in question.subject
        await it.orchestrator.answer(question.id, "once")
        await it.door.wait_over(session)
    assert [fact.job.id for fact in harness.facts(JobSet)] == ["news", "tea"]


async def test_a_job_that_comes_again_is_not_set_without_an_answer() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:59")
    agent = bare(job(**DAILY))
    async with scheduled(harness, [brief(agent=agent, may_schedule=True)], clock):
        await clock.wait_until("2026-11-17T20:00")
    [answer] = job_answers(harness)
    assert "job was denied by the deadline" in answer
    assert len(harness.facts(JobSet)) == 1


async def test_a_job_that_the_answer_of_a_job_sets_is_asked_about() -> None:
    """Else one reminder after another would be a job that comes again."""
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    agent = host(lambda seen: "." if seen[-1].text == SOON["goal"] else _once(seen))
    async with house(harness, agent, clock) as it:
        await it.answers(agent)
        while not it.orchestrator.approvals:
            await it.orchestrator.read.wait_posted(after=len(harness.entries))
    assert len(harness.facts(JobSet)) == 1


def _once(transcript: Transcript) -> ToolCall | str:
    return "Done." if isinstance(transcript[-1], ToolMessage) else job(**SOON)


async def test_a_recurring_job_of_an_agent_ends_after_30_days() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    agent = script(job(**DAILY))
    async with house(harness, agent, clock) as it:
        await it.answers(agent)
        await clock.wait_until("2027-01-31T12:00")
        assert len(harness.facts(JobOccurred)) == 30
        [left] = it.scheduler.jobs()
        assert next_text(left, clock()) == "never again"
        # A person who changes it keeps it.
        it.scheduler.edit("news", JobEdit(goal="Read less."))
        await clock.wait_until("2027-02-02T12:00")
    assert len(harness.facts(JobOccurred)) == 32


async def test_all_runs_of_a_job_of_an_agent_share_a_budget() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    agent = script(job(**DAILY))
    async with house(harness, agent, clock) as it:
        await it.answers(agent)
        await clock.wait_until("2026-11-19T12:00")
        runs = [
            it.orchestrator.read.records.sessions[fact.run] for fact in harness.facts(JobOccurred)
        ]
        accounts = [[(a.id, a.budget.tokens) for a in run.root.accounts] for run in runs]
    assert len(accounts) == 2
    assert accounts[0] == accounts[1]
    assert [tokens for _, tokens in accounts[0]] == [MOST_TOKENS]


async def test_an_agent_unknown_to_the_scheduler_cannot_set_jobs() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    agent = attrs.evolve(script(job(**SOON)), name="stranger")
    async with house(harness, host(), clock) as it:
        async with it.orchestrator.open_session(agent) as session:
            await session.ask("Go.")

    [answer] = job_answers(harness)
    assert "has no agent 'stranger'" in answer


@pytest.mark.parametrize("may_schedule", [False, True])
async def test_a_run_of_a_job_sets_jobs_only_with_permission(may_schedule: bool) -> None:
    def answer(transcript: Transcript) -> ToolCall | str:
        first, last = transcript[0].text, transcript[-1]
        if isinstance(last, ToolMessage):
            return last.text
        return "The tea is ready." if first == SOON["goal"] else job(**SOON)

    agent = Agent("writer", model=ScriptedModel.always(answer), schedules=True)
    harness, clock, chat = Harness(), WallClock("2026-11-17T07:59"), Chat()
    daily = brief(agent=agent, deliver="chat:42", may_schedule=may_schedule)
    async with scheduled(harness, [daily], clock, chat) as (_, scheduler):
        await clock.wait_until("2026-11-18T09:00")
        left = [it.spec.id for it in scheduler.jobs()]

    if may_schedule:
        # What it sets is delivered where its own answers go, and its own job stays.
        assert chat.texts[1::2] == ["The tea is ready."] * 2
        assert left == ["writer"]
    else:
        assert all("the job was not set" in text for text in chat.texts)
        assert len(harness.facts(JobSet)) == 1


async def test_a_run_never_replaces_the_job_that_has_begun_it() -> None:
    agent = script(job(name="host", schedule="every 1m", goal="Do evil."))
    daily = brief(agent=agent, may_schedule=True)
    harness, clock = Harness(), WallClock("2026-11-17T07:59")
    async with scheduled(harness, [daily], clock) as (_, scheduler):
        await clock.wait_until("2026-11-17T08:01")
        [left] = scheduler.jobs()

    assert left.spec.goal == "Write the brief."
    [answer] = job_answers(harness)
    assert "use another name" in answer


async def test_removing_a_job_of_the_program_removes_the_jobs_that_its_runs_set() -> None:
    agent = script(job(name="later", schedule="every 2h", goal="Look."))
    daily = brief(agent=agent, may_schedule=True)
    other = brief(name="other", agent=agent)
    harness, clock = Harness(), WallClock("2026-11-17T07:59")
    async with scheduled(harness, [daily, other], clock) as (_, scheduler):
        await clock.wait_until("2026-11-17T08:01")
        assert {it.spec.id for it in scheduler.jobs()} == {"host", "later", "other"}
    async with scheduled(harness, [other], clock) as (_, scheduler):
        assert [it.spec.id for it in scheduler.jobs()] == ["other"]


async def test_a_crash_after_any_entry_sets_each_job_once() -> None:
    agent = host()

    async def live(harness: Harness, crash_after: int | None) -> list[str]:
        clock = WallClock("2026-11-17T12:00")
        asked: list[SessionRecord] = []
        async with house(harness, agent, clock, crash_after=crash_after) as it:
            asked.append(it.say(agent, "Remind me of the tea."))
            await clock.wait_until("2026-11-17T12:40")
        async with house(harness, agent, clock) as it:
            await clock.wait_until("2026-11-17T14:00")
            session = await it.door.find(asked[0].id) if asked else None
            if session is None:
                return []
            transcript = session.root.transcript
            return [text.text for text in transcript if isinstance(text, UserMessage)]

    whole = Harness()
    messages = await live(whole, None)
    assert messages == [
        "Remind me of the tea.",
        "[Job tea, due 2026-11-17T113000Z]\nThe tea is ready.",
    ]
    posted = [it for it in whole.entries if isinstance(it.event, MessageReceived)]
    # From the message on: before it is durable, no one was promised anything.
    for crash_after in range(posted[0].seq, len(whole.entries) - 3):
        harness = Harness()
        found = await live(harness, crash_after)

        assert len(found) == 2, crash_after
        assert len(harness.facts(JobSet)) == 1, crash_after
        assert len(harness.facts(JobOccurred)) == 1, crash_after


async def test_a_repeated_call_for_an_ended_job_sets_no_job() -> None:
    """The process dies between the job and the answer of the call, and sleeps over its time."""
    agent, harness = host(), Harness()
    clock = WallClock("2026-11-17T12:00")
    whole = Harness()
    async with house(whole, agent, clock) as it:
        it.say(agent, "Remind me.")
        await trio.sleep(60)
    [position] = [it.seq for it in whole.entries if isinstance(it.event, JobSet)]
    async with house(harness, agent, clock, crash_after=position) as it:
        it.say(agent, "Remind me.")
        await trio.sleep(60)
    clock.move(HOUR)
    # Another process begins the job while none has the conversation.
    async with harness.open() as orchestrator:
        agents = {"host": agent}
        scheduler = Scheduler(orchestrator.sessions, agents, clock=clock)
        async with trio.open_nursery() as nursery:
            kinds = {SessionKind.JOB_RUN: scheduler.deliver}
            door = KeptDoor(orchestrator.sessions, agents, nursery, kinds=kinds)
            async with scheduler.open(door, None):
                await trio.sleep(60)
            nursery.cancel_scope.cancel()
    async with house(harness, agent, clock):
        await trio.sleep(2 * HOUR)

    assert len(harness.facts(JobSet)) == len(harness.facts(JobOccurred)) == 1
    [answer] = job_answers(harness)
    assert json.loads(answer)["note"] == "It has begun already, and is over."


async def test_a_repeated_removal_after_a_crash_is_no_error() -> None:
    agent = script(job(name="a", schedule="every 2h", goal="Look."), job("remove", name="a"))
    clock, whole, harness = WallClock("2026-11-17T12:00"), Harness(), Harness()
    async with house(whole, agent, clock) as it:
        await it.answers(agent)
    [position] = [it.seq for it in whole.entries if isinstance(it.event, JobRemoved)]
    async with house(harness, agent, clock, crash_after=position) as it:
        it.say(agent, "Go.")
        await trio.sleep(60)
    async with house(harness, agent, clock):
        await trio.sleep(60)

    assert json.loads(job_answers(harness)[-1]) == {"removed": "a"}
    assert len(harness.facts(JobRemoved)) == 1


async def test_a_session_that_is_closed_meanwhile_gets_no_job() -> None:
    """A run goes on while the session of its job is closed."""
    daily = brief(agent=script(job(**SOON)), may_schedule=True)
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    async with scheduled(harness, [daily], clock) as (orchestrator, scheduler):
        record = scheduler.find("host")
        scheduler.run_now(record)
        session = orchestrator._engine.book.ledger.sessions[record.session]
        await orchestrator.close_session(session.id)
        await trio.sleep(60)

    [answer] = job_answers(harness)
    assert "the job was not set: its session was closed" in answer


def test_an_agent_that_schedules_has_no_tool_of_that_name_and_no_place() -> None:
    @tool(name="job")
    def own() -> str:
        """Do something else."""
        return ""

    with pytest.raises(DefinitionError, match="a tool of its own called 'job'"):
        Agent("host", model=ScriptedModel([]), tools=[own], schedules=True)
    with pytest.raises(DefinitionError, match="workers cannot do"):
        Agent("host", model=ScriptedModel([]), place="farm", schedules=True)


async def test_a_child_has_no_such_tool() -> None:
    child = Agent("child", model=ScriptedModel([job("list"), "Done."]), schedules=True)
    delegation = ToolCall("delegate_task", {"agent": "child", "goal": "Try."})
    parent = Agent("parent", model=ScriptedModel([delegation, "Done."]), delegates=[child])
    harness = Harness()
    await harness.run(parent, "Go.")

    assert "no tool" in job_answers(harness)[0]


def test_a_replay_answers_from_the_record() -> None:
    agent, harness = script(job("list")), Harness()

    async def live() -> None:
        async with house(harness, agent, WallClock("2026-11-17T12:00")) as it:
            await it.answers(agent)

    trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))
    assert replay_sync(harness.entries, agent).difference is None


def test_a_simulation_sets_no_job() -> None:
    agent = Agent("host", model=ScriptedModel.always(job(**SOON)), schedules=True)
    settings = SimulationSettings(seeds=3, tool_calls=2)
    assert simulate(agent, settings=settings).runs
