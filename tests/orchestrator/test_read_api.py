"""`Orchestrator.read`: the state of sessions and tasks, and the two subscriptions."""

import pytest
import trio

from orchestrator import Machine, MemoryJournal, Orchestrator, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, AssistantMessage, ModelEvent, ScriptedModel, TextDelta
from orchestrator.delegation import Encoded, TaskId
from orchestrator.delegation.events import Entry, JournalOpened, TaskRequested, TaskSettled
from tests.kit import hand_on, worker


def editor(says: str = "merged") -> Agent:
    model = ScriptedModel.always(lambda transcript: hand_on("a") if len(transcript) == 1 else says)
    return Agent("editor", model=model, delegates=[worker(says="found")])


@pytest.mark.realtime
async def test_a_session_is_read_from_memory_and_from_the_journal_alike() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        read = orchestrator.read
        run = await orchestrator.run(editor(), "go")
        (child,) = [task for task in run.tree if task != run.tree.root]
        in_memory = await read.session(run.id)
        assert in_memory.records is read.records
        before = await read.transcript(child)

        orchestrator._engine.book.cache.evict_resting()
        evicted = await read.session(run.id)
        assert evicted.records is not read.records
        assert evicted.session.tree.to_text() == in_memory.session.tree.to_text()
        assert list(read.session_ids) == [run.id]
        assert (await read.task(child)).session.id == run.id
        assert await read.session_of(child) == run.id
        assert await read.session_of(run.id) == run.id
        assert await read.transcript(child) == before
        # Nothing of this has loaded it again.
        assert not read.records.sessions

    assert [type(message).__name__ for message in before] == ["UserMessage", "AssistantMessage"]


async def test_an_unknown_id_is_an_error() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        read = orchestrator.read
        with pytest.raises(UnknownIdError, match="there is no run 'r_none'"):
            await read.session("r_none")
        for id_ in ("t_none", "no id at all"):
            with pytest.raises(UnknownIdError, match="there is no task"):
                await read.task(id_)
        assert read.calls("t_none") == []


async def test_entries_are_found_by_their_session_and_by_an_id() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(editor(), "go")
        child = next(task for task in run.tree if task != run.tree.root)
        entries = await orchestrator.read.entries(run.id)
        (settled,) = await orchestrator.read.entries_naming(TaskSettled, child)

    assert [*entries] == journal.entries[1:]
    assert settled in entries


async def test_a_subscriber_receives_the_facts_of_one_session_or_of_all() -> None:
    every: list[Entry] = []
    own: list[Entry] = []

    def receive_any(entry: Entry, _: Encoded) -> None:
        every.append(entry)

    def receive_own(entry: Entry, _: Encoded) -> None:
        own.append(entry)

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        read = orchestrator.read
        async with orchestrator.open_session(worker()) as session:
            with read.subscribe(receive_any), read.subscribe(receive_own, session=session.id):
                await orchestrator.run(worker(), "go")
                await session.ask("hello")
            seq = read.last_seq
            await session.ask("after the subscription")

    assert {entry.session for entry in own} == {session.id}
    assert own == [entry for entry in every if entry.session == session.id]
    assert every == [entry for entry in journal.entries if every[0].seq <= entry.seq <= seq]


async def test_a_queue_gives_each_fact_once_up_to_the_durable_ones() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        read = orchestrator.read
        with read.queue() as facts:
            await orchestrator.run(worker(), "go")
            taken = facts.take(until=await read.wait_durable())
            assert facts.take() == []
            with trio.move_on_after(1) as waiting:
                await facts.wait()
            await orchestrator.run(worker(), "go")
            await facts.wait()
            more = facts.take(until=taken[-1][0].seq + 2)

    assert waiting.cancelled_caught
    assert [entry.seq for entry, _ in taken] == [2, 3, 4, 5, 6]
    assert [entry.seq for entry, _ in more] == [7, 8]


async def test_a_feed_begins_with_the_past_and_goes_on_with_the_present() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        read = orchestrator.read
        async with orchestrator.open_session(worker()) as session:
            await session.ask("first")
            last = read.last_seq
            with read.feed(session.id) as feed:
                past = await feed.next()
                await session.ask("second")
                present = [*await feed.next()]
                while present[-1].seq < read.last_seq:
                    present += await feed.next()
            with read.feed(session.id, after=last) as later:
                again = await later.next()
        assert not read.feeds.sessions

    assert past[-1].seq == last
    assert [fact.seq for fact in present] == list(range(last + 1, present[-1].seq + 1))
    assert [*again] == present


async def test_model_events_reach_a_function_and_a_channel() -> None:
    received: list[tuple[TaskId, ModelEvent]] = []

    def receive(task: TaskId, event: ModelEvent) -> None:
        received.append((task, event))

    async with open_orchestrator(":memory:") as orchestrator:
        read = orchestrator.read
        with read.subscribe_model_events(receive), read.open_model_events() as events:
            await orchestrator.run(worker(says="hello"), "go")
            event = events.receive_nowait()
        await orchestrator.run(worker(says="hello"), "go")

    assert received == [(event.task, TextDelta("hello"))]


async def test_waits_return_the_number_of_the_last_fact() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        read = orchestrator.read
        assert (read.last_seq, read.is_stopping, read.is_closed) == (1, False, False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_run_later, orchestrator)
            assert await read.wait_posted(after=1) >= 2
            assert await read.wait_durable(after=5) == 6
        assert read.running_count == 0
        assert await orchestrator.drain(1)
        assert read.is_stopping
    assert read.is_closed


async def _run_later(orchestrator: Orchestrator) -> None:
    await trio.sleep(1)
    await orchestrator.run(worker(), "go")


async def test_facts_for_a_subscriber_are_redacted() -> None:
    secret = "hunter2hunter2"
    texts: list[str] = []

    def receive(entry: Entry, encoded: Encoded) -> None:
        assert not isinstance(entry.event, JournalOpened | TaskRequested)
        texts.append(encoded.body.decode())

    async with open_orchestrator(
        ":memory:", machine=Machine(environ={"MY_PASSWORD": secret})
    ) as orchestrator:
        with orchestrator.read.subscribe(receive):
            run = await orchestrator.run(worker(says=f"it is {secret}"), "go")
        answer = (await orchestrator.read.transcript(run.id))[-1]
        redacted = orchestrator.read.redactor.redact(f"text with {secret}")

    assert isinstance(answer, AssistantMessage)
    assert secret not in answer.text + "".join(texts) + redacted
