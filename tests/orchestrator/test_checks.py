"""Checks send a final answer back to the model, a bounded number of times."""

from typing import Any

import attrs
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Limits,
    OutputError,
    ScriptedModel,
    TaskContext,
)
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import ModelAnswered
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import editor, hand_on, run
from tests.orchestrator.test_replay import run_of


@attrs.frozen
class Verdict:
    stars: int


class Kind:
    """A check that counts how often it was called."""

    def __init__(self) -> None:
        self.checked: list[int] = []

    async def __call__(self, verdict: Verdict) -> None:
        await trio.sleep(1)
        self.checked.append(verdict.stars)
        if verdict.stars < 3:
            raise OutputError(f"{verdict.stars} stars are too few")


def critic(*stars: int, **options: Any) -> Agent[Verdict]:
    def answer(transcript: Any) -> str:
        given = sum(isinstance(it, AssistantMessage) for it in transcript)
        return f'{{"stars": {stars[given]}}}'

    model = ScriptedModel.always(answer)
    return Agent("critic", model=model, output=Verdict, **options)


async def test_an_answer_is_sent_back_with_the_reason() -> None:
    heard: list[str] = []

    def again(transcript: Any) -> str:
        heard.append(transcript[-1].text)
        return '{"stars": 4}'

    model = ScriptedModel(['{"stars": 1}', again])
    checked = Agent("critic", model=model, output=Verdict, checks=[Kind()])

    assert (await run(checked)).output == Verdict(4)
    assert heard == ["Your answer was sent back: 1 stars are too few\nGive it again."]


@pytest.mark.parametrize("repairs", [0, 1, 3])
async def test_a_failed_check_is_sent_back_up_to_the_repair_limit(repairs: int) -> None:
    kind = Kind()
    limits = Limits(repairs=repairs)
    ended = (await run(critic(1, 2, 1, 2, 5, checks=[kind], limits=limits))).outcome

    assert ended.ending is Ending.FAILED
    assert ended.cause is Cause.OUTPUT
    assert "stars are too few" in ended.error
    assert len(kind.checked) == repairs + 1


async def test_repairs_of_the_type_and_of_checks_are_counted_together() -> None:
    steps = ["no JSON", '{"stars": 1}', '{"stars": 5}']
    for repairs, ending in ((1, Ending.FAILED), (2, Ending.SUCCEEDED)):
        checked = Agent(
            "critic",
            model=ScriptedModel(steps),
            output=Verdict,
            checks=[Kind()],
            limits=Limits(repairs=repairs),
        )
        assert (await run(checked)).outcome.ending is ending


async def test_checks_run_one_after_the_other_and_may_ask_for_the_task() -> None:
    seen: list[str] = []

    def first(verdict: Verdict) -> None:
        seen.append(f"first {verdict.stars}")

    async def second(task: TaskContext[str], verdict: Verdict) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(f"second {task.deps} {task.path} {verdict.stars}")

    checked = critic(5, checks=[first, second], deps=str)
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(checked, "go", deps="Ann")

    assert seen == ["first 5", "second Ann /critic 5"]


async def test_an_unexpected_error_of_a_check_ends_the_task() -> None:
    def broken(_: Verdict) -> None:
        raise LookupError("no such book")

    ended = (await run(critic(5, checks=[broken]))).outcome

    assert ended.cause is Cause.ERROR
    assert "LookupError: no such book" in ended.error


async def test_a_child_is_checked_too() -> None:
    kind = Kind()
    boss = editor(hand_on("judge"), "done", delegates=[critic(1, 4, checks=[kind])])
    await run(boss)

    assert kind.checked == [1, 4]


def test_a_value_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match="in checks= must be a function"):
        critic(1, checks=["kind"])


async def test_a_run_that_goes_on_is_checked_wherever_its_process_died() -> None:
    whole = MemoryJournal()
    async with open_orchestrator(whole) as orchestrator:
        ran = await orchestrator.run(critic(1, 4, checks=[Kind()]), "go")
    for length in range(4, len(whole.entries) - 1):
        journal = MemoryJournal(whole.entries[:length])
        async with open_orchestrator(journal) as orchestrator:
            resumed = await orchestrator.resume(critic(1, 4, checks=[Kind()]), ran.id)
        answers = [it for it in journal.entries if isinstance(it.event, ModelAnswered)]
        assert resumed.output == Verdict(4), length
        assert len(answers) == 2, length


@pytest.mark.parametrize("stars", [(5,), (1, 4), (1, 2)])
def test_a_replay_follows_the_record_and_calls_no_check(stars: tuple[int, ...]) -> None:
    kind = Kind()
    checked = critic(*stars, checks=[kind])
    entries = run_of(checked)
    calls = len(kind.checked)

    assert calls == len(stars)
    assert replay_sync(entries, checked).is_same
    assert len(kind.checked) == calls
