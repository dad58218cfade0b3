"""A secret in the arguments of a lent call is not recorded: no worker is sent what is left."""

import attrs
import pytest
import trio

from orchestrator import Orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    RefusedBy,
    ToolCall,
    raising_one_error,
    tool,
)
from orchestrator.delegation import Outcome
from orchestrator.delegation.events import CallPlaced, Entry, ModelAnswered, ToolAnswered
from tests.workers.places import PLACE, Places

PASSWORD = "hunter2-X9"

whole_or_call = pytest.mark.parametrize("whole", [True, False], ids=["turn", "call"])


class Clerk:
    """Sets a password with one call, and answers what that said."""

    name = "clerk"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        if len(request.transcript) > 1:
            return AssistantMessage(request.transcript[-1].text)
        arguments = {"account": {"user": "bob", "password": PASSWORD}}
        return AssistantMessage("", calls=(ToolCall("set_password", arguments),))


class Office:
    """An agent whose turn, or whose tool, is at a place; and what that tool was given."""

    def __init__(self, *, whole: bool, idempotent: bool = False) -> None:
        self.given: list[str] = []
        self.begun = trio.Event()
        self.may_end = trio.Event()

        @tool(idempotent=idempotent)
        async def set_password(account: dict[str, str]) -> str:
            """Set a password."""
            self.given.append(account["password"])
            self.begun.set()
            await self.may_end.wait()
            return "set"

        placed = attrs.evolve(set_password, place="" if whole else PLACE)
        self.agent = Agent("office", model=Clerk(), tools=[placed], place=PLACE if whole else "")
        self.places = Places([self.agent])

    async def resumed(self, run: str) -> Outcome:
        """Go on as the next writer."""
        with trio.fail_after(3600):
            async with self.places.writing() as orchestrator:
                return (await orchestrator.resume(self.agent, run)).outcome

    def refusal(self) -> RefusedBy | None:
        (answered,) = self.places.facts(ToolAnswered)
        refused_by: RefusedBy | None = answered.message.refused_by
        return refused_by


async def _wait_answered(office: Office, orchestrator: Orchestrator) -> None:
    while not office.places.facts(ModelAnswered):
        await orchestrator.wait_changed(after=orchestrator.read.last_seq)


async def _killed(office: Office, *, when_begun: bool) -> str:
    """Kill the writer when a tool has begun, or when the model has called it."""
    run = ""
    async with office.places.writing() as orchestrator:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, office.agent, "go")
                if when_begun:
                    await office.begun.wait()
                else:
                    await _wait_answered(office, orchestrator)
                run = orchestrator.runs[0]
                await office.places.kill_writer(orchestrator)
    return run


async def _killed_when_accepted(office: Office) -> str:
    """Kill the writer when it has recorded a run, before it tells it to begin."""
    run = ""

    def kill(entry: Entry, _: object) -> None:
        if isinstance(entry.event, CallPlaced) and entry.event.execution:
            office.places.journal.is_dead = True

    async with office.places.writing() as orchestrator:
        with orchestrator._engine.book.subscribers.subscribe(kill):
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(orchestrator.run, office.agent, "go")
                    await _wait_answered(office, orchestrator)
                    run = orchestrator.runs[0]
    return run


@whole_or_call
async def test_a_call_that_no_worker_has_begun_is_not_sent_without_its_secret(whole: bool) -> None:
    office = Office(whole=whole)
    run = await _killed(office, when_begun=False)

    async with office.places.working(1):
        outcome = await office.resumed(run)

    assert not office.given
    assert office.refusal() is RefusedBy.CRASH
    assert "with the secret" in outcome.output


@whole_or_call
async def test_a_run_that_was_accepted_and_not_told_to_begin_gets_no_call_without_its_secret(
    whole: bool,
) -> None:
    office = Office(whole=whole, idempotent=True)
    async with office.places.working(1):
        run = await _killed_when_accepted(office)
        assert office.places.facts(CallPlaced), "the fact survives"

        outcome = await office.resumed(run)

    assert not office.given
    assert office.refusal() is RefusedBy.CRASH
    assert "with the secret" in outcome.output


@whole_or_call
async def test_the_next_writer_gets_the_answer_of_a_call_that_has_begun_with_its_secret(
    whole: bool,
) -> None:
    office = Office(whole=whole)
    async with office.places.working(1):
        run = await _killed(office, when_begun=True)
        office.may_end.set()

        outcome = await office.resumed(run)

    assert outcome.output == "set"
    assert office.given == [PASSWORD]


async def test_a_call_that_may_run_twice_is_not_sent_again_without_its_secret() -> None:
    office = Office(whole=False, idempotent=True)
    async with office.places.working(1) as (worker,):
        run = await _killed(office, when_begun=True)
        worker.cancel()
        async with office.places.working(1):
            await office.resumed(run)

    assert office.given == [PASSWORD]
    assert office.refusal() is RefusedBy.CRASH
