"""Jobs: their runs begin once at each of their times, whatever crashes, and are told."""

from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from orchestrator import UnknownIdError
from orchestrator.agents import Agent, DefinitionError, ScriptedModel, Transcript, UserMessage
from orchestrator.delegation.events import (
    DeliveryFailed,
    JobOccurred,
    JobRemoved,
    JobSet,
    MessageReceived,
    ReplyPartDelivered,
    SessionOpened,
)
from orchestrator.delegation.events.jobs import JobId
from orchestrator.delegation.session_context import get_session_env
from orchestrator.kernel.doors.kept import KeptDoor
from orchestrator.products.schedule.scheduler import local_zone
from orchestrator.schedule import Job, JobEdit, open_schedule
from orchestrator.testing import FailingModel, GatedModel, Harness
from tests.orchestrator.schedule_kit import (
    BERLIN,
    DAY,
    HOUR,
    Chat,
    WallClock,
    brief,
    scheduled,
    times_of,
    writer,
)


async def test_a_job_runs_each_morning_of_a_fortnight_over_the_change_of_clocks() -> None:
    harness, clock, chat = Harness(), WallClock("2026-10-18T12:00"), Chat()
    async with scheduled(harness, [brief(deliver="chat:42")], clock, chat):
        await clock.wait_until("2026-11-01T12:00")

    days = [*range(19, 32)]
    assert times_of(harness) == [*(f"10-{day} 08:00" for day in days), "11-01 08:00"]
    assert chat.texts == ["News."] * 14


