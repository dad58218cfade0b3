"""Code that type checkers must accept, and code that they must refuse.

It is never run. A line that must be refused says so in its comment, and a checker that does not
refuse it finds the comment unneeded, which is an error, too.
"""

from collections.abc import Mapping
from typing import Any, Literal, assert_type

import attrs

from orchestrator import (
    Candidates,
    Child,
    FanOut,
    Orchestrator,
    Review,
    Settled,
    best,
    delegate,
    detach,
    fallback,
    map_each,
    map_reduce,
    parallel,
    race,
    refine,
    retry,
    route,
    sequence,
    vote,
)
from orchestrator.agents import Agent, Pipeline, ScriptedModel, agent
from orchestrator.kernel.pipelines.combinators.fan_out import Items

MODEL = ScriptedModel.always("")


@attrs.frozen
class Topic:
    name: str


@attrs.frozen
class Report:
    text: str


plan = Agent("plan", model=MODEL, output=list[str])
research = Agent("research", model=MODEL)
write = Agent("write", model=MODEL, output=Report)
judge = Agent("judge", model=MODEL, output=int)
critic = Agent("critic", model=MODEL, output=Review)


@agent
async def outline(topic: Topic) -> list[str]:
    return [topic.name]


@agent(name="measurer")
async def measure(text: str) -> int:
    return len(text)


@agent
async def shout(text: str) -> str:
    return text.upper()


@agent
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@agent
async def sized(given: tuple[int, str]) -> str:
    return given[1][: given[0]]


@agent
async def nothing() -> None: ...


@agent
async def several(topic: Topic, words: int) -> Report:
    return Report(f"{topic.name}, {words}")


@agent
async def optional(topic: Topic, words: int = 100) -> Report:
    return Report(f"{topic.name}, {words}")


# What a function takes and gives is what its agent takes and gives.
assert_type(outline, Pipeline[Topic, list[str]])
assert_type(measure, Pipeline[str, int])
assert_type(nothing, Pipeline[object, None])
assert_type(several, Pipeline[Mapping[str, Any], Report])
assert_type(optional, Pipeline[Topic, Report])

# What comes out of one goes into the next.
assert_type(plan >> map_each(research, limit=20) >> write, Pipeline[Any, Report])
assert_type(outline >> map_each(measure) >> total, Pipeline[Topic, int])
assert_type(sequence(outline, map_each(measure), total), Pipeline[Topic, int])
measure >> measure  # type: ignore[operator]  # pyright: ignore
measure >> map_each(measure)  # type: ignore[operator]  # pyright: ignore
research >> map_each(measure)  # type: ignore[operator]  # pyright: ignore
outline >> map_each(measure) >> write >> total  # type: ignore[operator]  # pyright: ignore
outline >> map_each(total)  # type: ignore[arg-type]  # pyright: ignore
sequence(outline, total)  # type: ignore[misc]  # pyright: ignore
research >> "write"  # type: ignore[operator]  # pyright: ignore
measure("text")  # type: ignore[operator]  # pyright: ignore

# Fan-out, and when it is enough.
assert_type(map_each(measure), FanOut[Items[str], list[int], int])
assert_type(map_each(measure).settled(), Pipeline[Items[str], tuple[Settled[int], ...]])
assert_type(map_each(measure).first(), Pipeline[Items[str], int])
assert_type(map_each(measure).quorum(2), Pipeline[Items[str], list[int]])
assert_type(parallel(measure, shout).first(), Pipeline[str, int | str])
assert_type(parallel(measure, shout) >> research, Pipeline[str, str])
both = parallel(measure, shout)
assert_type(both, FanOut[str, tuple[int, str], int | str])
assert_type(parallel(research, write) >> write, Pipeline[Any, Report])
research >> parallel(measure, outline)  # type: ignore[arg-type]  # pyright: ignore
parallel(measure, shout) >> total  # type: ignore[operator]  # pyright: ignore
map_each("measure")  # type: ignore[arg-type]  # pyright: ignore

