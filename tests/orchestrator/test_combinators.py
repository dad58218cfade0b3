"""Agents that are made of agents."""

import json
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest
import trio

import orchestrator
from orchestrator import (
    Candidates,
    FanOutFailedError,
    Machine,
    MemoryJournal,
    Review,
    Settled,
    TaskFailedError,
    best,
    budget,
    delegate,
    fallback,
    map_each,
    map_reduce,
    open_orchestrator,
    parallel,
    race,
    refine,
    retry,
    route,
    sequence,
    vote,
)
from orchestrator.agents import Agent, DefinitionError, Limits, ScriptedModel, Transcript, agent
from orchestrator.delegation import Ending, Rules
from orchestrator.products.history.replay.run import replay_sync
from tests.kit import hand_on


@attrs.frozen
class Report:
    text: str


def echo(name: str = "echo", seconds: float = 1) -> Agent:
    """Return an agent that fails for what is bad, and takes long for what is slow."""

    def answer(said: Transcript) -> Any:
        text = said[0].text
        return RuntimeError(text) if "bad" in text else f"<{text}>"

    return Agent(name, model=ScriptedModel.always(answer, seconds))


def says(name: str, *steps: Any, output: Any = str, seconds: float = 0) -> Agent[Any]:
    return Agent(name, model=ScriptedModel(steps, seconds), output=output)


class Done:
    """The result of a run: its output or error, its tree, its duration."""

    def __init__(self, run: Any, seconds: float) -> None:
        self.run = run
        self.seconds = seconds
        tree = run.tree
        self.tree = {tree[task].path: str(tree[task].status) for task in tree}

    @property
    def output(self) -> Any:
        return self.run.output

    @property
    def error(self) -> str:
        return str(self.run.outcome.error)


async def run(pipeline: Agent[Any, Any], goal: Any = "go", **opening: Any) -> Done:
    async with open_orchestrator(":memory:", **opening) as house:
        start = trio.current_time()
        done = await house.run(pipeline, goal)
        return Done(done, trio.current_time() - start)


async def raised_by(pipeline: Agent[Any, Any], value: Any) -> TaskFailedError:
    """Return what `delegate` raises in a function."""
    caught: list[TaskFailedError] = []

    @agent
    async def outer(goal: str) -> str:
        try:
            await delegate(pipeline, value)
        except TaskFailedError as exc:
            caught.append(exc)
        return goal

    await run(outer)
    return caught[0]


async def test_a_sequence_hands_each_output_to_the_next_agent() -> None:
    plan = says("plan", '["a", "b"]', output=list[str])
    write = says("write", '{"text": "done"}', output=Report)
    done = await run(plan >> map_each(echo(), limit=20) >> write)

    assert done.output == Report("done")
    assert list(done.tree) == [
        "/sequence",
        "/sequence/plan[1]",
        "/sequence/map_each[1]",
        "/sequence/map_each[1]/echo[1]",
        "/sequence/map_each[1]/echo[2]",
        "/sequence/write[1]",
    ]


async def test_a_sequence_in_words_is_the_same() -> None:
    a, b, c = echo("a"), echo("b"), echo("c")

    assert (await run(sequence(a, b, c))).output == "<<<go>>>"
    assert sequence(a, b, c).parts == (a >> b >> c).parts


async def test_a_sequence_ends_with_the_first_failure() -> None:
    done = await run(echo("a") >> echo("b") >> echo("c"), "bad")

    assert done.error.startswith("/sequence/a[1] failed: RuntimeError: bad")
    assert list(done.tree) == ["/sequence", "/sequence/a[1]"]


async def test_a_name_is_its_name_in_the_tree() -> None:
    done = await run((echo("a") >> echo("b")).named("both"))

    assert "/both/a[1]" in done.tree


async def test_parallel_gives_all_answers_each_with_its_type() -> None:
    count = says("count", "3", output=int, seconds=5)
    done = await run(parallel(echo("a"), count, echo("a")))

    assert done.output == ("<go>", 3, "<go>")
    assert done.seconds == pytest.approx(5)