@pytest.mark.parametrize(("target", "thread"), [("chat:42:7", "7"), ("chat:42", "")])
async def test_a_run_reads_its_goal_and_knows_where_its_answer_goes(
    target: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CRON_AUTO_DELIVER_THREAD_ID", "STALE")
    seen: list[str] = []

    def answer(transcript: Transcript) -> str:
        message = transcript[-1]
        assert isinstance(message, UserMessage)
        seen.append(message.text)
        names = ["SESSION_PLATFORM"]
        names += [f"CRON_AUTO_DELIVER_{it}" for it in ("PLATFORM", "CHAT_ID", "THREAD_ID")]
        seen.extend(get_session_env(f"ORCHESTRATOR_{name}") for name in names)
        return "Done."

    agent = Agent("writer", model=ScriptedModel([answer]))
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    job = brief(agent=agent, deliver=target)
    async with scheduled(harness, [job], clock):
        await clock.wait_until("2026-11-17T08:01")

    assert seen == ["Write the brief.", "schedule", "chat", "42", thread]
    [message] = harness.facts(MessageReceived)
    assert "job writer" in message.instructions


async def test_missed_schedules_start_one_late_run_and_are_reported() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    job = brief("0 * * * *")
    async with scheduled(harness, [job], clock):
        await clock.wait_until("2026-11-17T12:30")
    clock.move(3 * DAY)
    async with scheduled(harness, [job], clock):
        await trio.sleep(60)

    [fact] = harness.facts(JobOccurred)
    assert (times_of(harness), fact.missed) == (["11-20 12:00"], 71)


async def test_a_run_that_is_too_late_is_skipped_and_reported_once() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T12:00")
    for _ in range(2):
        async with scheduled(harness, [brief()], clock):
            await trio.sleep(60)
    clock.move(DAY)
    for _ in range(2):
        async with scheduled(harness, [brief()], clock):
            await trio.sleep(60)

    [fact] = harness.facts(JobOccurred)
    assert "too late" in fact.skipped
    assert len(harness.facts(SessionOpened)) == 1, "that of the job itself"


async def test_a_clock_set_back_starts_no_run_twice() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    async with scheduled(harness, [brief()], clock):
        await clock.wait_until("2026-11-17T08:30")
        clock.move(-2 * HOUR)
        await clock.wait_until("2026-11-17T09:30")
    async with scheduled(harness, [brief()], clock):
        await trio.sleep(60)

    assert times_of(harness) == ["11-17 08:00"]


async def test_a_clock_that_is_set_forward_is_noticed_within_an_hour() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T05:00")
    async with scheduled(harness, [brief()], clock):
        await trio.sleep(60)
        clock.move(3 * HOUR)
        await trio.sleep(HOUR)

    assert times_of(harness) == ["11-17 08:00"]


async def test_a_run_that_takes_long_is_not_overlapped() -> None:
    model = GatedModel("Late.")
    harness, clock = Harness(), WallClock("2026-11-17T07:30")
    job = brief("0 * * * *", Agent("writer", model=model))
    async with scheduled(harness, [job], clock):
        await clock.wait_until("2026-11-17T11:30")
        model.release()
        await clock.wait_until("2026-11-17T12:30")

    assert times_of(harness) == ["11-17 08:00", "11-17 12:00"]
    assert times_of(harness, skipped=True) == [f"11-17 {it}:00" for it in ("09", 10, 11)]
    skipped = [it.skipped for it in harness.facts(JobOccurred) if it.skipped]
    assert all("still under way" in why for why in skipped)


async def test_a_new_job_does_not_catch_up_earlier_schedules() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T08:30")
    async with scheduled(harness, [brief()], clock):
        await trio.sleep(60)

    assert harness.facts(JobOccurred) == []


async def test_a_job_that_is_not_in_the_program_any_more_is_removed() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    other = brief(name="other", schedule="0 9 * * *")
    async with scheduled(harness, [brief(), other], clock):
        await trio.sleep(1)
    async with scheduled(harness, [other], clock):
        await clock.wait_until("2026-11-17T10:00")
    async with scheduled(harness, [brief(), other], clock) as (_, scheduler):
        await clock.wait_until("2026-11-18T08:30")
        assert [job.spec.id for job in scheduler.jobs()] == ["other", "writer"]

    assert times_of(harness) == ["11-17 09:00", "11-18 08:00"]
    assert [it.job for it in harness.facts(JobRemoved)] == ["writer"]
    assert len(harness.facts(JobSet)) == 3, "what is as it was is not set again"


async def test_pause_resume_run_now_and_remove() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    async with scheduled(harness, [brief()], clock) as (orchestrator, scheduler):
        scheduler.pause(scheduler.find("writer"), paused=True)
        scheduler.pause(scheduler.find("writer"), paused=True)
        await clock.wait_until("2026-11-18T08:30")
        scheduler.pause(scheduler.find("writer"), paused=False)
        await trio.sleep(60)
        assert harness.facts(JobOccurred) == [], "a pause is not caught up"
        run = scheduler.run_now(scheduler.find("writer"))
        await clock.wait_until("2026-11-19T08:30")
        scheduler.remove(scheduler.find("writer"))
        await clock.wait_until("2026-11-21T08:30")
        assert run in orchestrator.read.session_ids
        with pytest.raises(UnknownIdError, match="there is no job"):
            scheduler.find("writer")

    assert [it.by_hand for it in harness.facts(JobOccurred)] == [True, False]
    assert times_of(harness)[1] == "11-19 08:00"


async def test_an_edit_during_a_run_drops_the_old_schedule() -> None:
    model = GatedModel("Late.")
    harness, clock, chat = Harness(), WallClock("2026-11-17T07:30"), Chat()
    job = brief("0 * * * *", Agent("writer", model=model), deliver="chat:42")
    async with scheduled(harness, [job], clock, chat) as (_, scheduler):
        await clock.wait_until("2026-11-17T08:30")
        scheduler.edit("writer", JobEdit(schedule="30 10 * * *", zone="UTC"))
        with pytest.raises(DefinitionError, match="which is for jobs of a session"):
            scheduler.edit("writer", JobEdit(deliver=("origin",)))
        with pytest.raises(DefinitionError, match="not a duration"):
            scheduler.edit("writer", JobEdit(catch_up="soon"))
        with pytest.raises(UnknownIdError, match="there is no job"):
            scheduler.edit("reader", JobEdit(goal="Read."))
        await clock.wait_until("2026-11-17T09:30")
        model.release()
        await clock.wait_until("2026-11-17T12:30")
        assert scheduler.find("writer").spec.goal == "Write the brief."

    assert times_of(harness) == ["11-17 08:00", "11-17 11:30"]
    assert chat.texts == ["Late.", "Late."]


async def test_a_silent_answer_is_not_delivered_and_a_failure_always_is() -> None:
    harness, clock, chat = Harness(), WallClock("2026-11-17T07:30"), Chat()
    silent = brief(agent=writer("[SILENT]"), deliver="chat:42")
    broken = Agent("broken", model=FailingModel([500, 500, 500]))
    failing = brief("30 * * * *", broken, deliver="chat:42")
    async with scheduled(harness, [silent, failing], clock, chat):
        await clock.wait_until("2026-11-17T11:00")

    assert len(chat.texts) == 3
    assert all(text.startswith("Job broken did not succeed.") for text in chat.texts)
    assert ["third time in a row" in text for text in chat.texts] == [False, False, True]


async def test_a_reply_goes_to_several_targets_and_to_each_once() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:59")
    chat, busy = Chat(), Chat(refuses=2)
    job = brief(deliver=("chat:42", "busy:7"))
    targets = {"chat": chat.send, "busy": busy.send}
    async with harness.open() as orchestrator:
        async with open_schedule(orchestrator, [job], targets=targets, clock=clock):
            await clock.wait_until("2026-11-17T08:30")

    assert chat.texts == busy.texts == ["News."]
    assert [it.error for it in harness.facts(DeliveryFailed)] == [
        "UndeliveredError: busy: the line is busy"
    ] * 2
    parts = [(it.part, it.receipt) for it in harness.facts(ReplyPartDelivered)]
    assert parts == [("chat:42", "message 1"), ("busy:7", "message 1")]


@pytest.mark.realtime
async def test_a_file_has_the_last_reply_whole(tmp_path: Path) -> None:
    job = brief(deliver=f"file:{tmp_path}/news/{{job}}.md")
    async with Harness().open() as orchestrator, open_schedule(orchestrator, [job]) as scheduler:
        for _ in range(2):
            run = scheduler.run_now(scheduler.find("writer"))
            session = orchestrator._engine.book.ledger.sessions[run]
            while session.undelivered or session.door is not None:
                await orchestrator._engine.book.wakeups.wait_session_changed(run)

    [written] = (tmp_path / "news").iterdir()
    assert (written.name, written.read_text()) == ("writer.md", "News.\n")


async def test_a_job_of_a_session_reports_there_and_ends_with_it() -> None:
    heard: list[str] = []

    def answer(transcript: Transcript) -> str:
        message = transcript[-1]
        assert isinstance(message, UserMessage)
        heard.append(message.text)
        return f"answer {len(heard)}"

    agent = Agent("writer", model=ScriptedModel.always(answer))
    harness, clock = Harness(), WallClock("2026-11-17T07:59")
    async with harness.open() as orchestrator, trio.open_nursery() as nursery:
        async with open_schedule(
            orchestrator, [brief("0 9 * * *", agent)], clock=clock
        ) as scheduler:
            door = KeptDoor(orchestrator.sessions, {"writer": agent}, nursery)
            session = door.open_conversation(agent)
            spec = scheduler.find("writer").spec
            news = replace(spec, id=JobId("news"), schedule="0 8 * * *", deliver=("origin",))
            scheduler.set(session.id, news)
            await clock.wait_until("2026-11-17T08:30")
            assert [*session.undelivered] == [1], "the reply of the turn that it woke"
            await door.close(session)
            await clock.wait_until("2026-11-18T08:30")

    assert heard[:2] == ["Write the brief.", "[Job news, due 2026-11-17T070000Z]\nanswer 1"]
    assert [it.job for it in harness.facts(JobOccurred)] == ["news", "writer"]


async def test_a_removed_agent_is_reported_and_its_job_stays() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    async with harness.open() as orchestrator:
        async with open_schedule(orchestrator, [brief()], clock=clock) as scheduler:
            job = scheduler.find("writer")
            gone = replace(job.spec, agent="gone")
            scheduler.set(job.session, gone)
            await clock.wait_until("2026-11-17T08:30")
            assert scheduler.find("writer").spec == gone

    [fact] = harness.facts(JobOccurred)
    assert fact.skipped == "this process has no agent 'gone'"


async def test_a_job_without_its_model_is_skipped_and_others_start() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    keyless = brief(agent=Agent("keyless", model="openai:gpt-5"))
    async with scheduled(harness, [keyless, brief()], clock) as (_, scheduler):
        await clock.wait_until("2026-11-17T08:30")
        with pytest.raises(DefinitionError, match="OPENAI_API_KEY"):
            scheduler.run_now(scheduler.find("keyless"))

    skipped, begun = harness.facts(JobOccurred)
    assert "OPENAI_API_KEY" in skipped.skipped
    assert (begun.job, begun.skipped) == ("writer", "")


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (brief("* * * *"), "job 'writer': .* 4 fields"),
        (brief("in 30m"), "with every start of the program"),
        (brief(zone="Mars"), "no time zone"),
        (brief(catch_up="soon"), "not a duration"),
        (brief(name="a b"), "is not a name for a job"),
        (brief(deliver="pigeon:7"), r"'pigeon:7', which is unknown; .* file:"),
        (brief(deliver="file:"), "which is unknown"),
        (brief(deliver="origin"), "which is for jobs of a session"),
    ],
)
async def test_an_impossible_job_is_refused_before_any_is_set(job: Job, problem: str) -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    good = brief(name="good")
    with pytest.raises(DefinitionError, match=problem):
        async with scheduled(harness, [good, job], clock):
            pass

    assert harness.facts(JobSet) == []


