"""Functions that are agents: what they delegate are their children."""

import re
from typing import Any

import attrs
import pytest
import trio

from orchestrator import (
    MemoryJournal,
    Orchestrator,
    RunFailedError,
    TaskFailedError,
    budget,
    delegate,
    detach,
    map_each,
    open_orchestrator,
)
from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    Limits,
    Part,
    Patience,
    Pipeline,
    Price,
    ScriptedModel,
    ToolCall,
    Transcript,
    agent,
    tool,
)
from orchestrator.delegation import Cause, Ending, Rules, TaskId
from orchestrator.delegation.events import CancelRequested, QuietChanged, TaskRequested, TaskSettled
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import facts, hand_on

BROKEN = Agent("broken", model=ScriptedModel.always(RuntimeError("it broke")))


@attrs.frozen
class Report:
    text: str
    sources: list[str]


def echo(name: str = "echo", seconds: float = 1) -> Agent:
    return Agent(name, model=ScriptedModel.always(lambda said: f"<{said[0].text}>", seconds))


def ended(orchestrator: Orchestrator, run: str) -> dict[str, str]:
    """Return how each task of a run ended, by path."""
    tree = orchestrator.tree(run)
    return {tree[task].path: tree[task].status for task in tree}


async def run_once(pipeline: Agent[Any], goal: Any = "go", **opening: Any) -> Any:
    async with open_orchestrator(":memory:", **opening) as orchestrator:
        return await orchestrator.run(pipeline, goal)


async def test_a_function_is_run_and_gives_its_type() -> None:
    helper = echo()

    @agent
    async def brief(topic: str) -> Report:
        found = [await delegate(helper, f"{topic} {number}") for number in (1, 2)]
        return Report(topic, found)

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(brief, "trio")

        assert run.output == Report("trio", ["<trio 1>", "<trio 2>"])
        assert ended(orchestrator, run.id) == {
            "/brief": "succeeded",
            "/brief/echo[1]": "succeeded",
            "/brief/echo[2]": "succeeded",
        }
        assert run.usage.calls == 2


async def test_a_value_keeps_its_type_through_a_pipeline() -> None:
    @agent
    async def count(report: Report) -> int:
        return len(report.sources)

    @agent
    async def whole(reports: list[Report]) -> list[int]:
        return [await delegate(count, report) for report in reports]

    reports = [Report("a", ["x"]), Report("b", [])]
    assert (await run_once(whole, reports)).output == [1, 0]


async def test_a_model_reads_any_value_as_json() -> None:
    helper = echo()

    @agent
    async def ask(topic: str) -> str:
        return await delegate(helper, Report(topic, []))

    assert (await run_once(ask, "a")).output == '<{"sources":[],"text":"a"}>'


async def test_a_goal_that_does_not_fit_fails_the_task_with_a_sentence() -> None:
    @agent
    async def count(report: Report) -> int:
        return len(report.sources)

    run = await run_once(count, "no JSON")

    assert run.outcome.ending is Ending.FAILED
    assert "the goal is not the Report that count takes" in run.outcome.error


async def test_a_failed_child_raises_an_error_with_its_path_and_outcome() -> None:
    caught: list[TaskFailedError] = []

    @agent
    async def brief(topic: str) -> str:
        try:
            return await delegate(BROKEN, topic)
        except TaskFailedError as exc:
            caught.append(exc)
            return "without it"

    assert (await run_once(brief)).output == "without it"
    [error] = caught
    assert error.path == "/brief/broken[1]"
    assert error.outcome.ending is Ending.FAILED
    assert str(error).startswith("/brief/broken[1] failed: RuntimeError: it broke")