async def test_map_each_gives_the_answers_in_their_order_however_they_come() -> None:
    @agent
    async def wait(seconds: int) -> int:
        await trio.sleep(10 - seconds)
        return seconds

    assert (await run(map_each(wait), [1, 5, 3])).output == [1, 5, 3]
    assert (await run(map_each(wait), [])).output == []
    assert (await run(map_each(wait).settled(), [])).output == ()


async def test_map_each_runs_as_many_at_once_as_it_may() -> None:
    goals = [str(at) for at in range(7)]

    assert (await run(map_each(echo()), goals)).seconds == pytest.approx(1)
    limited = await run(map_each(echo(), limit=3), goals)
    assert limited.output == [f"<{goal}>" for goal in goals]
    assert limited.seconds == pytest.approx(3)


async def test_a_fan_out_with_a_limit_counts_its_coming_tasks() -> None:
    """Without one all are asked for at once, so that the tree knows them."""
    known: list[int] = []

    @agent
    async def look(goal: str) -> str:
        await trio.sleep(1)
        tree = house.tree(house.runs[-1])
        known.append(len(tree) - 1 + tree.to_come)
        return goal

    async with open_orchestrator(":memory:", machine=Machine(environ={})) as house:
        for limit in (2, None):
            ended = await house.run(map_each(look, limit=limit), [*"abcde"])
            assert ended.tree.to_come == 0

    assert known == [5] * 10


@pytest.mark.parametrize("limit", [None, 1, 7])
async def test_map_each_asks_in_the_order_of_the_list(limit: int | None) -> None:
    """The tree has the numbers of the list."""
    done = await run(map_each(echo(), limit=limit), [str(at) for at in range(50)])
    goals = [done.run.tree[task].goal for task in done.run.tree][1:]

    assert goals == [str(at) for at in range(50)]


async def test_one_failure_cancels_the_rest_and_every_failure_is_reported() -> None:
    @agent
    async def work(seconds: int) -> int:
        await trio.sleep(abs(seconds))
        if seconds < 0:
            raise ValueError(seconds)
        return seconds

    error = await raised_by(map_each(work), [1, -2, -2, 50])

    assert isinstance(error, FanOutFailedError)
    assert error.path == "/outer/map_each[1]"
    assert [str(it).partition(" (")[0] for it in error.exceptions] == [
        "/outer/map_each[1]/work[2] failed: ValueError: -2",
        "/outer/map_each[1]/work[3] failed: ValueError: -2",
    ]
    assert {path[-7:]: it.ending for path, it in error.outcomes.items()} == {
        "work[1]": Ending.SUCCEEDED,
        "work[2]": Ending.FAILED,
        "work[3]": Ending.FAILED,
    }
    assert error.outcomes["/outer/map_each[1]/work[1]"].output == "1"


async def test_the_failures_of_a_fan_out_are_a_group_for_except_star() -> None:
    seen: list[str] = []

    @agent
    async def outer(goal: str) -> str:
        try:
            await delegate(map_each(echo()), ["bad", goal])
        except* TaskFailedError as group:
            seen.extend(str(it) for it in group.exceptions)
        return "went on"

    assert (await run(outer)).output == "went on"
    assert seen[0].startswith("/outer/map_each[1]/echo[1] failed: RuntimeError: bad")


async def test_an_uncaught_fan_out_reports_each_failure_with_its_path() -> None:
    done = await run(parallel(echo("a"), echo("b")) >> echo("c"), "bad")

    assert done.error.startswith("/sequence/parallel[1]/a[1] failed: RuntimeError: bad")
    assert "; /sequence/parallel[1]/b[1] failed: RuntimeError: bad" in done.error