async def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two jobs have the name 'writer'"):
        async with scheduled(Harness(), [brief(), brief()], WallClock("2026-11-17")):
            pass


async def test_a_one_time_job_runs_once_across_processes() -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    job = brief("2026-11-17T08:00")
    for _ in range(2):
        async with scheduled(harness, [job], clock):
            await trio.sleep(2 * HOUR)

    assert times_of(harness) == ["11-17 08:00"]


async def test_a_job_without_a_zone_keeps_the_zone_of_its_first_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, clock = Harness(), WallClock("2026-11-17T07:00")
    for zone in (BERLIN, "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        async with scheduled(harness, [brief(zone="")], clock) as (_, scheduler):
            assert scheduler.find("writer").spec.zone == BERLIN
    assert len(harness.facts(JobSet)) == 1


def test_the_zone_of_a_machine_is_a_name(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    assert local_zone({}, link) == "UTC"
    zone = tmp_path / "zoneinfo" / "Europe" / "Berlin"
    zone.parent.mkdir(parents=True)
    zone.touch()
    link.symlink_to(zone)
    assert local_zone({}, link) == BERLIN
    assert local_zone({"TZ": ":Asia/Kathmandu"}, link) == "Asia/Kathmandu"
    assert local_zone({"TZ": "nowhere"}, link) == BERLIN


async def test_a_crash_after_any_entry_loses_and_repeats_no_scheduled_run() -> None:
    async def live(harness: Harness, crash_after: int | None) -> list[str]:
        clock, chat = WallClock("2026-11-17T07:59"), Chat()
        job, targets = brief(deliver="chat:42"), {"chat": chat.send}
        async with harness.open(crash_after=crash_after) as orchestrator:
            async with open_schedule(orchestrator, [job], targets=targets, clock=clock):
                await clock.wait_until("2026-11-17T08:30")
        if crash_after is not None:
            async with scheduled(harness, [job], clock, chat):
                await clock.wait_until("2026-11-17T09:00")
        return chat.texts

    whole = Harness()
    assert await live(whole, None) == ["News."]
    for crash_after in range(2, len(whole.entries)):
        harness = Harness()
        texts = await live(harness, crash_after)

        assert times_of(harness) == ["11-17 08:00"], crash_after
        runs = [it for it in harness.facts(SessionOpened) if it.session[0] == "r"]
        assert len(runs) == 1, crash_after
        # Told, and perhaps told again where the crash came before that was durable.
        assert texts == ["News."] * len(texts), crash_after
        assert len(texts) in {1, 2}, crash_after


async def test_a_run_that_was_interrupted_goes_on_and_is_delivered() -> None:
    harness, clock, chat = Harness(), WallClock("2026-11-17T07:59"), Chat()
    model = GatedModel("News.")
    job = brief(agent=Agent("writer", model=model), deliver="chat:42")
    async with scheduled(harness, [job], clock, chat):
        await clock.wait_until("2026-11-17T08:01")
    model.release()
    async with scheduled(harness, [job], clock, chat):
        await trio.sleep(60)

    assert chat.texts == ["News."]
    assert times_of(harness) == ["11-17 08:00"]