async def test_an_uncaught_failure_carries_the_path_of_the_deepest_task() -> None:
    @agent
    async def inner(topic: str) -> str:
        return await delegate(BROKEN, topic)

    @agent
    async def middle(topic: str) -> str:
        return await delegate(inner, topic)

    @agent
    async def outer(topic: str) -> str:
        return await delegate(middle, topic)

    run = await run_once(outer)

    error = run.outcome.error
    assert re.fullmatch(
        re.escape("/outer/middle[1]/inner[1]/broken[1] failed: RuntimeError: it broke")
        + r" \(scripted\.py:\d+\)",
        error,
    ), error
    with pytest.raises(RunFailedError):
        _ = run.output


async def test_an_error_in_the_function_fails_it_with_the_line_it_comes_from() -> None:
    @agent
    async def wrong(topic: str) -> str:
        return topic[1_000]

    run = await run_once(wrong)

    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.error.startswith("IndexError: string index out of range (test_pip")


async def test_errors_of_a_nursery_are_reported_one_by_one() -> None:
    async def fail(words: str) -> None:
        raise ValueError(words)

    @agent
    async def one(topic: str) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, topic)
            nursery.start_soon(trio.sleep_forever)
        return ""

    @agent
    async def two(topic: str) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, topic)
            nursery.start_soon(fail, "other")
        return ""

    single, both = await run_once(one), await run_once(two)

    assert single.outcome.error.startswith("ValueError: go (test_pipelines.py:")
    assert both.outcome.error.startswith("2 errors: ValueError: ")
    assert "ValueError: go" in both.outcome.error
    assert "ValueError: other" in both.outcome.error


async def test_failures_inside_a_nursery_are_raised_like_single_ones() -> None:
    other = Agent("other", model=BROKEN.model)

    def pipeline(*agents: Agent) -> Pipeline[str, str]:
        @agent(budget=Budget(calls=1))
        async def fan_out(topic: str) -> str:
            async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
                outer.start_soon(trio.sleep, 0)
                for one in agents:
                    child = await detach(one, topic)
                    await child.wait()
                    nursery.start_soon(child.result)
            return topic

        return fan_out

    single = await run_once(pipeline(BROKEN))
    both = await run_once(pipeline(BROKEN, other))
    over = await run_once(pipeline(echo(), echo()))

    assert single.outcome.cause is both.outcome.cause is Cause.CHILD
    assert single.outcome.error.startswith("/fan_out/broken[1] failed: RuntimeError")
    assert both.outcome.error.startswith("/fan_out/broken[1] failed: RuntimeError")
    assert over.outcome.ending is Ending.OVER_BUDGET
    assert over.outcome.error.startswith("/fan_out/echo[2] over_budget: the budget")


async def test_pipelines_may_be_as_deep_as_the_rules_allow() -> None:
    """Each level is a task of its own, so no stack grows, and a cancel crosses all of them."""
    bottom = trio.Event()

    @agent
    async def deep(level: int) -> int:
        if level == 249:
            bottom.set()
            await trio.sleep_forever()
        return await delegate(deep, level + 1)

    async with open_orchestrator(":memory:", rules=Rules(depth=250)) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, deep, 0)
            await bottom.wait()
            [run] = orchestrator.runs
            await orchestrator.cancel(run)

        assert set(ended(orchestrator, run).values()) == {"cancelled"}
        assert len(ended(orchestrator, run)) == 250


async def test_a_nursery_of_the_function_fans_out() -> None:
    helper = echo(seconds=10)

    @agent
    async def brief(topic: str) -> list[str]:
        found: dict[int, str] = {}

        async def look(at: int) -> None:
            found[at] = await delegate(helper, f"{topic} {at}")

        async with trio.open_nursery() as nursery:
            for at in range(5):
                nursery.start_soon(look, at)
        return [found[at] for at in sorted(found)]

    start = trio.current_time()
    run = await run_once(brief)

    assert run.output == [f"<go {at}>" for at in range(5)]
    assert trio.current_time() - start == pytest.approx(10)