async def test_a_budget_refuses_only_the_children_beyond_it() -> None:
    with budget(tasks=2):
        done = await run(map_each(echo()).settled(), ["a", "b", "c"])

    assert [it.ending for it in done.output] == [
        Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.REFUSED,
    ]  # fmt: skip
    assert len(done.tree) == 3


async def test_settled_waits_for_all_tasks_and_cancels_none() -> None:
    done = await run(map_each(echo()).settled(), ["a", "bad", "c"])

    assert [one.succeeded for one in done.output] == [True, False, True]
    assert [one.output for one in done.output] == ["<a>", None, "<c>"]
    assert done.output[1].error.startswith("RuntimeError: bad")
    assert done.output[2].result() == "<c>"
    with pytest.raises(TaskFailedError, match=r"/map_each/echo\[2\] failed"):
        done.output[1].result()
    assert list(done.tree.values()) == ["succeeded", "succeeded", "failed", "succeeded"]


def test_the_settings_of_a_fan_out_apply_to_all_its_variants() -> None:
    limits = Limits(seconds=7)
    said = attrs.evolve(parallel(echo(), echo("b")), language="German", limits=limits)

    for other in (said.settled(), said.first(), said.quorum(1)):
        assert (other.language, other.limits, other.fans_out) == ("German", limits, True)


async def test_settled_of_several_types_has_each_type() -> None:
    both = parallel(echo("a"), says("b", '{"text": "x"}', output=Report))
    done = await run(both.settled())

    assert done.output == (
        Settled("/parallel/a[1]", Ending.SUCCEEDED, "<go>"),
        Settled("/parallel/b[1]", Ending.SUCCEEDED, Report("x")),
    )


async def test_the_first_success_is_enough_and_the_others_are_cancelled() -> None:
    done = await run(parallel(echo("slow", 60), echo("quick", 2), BROKEN).first().named("any_of"))

    assert done.output == "<go>"
    assert done.seconds == pytest.approx(2)
    assert done.tree == {
        "/any_of": "succeeded",
        "/any_of/slow[1]": "cancelled",
        "/any_of/quick[1]": "succeeded",
        "/any_of/broken[1]": "failed",
    }


BROKEN = Agent("broken", model=ScriptedModel.always(RuntimeError("it broke")))


async def test_a_race_is_the_first_of_several() -> None:
    done = await run(race(echo("slow", 60), echo("quick", 2)))
    assert (done.output, done.tree["/race/slow[1]"]) == ("<go>", "cancelled")

    lost = await run(race(BROKEN, echo()), "bad")
    assert "/race/broken[1] failed" in lost.error
    assert "/race/echo[1] failed" in lost.error


async def test_a_quorum_is_enough() -> None:
    @agent
    async def work(seconds: int) -> int:
        await trio.sleep(abs(seconds))
        if seconds < 0:
            raise ValueError(seconds)
        return seconds

    done = await run(map_each(work).quorum(2), [60, 3, -1, 2])
    assert done.output == [3, 2]
    assert done.seconds == pytest.approx(3)

    hopeless = await run(map_each(work).quorum(3), [60, 3, -1, -2])
    assert hopeless.seconds == pytest.approx(2)
    assert hopeless.tree["/map_each/work[1]"] == "cancelled"
    few = await run(map_each(work).quorum(3), [1, 2])
    assert "3 must succeed, and there are 2" in few.error


async def test_a_refusal_is_a_failure_of_a_fan_out() -> None:
    rules = Rules(depth=1)
    done = await run(map_each(echo()).settled() >> echo(), ["a"], rules=rules)
    assert '"ending":"refused"' in done.output
    assert "1 level deep" in done.output

    failed = await run(map_each(echo()) >> echo(), ["a"], rules=rules)
    assert "/sequence/map_each[1]/echo refused" in failed.error


async def test_a_budget_that_is_used_up_ends_a_fan_out_over_budget() -> None:
    with budget(calls=2):
        done = await run(map_each(echo(), limit=1), ["a", "b", "c", "d"])

    assert done.run.outcome.ending is Ending.OVER_BUDGET
    assert done.run.outcome.kind == "calls"
    assert len(done.tree) == 4