panel = [measure, measure]
assert_type(parallel(*panel).first(), Pipeline[str, int])

# The others.
assert_type(map_reduce(measure, total), Pipeline[Items[str], int])
map_reduce(measure, measure)  # type: ignore[arg-type]  # pyright: ignore
assert_type(race(measure, measure), Pipeline[str, int])
assert_type(vote(measure, times=3), Pipeline[str, int])
assert_type(best(research, of=3, by=len), Pipeline[Any, str])
assert_type(best(research, of=3, by=judge), Pipeline[Any, str])
best(research, of=3, by=write)  # type: ignore[arg-type]  # pyright: ignore
assert_type(retry(measure, times=2), Pipeline[str, int])
assert_type(fallback(measure, measure), Pipeline[str, int])
research >> fallback(measure, total)  # type: ignore[arg-type]  # pyright: ignore
assert_type(refine(write, until=critic), Pipeline[Any, Report])
assert_type(refine(write, until=lambda report: report.text), Pipeline[Any, Report])
refine(write, until=judge)  # type: ignore[arg-type]  # pyright: ignore
assert_type(route(research, {"a": measure, "b": measure}), Pipeline[str, int])
route(judge, {"a": measure})  # type: ignore[arg-type]  # pyright: ignore


@agent
async def pairs(candidates: Candidates[str]) -> int:
    return len(candidates.answers)


assert_type(best(research, of=2, by=pairs), Pipeline[Any, str])


# What `delegate` takes and returns.
@agent
async def uses_them_all(topic: Topic) -> str:
    assert_type(await delegate(research, "anything"), str)
    assert_type(await delegate(research, topic), str)
    assert_type(await delegate(outline, topic), list[str])
    assert_type(await detach(measure, "text"), Child[int])
    assert_type(await (await detach(measure, "text")).result(), int)
    assert_type(await delegate(both, "text"), tuple[int, str])
    settled = await delegate(map_each(measure).settled(), ["a"])
    assert_type(settled[0].output, int | None)
    assert_type(settled[0].result(), int)
    await delegate(measure, topic)  # type: ignore[misc]  # pyright: ignore
    await delegate(measure, 5)  # type: ignore[misc]  # pyright: ignore
    await delegate(map_each(measure), "text")  # type: ignore[misc]  # pyright: ignore
    await delegate("measure", "text")  # type: ignore[call-overload]  # pyright: ignore
    # The outputs of dependencies are the input.
    length, loud = await detach(measure, "text"), await detach(shout, "text")
    assert_type(await delegate(sized, after=(length, loud)), str)
    assert_type(await detach(total, after=[length, length]), Child[int])
    assert_type(await delegate(measure, after=loud), int)
    assert_type(await delegate(measure, "text", after=[length, loud]), int)
    assert_type(await delegate(research, after=(length, loud)), str)
    await delegate(measure, after=length)  # type: ignore[misc]  # pyright: ignore
    await delegate(sized, after=(loud, length))  # type: ignore[misc]  # pyright: ignore
    await delegate(measure)  # type: ignore[call-overload]  # pyright: ignore
    return ""


async def runs(orchestrator: Orchestrator, anybody: Agent[list[str]]) -> None:
    run = await orchestrator.run(outline, Topic("trio"))
    assert_type(run.output, list[str])
    await orchestrator.run(outline, "trio")  # type: ignore[misc]  # pyright: ignore
    # An agent of which only the output is known takes any input.
    assert_type((await orchestrator.run(anybody, "trio")).output, list[str])
    await runs(orchestrator, outline)
    wrong: Agent[str] = outline  # type: ignore[assignment]  # pyright: ignore
    del wrong


@agent
async def chosen(topic: Topic) -> Literal["bug", "question"]:
    return "bug" if topic.name else "question"


assert_type(route(chosen, {"bug": optional, "question": optional}), Pipeline[Topic, Report])