async def test_a_detached_child_continues_until_its_result_is_awaited() -> None:
    helper = echo(seconds=5)

    @agent
    async def brief(topic: str) -> str:
        child = await detach(helper, topic)
        assert (child.path, child.outcome) == ("/brief/echo[1]", None)
        await trio.sleep(4)
        result = await child.result()
        assert child.outcome is not None
        assert child.outcome.succeeded
        assert await child.result() == result
        return result

    start = trio.current_time()

    assert (await run_once(brief)).output == "<go>"
    assert trio.current_time() - start == pytest.approx(5)


async def test_an_unawaited_detached_child_is_awaited_at_the_end() -> None:
    helper = echo(seconds=60)

    @agent
    async def brief(topic: str) -> str:
        await detach(helper, topic)
        await detach(BROKEN, topic)
        return "done"

    async with open_orchestrator(":memory:") as orchestrator:
        start = trio.current_time()
        run = await orchestrator.run(brief, "go")

        assert run.output == "done"
        assert trio.current_time() - start == pytest.approx(60)
        assert ended(orchestrator, run.id)["/brief/echo[1]"] == "succeeded"
        assert ended(orchestrator, run.id)["/brief/broken[1]"] == "failed"


async def test_detached_children_are_cancelled_when_the_function_fails() -> None:
    helper = echo(seconds=60)

    @agent
    async def brief(topic: str) -> str:
        await detach(helper, topic)
        await trio.sleep(1)
        raise ValueError(topic)

    async with open_orchestrator(":memory:") as orchestrator:
        start = trio.current_time()
        run = await orchestrator.run(brief, "go")

        assert trio.current_time() - start == pytest.approx(1)
        assert run.outcome.error.startswith("ValueError: go")
        assert ended(orchestrator, run.id)["/brief/echo[1]"] == "cancelled"


async def test_a_cancelled_child_has_ended_with_its_subtree() -> None:
    slow = echo("slow", seconds=60)

    @agent
    async def inner(topic: str) -> str:
        return await delegate(slow, topic)

    @agent
    async def brief(topic: str) -> str:
        child = await detach(inner, topic)
        await trio.sleep(1)
        await child.cancel()
        assert child.outcome is not None
        with pytest.raises(TaskFailedError, match="cancelled"):
            await child.result()
        return str(child.outcome.ending)

    async with open_orchestrator(":memory:") as orchestrator:
        start = trio.current_time()
        run = await orchestrator.run(brief, "go")

        assert run.output == "cancelled"
        assert trio.current_time() - start == pytest.approx(1)
        assert ended(orchestrator, run.id)["/brief/inner[1]/slow[1]"] == "cancelled"


@pytest.mark.parametrize("in_background", [False, True])
async def test_a_cancelled_wait_ends_the_child_before_it_returns(in_background: bool) -> None:
    """Law 10, also for a scope of the function: also where all of it could go on after a crash."""
    slow = echo("slow", seconds=60)
    seen: list[str] = []

    @agent
    async def inner(topic: str) -> str:
        return await delegate(slow, topic)

    journal = MemoryJournal()

    @agent
    async def brief(topic: str) -> str:
        with trio.move_on_after(2) as patience:
            await delegate(inner, topic)
        seen.extend(str(fact.outcome.ending) for fact in facts(journal.entries, TaskSettled))
        return f"gave up: {patience.cancelled_caught}"

    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on("go", background=in_background), "told", "heard"]),
        delegates=[brief],
    )
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()

    assert seen == ["cancelled", "cancelled"]
    assert facts(journal.entries, TaskSettled)[-1].outcome.output == "gave up: True"
    assert not facts(journal.entries, CancelRequested)


async def test_cancelling_the_pipeline_cancels_its_subtree() -> None:
    slow = echo("slow", seconds=60)

    @agent
    async def brief(topic: str) -> list[str]:
        return await delegate(map_each(slow), [topic, "a", "b"])

    async with open_orchestrator(":memory:") as orchestrator:
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, brief, "go")
            await trio.sleep(1)
            [run] = orchestrator.runs
            await orchestrator.cancel(run)

        assert trio.current_time() - start == pytest.approx(1)
        assert set(ended(orchestrator, run).values()) == {"cancelled"}
        assert len(ended(orchestrator, run)) == 5