async def test_map_reduce_merges_the_outputs() -> None:
    @agent
    async def square(number: int) -> int:
        return number * number

    @agent
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    whole = await run(map_reduce(square, total), [1, 2, 3])
    assert whole.output == 14
    assert list(whole.tree)[-1] == "/map_reduce/total[1]"

    grouped = await run(map_reduce(square, total, limit=2, at_once=3), list(range(8)))
    assert grouped.output == 140
    goals = [
        grouped.run.tree[task].goal
        for task in grouped.run.tree
        if grouped.run.tree[task].agent == "total"
    ]
    assert goals == ["[0,1,4]", "[9,16,25]", "[36,49]", "[5,50,85]"]
    assert (await run(map_reduce(square, total), [])).output == 0


async def test_votes_are_counted() -> None:
    done = await run(vote(says("v", "x", "y", "y"), times=3))
    assert done.output == "y"

    tie = await run(vote(says("a", "x"), says("b", "y"), BROKEN))
    assert tie.output == "x"
    same = await run(vote(says("a", "no"), says("b", "Yes"), says("c", "yes"), key=str.lower))
    assert same.output == "Yes"
    lists = await run(
        vote(
            *(
                says(name, f"[{at}]", output=list[int])
                for name, at in (("a", 1), ("b", 2), ("c", 2))
            )
        )
    )
    assert lists.output == [2]
    split = await run(vote(says("a", "x"), says("b", "y"), least=2))
    assert split.error == "no answer has 2 votes: the most that one has is 1 of 2"
    nobody = await run(vote(BROKEN, times=2))
    assert "/vote/broken[2] failed" in nobody.error


async def test_the_best_of_several_is_chosen_by_a_judge() -> None:
    writer = says("writer", "short", "the longest", "longer", "short", RuntimeError("x"), "y")
    assert (await run(best(writer, of=3, by=len))).output == "the longest"
    read: list[str] = []

    def choose(said: Transcript) -> str:
        read.append(said[0].text)
        return "2"

    judge = Agent("judge", model=ScriptedModel.always(choose), output=int)
    done = await run(best(writer, of=3, by=judge))

    assert sorted(_answers(read[0])) == ["short", "y"]
    assert done.output == _answers(read[0])[1]
    assert "/best/judge[1]" in done.tree
    wrong = says("judge", "7", output=int)
    failed = await run(best(echo(), of=2, by=wrong))
    assert failed.error == "judge chose number 7, and there are 2 answers"


def _answers(text: str) -> list[str]:
    return list(json.loads(text)["answers"])


async def test_a_judge_may_be_a_function_that_is_an_agent() -> None:
    @agent
    async def last(candidates: Candidates[str]) -> int:
        return len(candidates.answers)

    assert (await run(best(echo(), of=2, by=last))).output == "<go>"


async def test_best_keeps_its_answers_if_the_budget_runs_out_at_the_judge() -> None:
    with budget(calls=2):
        done = await run(best(echo(), of=2, by=says("judge", "2", output=int)))

    assert done.output == "<go>"
    assert done.tree["/best/judge[1]"] == "over_budget"
    assert "before judge could judge" in done.run.outcome.note


async def test_a_draft_is_refined_until_it_passes() -> None:
    read: list[str] = []

    def draft(said: Transcript) -> str:
        read.append(said[0].text)
        return f"draft {len(read)}"

    writer = Agent("writer", model=ScriptedModel.always(draft))
    critic = says(
        "critic", '{"passes": false, "complaint": "too long"}', '{"passes": true}', output=Review
    )
    done = await run(refine(writer, until=critic))

    assert done.output == "draft 2"
    assert read[1] == ("go\n\nYour last answer:\ndraft 1\n\nWhat is wrong with it:\ntoo long")
    assert list(done.tree)[1:] == [
        "/refine/writer[1]",
        "/refine/critic[1]",
        "/refine/writer[2]",
        "/refine/critic[2]",
    ]


async def test_a_check_may_be_a_function_and_rounds_are_limited() -> None:
    async def slow_check(answer: str) -> str:
        await trio.sleep(1)
        return f"{answer} is wrong"

    failed = await run(refine(echo(), until=slow_check, rounds=2))
    assert failed.error.startswith(
        "no answer passed in 2 rounds; the complaint about the last one: "
    )
    last = await run(refine(echo(), until=lambda _: "never", rounds=2, or_last=True))
    assert "What is wrong with it:\nnever" in last.output
    assert (await run(refine(echo(), until=lambda _: ""))).output == "<go>"


async def test_a_route_is_chosen_by_an_agent_or_a_function() -> None:
    kind = says("kind", " bug\n", "feature")
    routes = {"bug": echo("fixer"), "question": echo("helper")}
    done = await run(route(kind, routes))
    assert list(done.tree) == ["/route", "/route/kind[1]", "/route/fixer[1]"]

    lost = await run(route(kind, routes))
    assert lost.error == "there is no route for 'feature'; there are: 'bug', 'question'"

    def by_length(goal: str) -> str:
        return "bug" if len(goal) > 10 else "other"

    other = await run(route(by_length, routes, otherwise=echo("anybody")))
    assert list(other.tree) == ["/route", "/route/anybody[1]"]


async def test_a_route_may_be_chosen_by_a_literal() -> None:
    @agent
    async def kind(report: Report) -> Literal["long", "short"]:
        return "long" if len(report.text) > 3 else "short"

    @agent
    async def summarize(report: Report) -> str:
        return report.text[:3]

    @agent
    async def keep(report: Report) -> str:
        return report.text

    routed = route(kind, {"long": summarize, "short": keep})
    assert (await run(routed, Report("abcdef"))).output == "abc"
    assert (await run(routed, Report("ab"))).output == "ab"


async def test_retry_asks_again_with_longer_and_longer_pauses() -> None:
    flaky = says("flaky", RuntimeError("1"), RuntimeError("2"), "there")
    done = await run(retry(flaky, times=3, pause=2))

    assert done.output == "there"
    assert done.seconds == pytest.approx(6)
    assert list(done.tree.values()) == ["succeeded", "failed", "failed", "succeeded"]
    failed = await run(retry(BROKEN, times=2))
    assert failed.error.startswith("/retry/broken[2] failed")


async def test_retry_does_not_repeat_a_hopeless_failure() -> None:
    with budget(calls=0):
        done = await run(retry(echo(), times=5))

    assert len(done.tree) == 2
    assert done.run.outcome.ending is Ending.OVER_BUDGET


async def test_fallback_asks_the_next_when_one_fails() -> None:
    done = await run(fallback(BROKEN, echo("b"), echo("c")))

    assert done.output == "<go>"
    assert list(done.tree)[1:] == ["/fallback/broken[1]", "/fallback/b[1]"]
    failed = await run(fallback(BROKEN, echo("b")), "bad")
    assert failed.error.startswith("/fallback/b[1] failed")


async def test_fan_outs_that_fail_are_retried_and_fallen_back_from() -> None:
    done = await run(
        fallback(parallel(BROKEN, echo()), says("b", '["a", "b"]', output=tuple[str, str]))
    )

    assert done.output == ("a", "b")


async def test_a_cancelled_candidate_is_not_replaced() -> None:
    slow = echo("slow", 60)
    async with open_orchestrator(":memory:") as house:
        runs: list[Any] = []

        async def ask(pipeline: Agent[str]) -> None:
            runs.append(await house.run(pipeline, "go"))

        for pipeline in (fallback(slow, echo()), retry(slow)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, pipeline)
                await trio.sleep(1)
                tree = house.tree(house.runs[-1])
                [child] = tree.children(tree.root)
                await house.cancel(child)

        assert all("slow[1] cancelled" in it.outcome.error for it in runs)