async def test_a_child_cancelled_from_outside_is_a_failure() -> None:
    slow = echo("slow", seconds=60)

    @agent
    async def brief(topic: str) -> str:
        try:
            return await delegate(slow, topic)
        except TaskFailedError as exc:
            return str(exc.outcome.ending)

    async with open_orchestrator(":memory:") as orchestrator:
        runs: list[Any] = []

        async def run() -> None:
            runs.append(await orchestrator.run(brief, "go"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(1)
            tree = orchestrator.tree(orchestrator.runs[0])
            [child] = tree.children(TaskId(tree.root))
            await orchestrator.cancel(child)

        assert runs[0].output == "cancelled"


async def test_seconds_of_the_function_are_a_limit_of_it_and_of_all_below() -> None:
    slow = echo("slow", seconds=60)

    @agent(limits=Limits(seconds=5))
    async def brief(topic: str) -> str:
        return await delegate(slow, topic)

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(brief, "go")

        assert run.outcome.ending is Ending.TIMED_OUT
        assert ended(orchestrator, run.id)["/brief/slow[1]"] == "cancelled"


async def test_a_budget_around_a_fan_out_covers_all_its_tasks() -> None:
    helper = Agent("helper", model=ScriptedModel.always("x", 1, price=Price(output=100_000)))
    counted: list[int] = []

    @agent
    async def brief(topic: str) -> str:
        with budget(calls=3, name="research"):
            settled = await delegate(map_each(helper).settled(), list("abcdefgh"))
        counted.append(sum(one.succeeded for one in settled))
        return await delegate(helper, "outside of it")

    run = await run_once(brief)

    assert counted == [3]
    assert run.output == "x"
    assert run.usage.calls == 4


async def test_a_pipeline_that_uses_up_its_own_budget_is_over_budget() -> None:
    helper = echo()

    @agent(budget=Budget(calls=2))
    async def brief(topic: str) -> list[str]:
        return await delegate(map_each(helper, limit=1), [topic, "a", "b"])

    run = await run_once(brief)

    assert run.outcome.ending is Ending.OVER_BUDGET
    assert run.outcome.kind == "calls"


async def test_a_child_s_own_budget_is_its_own_failure() -> None:
    @agent(budget=Budget(calls=0))
    async def inner(topic: str) -> str:
        return await delegate(echo(), topic)

    @agent
    async def outer(topic: str) -> str:
        return await delegate(inner, topic)

    run = await run_once(outer)

    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.kind == "calls"


async def test_the_rules_apply_to_delegations_of_a_function() -> None:
    @agent
    async def deep(level: int) -> str:
        try:
            return await delegate(deep, level + 1)
        except TaskFailedError as exc:
            return f"{level} {exc.outcome.ending}: {exc.outcome.error}"

    said = (await run_once(deep, 0, rules=Rules(depth=4))).output
    assert said.startswith("4 refused: delegation may go 4 levels deep")


async def test_room_is_lent_along_a_pipeline() -> None:
    """One place is enough for any tree, since who waits for a child lends it its own."""
    helper = echo()

    @agent
    async def inner(topic: str) -> list[str]:
        return await delegate(map_each(helper), [topic, "b"])

    @agent
    async def outer(topic: str) -> list[str]:
        return [*await delegate(inner, topic), await delegate(helper, "c")]

    start = trio.current_time()
    run = await run_once(outer, rules=Rules(live_tasks=1))

    assert run.output == ["<go>", "<b>", "<c>"]
    assert trio.current_time() - start == pytest.approx(3)


async def test_a_model_delegates_to_a_function() -> None:
    helper = echo()

    @agent
    async def brief(topic: str) -> str:
        """Write a brief."""
        return await delegate(helper, topic)

    told: list[str] = []

    def lead(transcript: Transcript) -> Any:
        if len(transcript) == 1:
            return ToolCall("delegate_task", {"goal": "trio", "context": "Be short."})
        told.append(transcript[-1].text)
        return "done"

    boss = Agent("boss", model=ScriptedModel.always(lead), delegates=[brief])
    run = await run_once(boss)

    assert run.output == "done"
    assert '"output":"<Context:\\nBe short.\\n\\nYour task:\\ntrio>"' in told[0]


async def test_a_model_that_delegates_to_a_typed_function_writes_json() -> None:
    @agent
    async def count(report: Report) -> int:
        return len(report.sources)

    calls = [
        ToolCall("delegate_task", {"goal": "no JSON"}),
        ToolCall(
            "delegate_task", {"goal": '{"text": "a", "sources": ["b"]}', "context": "Be quick."}
        ),
    ]
    told: list[str] = []

    def lead(transcript: Transcript) -> Any:
        told.append(transcript[-1].text)
        return calls.pop(0) if calls else "done"

    boss = Agent("boss", model=ScriptedModel.always(lead), delegates=[count])
    await run_once(boss)

    assert "the goal is not the Report that count takes" in told[1]
    assert '"output":"1"' in told[2]


async def test_a_schema_that_a_model_asks_for_holds_for_a_function_too() -> None:
    @agent
    async def count(topic: str) -> int:
        return len(topic)

    call = ToolCall("delegate_task", {"goal": "long", "output_schema": {"maximum": 3}})
    boss = Agent("boss", model=ScriptedModel([call, "done"]), delegates=[count])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(boss, "go")

        assert ended(orchestrator, run.id)["/boss/count[1]"] == "failed"


async def test_a_pipeline_in_the_background_wakes_its_session() -> None:
    helper = echo(seconds=30)

    @agent
    async def brief(topic: str) -> list[str]:
        return await delegate(map_each(helper), [topic, "b"])

    def lead(transcript: Transcript) -> Any:
        news = transcript[-1].text
        if news.startswith("A task"):
            return news.partition("Output:\n")[2]
        return hand_on("a", background=True) if len(transcript) == 1 else "later"

    boss = Agent("boss", model=ScriptedModel.always(lead), delegates=[brief])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss) as session:
            assert (await session.ask("go")).text == "later"
            assert (await session.replies.receive()).text == '["<a>","<b>"]'
            tree = session.tree.to_text()
            assert "brief[1]" in tree
            assert "map_each[1]" in tree


async def test_a_session_may_be_a_pipeline_that_answers_each_message_by_itself() -> None:
    """The same question in another turn is another question."""
    asked: list[str] = []

    def answer(said: Transcript) -> str:
        asked.append(said[0].text)
        return f"{said[0].text} {len(asked)}"

    helper = Agent("helper", model=ScriptedModel.always(answer))

    @agent
    async def reply(message: str) -> str:
        return await delegate(helper, message)

    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(reply) as session:
            answers = [(await session.ask(text)).text for text in ("a", "b", "a")]

    assert answers == ["a 1", "b 2", "a 3"]


async def test_two_agents_of_one_name_differ_by_their_instructions() -> None:
    def expert(field: str) -> Agent:
        said = ScriptedModel.always(f"as of {field}")
        return Agent("expert", instructions=f"You know {field}.", model=said)

    @agent
    async def panel(topic: str) -> list[str]:
        return [await delegate(expert(field), topic) for field in ("law", "art")]

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(panel, "go")

        assert run.output == ["as of law", "as of art"]
        assert list(ended(orchestrator, run.id)) == [
            "/panel",
            "/panel/expert[1]",
            "/panel/expert[2]",
        ]


async def test_delegating_elsewhere_is_refused_with_a_sentence() -> None:
    with pytest.raises(DefinitionError, match=r"delegate\(\) needs a running pipeline"):
        await delegate(echo(), "go")
    with pytest.raises(DefinitionError, match=r"detach\(\) needs a running pipeline"):
        await detach(echo(), "go")


async def test_a_tool_of_a_child_does_not_speak_for_the_pipeline_above() -> None:
    @tool
    async def meddle() -> str:
        """Delegate outside of the pipeline."""
        return await delegate(echo(), "go")

    meddler = Agent("meddler", model=ScriptedModel([ToolCall("meddle"), "done"]), tools=[meddle])

    @agent
    async def brief(topic: str) -> str:
        return await delegate(meddler, topic)

    @agent
    async def nested(topic: str) -> str:
        async with open_orchestrator(":memory:") as another:
            return (await another.run(meddler, topic)).outcome.error

    assert "needs a running pipeline" in (await run_once(brief)).outcome.error
    meddler = attrs.evolve(meddler, model=ScriptedModel([ToolCall("meddle"), "done"]))
    assert "needs a running pipeline" in (await run_once(nested)).output


async def test_an_ended_pipeline_cannot_delegate() -> None:
    """A context of the function is used after the function has returned."""
    late: list[BaseException] = []
    started = trio.Event()

    async def linger(token: trio.Event) -> None:
        await token.wait()
        try:
            await delegate(echo(), "late")
        except DefinitionError as exc:
            late.append(exc)

    async with trio.open_nursery() as nursery:

        @agent
        async def brief(topic: str) -> str:
            nursery.start_soon(linger, started)
            return topic

        assert (await run_once(brief)).output == "go"
        started.set()

    assert "has ended, and cannot delegate" in str(late[0])


async def test_only_an_agent_can_be_delegated_to() -> None:
    nobody: Any = "researcher"

    @agent
    async def brief(topic: str) -> str:
        return str(await delegate(nobody, topic))

    run = await run_once(brief)
    assert "'researcher' cannot be delegated to" in run.outcome.error


async def test_the_models_of_all_agents_in_a_function_are_resolved_first() -> None:
    far = Agent("far", model="nobody:model")

    @agent
    async def brief(topic: str) -> str:
        return await delegate(far, topic)

    with pytest.raises(DefinitionError, match="nobody"):
        await run_once(brief)


async def test_an_agent_without_a_model_is_not_delegated_to() -> None:
    """An agent that was not known before: nothing begins that cannot be run."""

    @agent
    async def brief(topic: str) -> str:
        return await delegate(Agent("far", model="nobody:model"), topic)

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(brief, "go")

        assert "nobody" in run.outcome.error
        assert list(ended(orchestrator, run.id)) == ["/brief"]


async def test_images_and_files_are_not_for_pipelines() -> None:
    @agent
    async def brief(topic: str) -> str:
        return topic

    async with open_orchestrator(":memory:") as orchestrator:
        part = Part("image/png", data=b"png")
        run = await orchestrator.run(brief, "go", part)

    assert "takes neither images nor files" in run.outcome.error


async def test_a_pipeline_that_waits_for_its_children_is_not_silent() -> None:
    helper = echo(seconds=50)

    @agent(patience=Patience(quiet=10, stalled=20, stalled_in_tool=40))
    async def patient(topic: str) -> str:
        return await delegate(helper, topic)

    @agent(patience=Patience(quiet=10, stalled=20, stalled_in_tool=40))
    async def asleep(topic: str) -> str:
        await trio.sleep(100)
        return topic

    @agent
    async def brief(topic: str) -> str:
        found = await delegate(patient, topic)
        try:
            await delegate(asleep, topic)
        except TaskFailedError as exc:
            found += exc.outcome.error
        return found

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(brief, "go")

    assert run.output == ("<go>stalled: no sign of life for 40 seconds, in its function")
    assert len(facts(journal.entries, QuietChanged)) == 1


async def test_a_pipeline_is_replayed_and_forked() -> None:
    asked: list[str] = []

    def answer(said: Transcript) -> str:
        asked.append(said[0].text)
        return f"<{said[0].text}>"

    helper = Agent("helper", model=ScriptedModel.always(answer, 1))

    @agent
    async def brief(topic: str) -> str:
        first = await delegate(map_each(helper, limit=2), [topic, "a", "b"])
        return await delegate(helper, " ".join(first))

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(brief, "go")
        assert len(asked) == 4
        forked = await orchestrator.fork(brief, run.id, task="/brief/helper[1]")

        assert forked.output == run.output
        assert asked[4:] == ["<go> <a> <b>"]
    entries = [entry for entry in journal.entries if entry.session in {run.id, ""}]
    replayed = await trio.to_thread.run_sync(replay_sync, entries, brief)

    assert replayed.difference is None
    assert replayed.tasks == len(facts(entries, TaskRequested)) + 1


async def test_a_replay_shows_where_a_function_differs() -> None:
    helper = echo()
    words = ["once"]

    @agent
    async def brief(topic: str) -> str:
        return await delegate(helper, f"{topic} {words[0]}")

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(brief, "go")
    words[0] = "twice"
    replayed = await trio.to_thread.run_sync(replay_sync, journal.entries, brief)

    assert replayed.difference is not None
    assert "go twice" in replayed.difference.replayed


@pytest.mark.parametrize(
    ("on_restart", "asked", "ending"),
    [("resume", 1, "succeeded"), ("restart", 2, "succeeded"), ("lose", 1, "lost")],
)
async def test_a_crash_of_a_pipeline_follows_on_restart(
    on_restart: Any, asked: int, ending: str
) -> None:
    helper = echo()

    def boss() -> Agent:
        @agent(on_restart=on_restart)
        async def brief(topic: str) -> str:
            found = await delegate(helper, topic)
            await trio.sleep(5)
            return found

        model = ScriptedModel([hand_on("go", background=True), "later", "heard"])
        return Agent("boss", model=model, delegates=[brief])

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(boss()) as session:
            await session.ask("go")
            await trio.sleep(3)
    again = Agent("boss", model=ScriptedModel.always("heard"), delegates=boss().delegates)
    journal = MemoryJournal(journal.entries)
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(again, session=session.id) as back:
            await back.wait_idle()
            assert ended(orchestrator, session.id)["/boss/brief[1]"] == ending

    requests = [fact.request for fact in facts(journal.entries, TaskRequested)]
    assert sum(request.agent == "echo" for request in requests) == asked


async def test_a_budget_in_a_function_is_the_same_after_a_crash() -> None:
    helper = echo()

    @agent
    async def brief(topic: str) -> int:
        with budget(calls=3):
            goals = [f"{topic} {at}" for at in range(6)]
            settled = await delegate(map_each(helper, limit=1).settled(), goals)
        return sum(one.succeeded for one in settled)

    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(brief) as session:
            with trio.move_on_after(2.5):
                await session.ask("go")
    journal = MemoryJournal(journal.entries)
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(brief, session=session.id) as back:
            # The third call was broken off, and is paid for all the same.
            assert (await back.replies.receive()).text == "2"


async def test_a_draining_pipeline_leaves_later_delegations_for_the_resume() -> None:
    helper = echo(seconds=2)

    @agent
    async def brief(topic: str) -> str:
        return await delegate(helper, await delegate(helper, topic))

    boss = Agent(
        "boss", model=ScriptedModel([hand_on("go", background=True), "later"]), delegates=[brief]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss) as session:
            await session.ask("go")
            await trio.sleep(1)
            assert not await orchestrator.drain(5)
            assert ended(orchestrator, session.id)["/boss/brief[1]/echo[1]"] == ("succeeded")
            assert "/boss/brief[1]/echo[2]" not in ended(orchestrator, session.id)