async def test_pipelines_nest_three_deep_under_one_budget() -> None:
    inner = map_each(echo("leaf"), limit=2).named("inner")
    middle = map_each(inner).named("middle")
    outer = map_each(middle).named("outer")
    goals = [[["a", "b"], ["c"]], [["d"]]]

    whole = await run(outer, goals)
    assert whole.output == [[["<a>", "<b>"], ["<c>"]], [["<d>"]]]
    assert "/outer/middle[1]/inner[2]/leaf[1]" in whole.tree
    with budget(calls=3):
        short = await run(outer, goals)
    assert short.run.outcome.ending is Ending.OVER_BUDGET
    assert short.run.usage.calls == 3


async def test_combinators_are_delegates_of_models() -> None:
    team = (echo("a") >> echo("b")).named("team")
    boss = Agent("boss", model=ScriptedModel([hand_on("x"), "done"]), delegates=[team])
    done = await run(boss)

    assert done.tree["/boss/team[1]/b[1]"] == "succeeded"


async def test_a_race_is_replayed() -> None:
    pipeline = echo("a") >> race(echo("slow", 60), echo("quick", 2))
    journal = MemoryJournal()
    async with open_orchestrator(journal) as house:
        await house.run(pipeline, "go")
    replayed = await trio.to_thread.run_sync(replay_sync, journal.entries, pipeline)

    assert replayed.difference is None


# No type checker looks at what makes no sense.
ANY: Any = orchestrator


@pytest.mark.parametrize(
    ("define", "problem"),
    [
        (lambda a: ANY.map_each(a, limit=0), "map_each: limit is 0; it must be 1 or more"),
        (lambda a: ANY.map_each(a, limit="5"), "which is not a number"),
        (lambda _: ANY.map_each(len), "is not an agent"),
        (lambda _: ANY.parallel(), "parallel needs 1 agent at least"),
        (ANY.race, "race needs 2 agents at least"),
        (lambda a: ANY.parallel(a, a).quorum(3), "asks 2 agents only"),
        (lambda a: ANY.map_each(a).quorum(0), "quorum is 0"),
        (ANY.sequence, "sequence needs 2 agents"),
        (ANY.fallback, "fallback needs 2 agents"),
        (lambda a: ANY.retry(a, times=0), "retry: times is 0"),
        (lambda a: ANY.retry(a, pause=-1), "retry: pause is -1"),
        (lambda a: ANY.retry(a, pause=float("nan")), "retry: pause is nan"),
        (lambda a: ANY.vote(a, times=0), "vote: times is 0"),
        (lambda a: ANY.vote(a, least=2), "2 votes are needed, and there are 1"),
        (lambda a: ANY.best(a, of=0, by=len), "best: of is 0"),
        (lambda a: ANY.best(a, of=2, by="judge"), "neither a function nor an agent"),
        (lambda a: ANY.refine(a, until=len, rounds=0), "refine: rounds is 0"),
        (lambda a: ANY.refine(a, until="critic"), "neither a function nor an agent"),
        (lambda a: ANY.refine(ANY.map_each(a), until=len), "must take text"),
        (lambda a: ANY.route("a", {"a": a}), "neither a function nor an agent"),
        (lambda _: ANY.route(len, {}), "route needs 1 agent at least"),
        (lambda _: ANY.route(len, {"a": "b"}), "is not an agent"),
        (lambda a: ANY.map_reduce(a, a, at_once=1), "at_once is 1; it must be 2 or more"),
        (
            lambda a: ANY.map_reduce(a, Agent("m", model=a.model, output=int), at_once=2),
            "must have the output type of 'echo'",
        ),
    ],
)
def test_an_invalid_combinator_is_refused_at_definition(
    define: Callable[[Any], Any], problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem):
        define(echo())
