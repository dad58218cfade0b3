"""A pipeline is a value made of a function, or of other agents."""

import dataclasses
import enum
from typing import Any, Literal, TypedDict, get_args

import attrs
import pytest
import trio

from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    InputError,
    Limits,
    OutputError,
    Pipeline,
    ScriptedModel,
    TaskContext,
    agent,
)

MODEL = ScriptedModel.always("")


@attrs.frozen
class Topic:
    name: str
    words: int = 100


@dataclasses.dataclass
class Data:
    x: int


class Dictionary(TypedDict):
    x: int


class Colour(enum.Enum):
    RED = "red"


class Nobody:
    """Hands that hand nothing on."""

    task: TaskContext[Any] = TaskContext(agent="a", goal="g", path="/a", deps=5)

    async def delegate(self, agent: Agent[Any, Any], value: Any, /) -> Any:
        raise AssertionError((agent, value))

    async def run_script(self, script: Any, team: Any) -> str:
        raise AssertionError((script, team))


async def call(pipeline: Pipeline[Any, Any], goal: str) -> Any:
    return await pipeline.program(Nobody(), pipeline.parse_goal(goal))


async def test_a_function_is_an_agent_with_its_name_its_docstring_and_its_output() -> None:
    @agent
    async def brief(topic: str) -> list[int]:
        """Write a brief
        of a topic.

        Not for models to read.
        """
        return [len(topic)]

    assert isinstance(brief, Agent)
    assert brief.name == "brief"
    assert brief.instructions == "Write a brief of a topic."
    assert brief.output == list[int]
    assert repr(brief) == "<Pipeline brief>"
    assert await call(brief, "trio") == [4]


def test_a_function_agent_takes_the_options_of_any_agent() -> None:
    helper = Agent("helper", model=MODEL)

    @agent(
        name="boss",
        budget=Budget(usd=1),
        limits=Limits(seconds=5),
        on_restart="lose",
        delegates=[helper],
    )
    async def brief(topic: str) -> str:
        return topic

    assert (brief.name, brief.budget) == ("boss", Budget(usd=1))
    assert (brief.limits.seconds, brief.on_restart) == (5, "lose")
    assert brief.team == (helper,)


async def test_a_single_text_parameter_takes_the_goal_unchanged() -> None:
    @agent
    async def echo(goal: str) -> str:
        return goal

    assert await call(echo, '{"not": "looked at"}') == '{"not": "looked at"}'
    assert echo.as_goal("as it is") == "as it is"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Topic, Topic("trio"), '{"name":"trio","words":100}'),
        (Data, Data(1), '{"x":1}'),
        (Dictionary, {"x": 1}, '{"x":1}'),
        (list[Topic], [Topic("a", 1)], '[{"name":"a","words":1}]'),
        (int, 7, "7"),
        (str | None, None, "null"),
        (str | None, "word", '"word"'),
        (Topic | Data, Data(1), '{"x":1}'),
        (Colour, Colour.RED, '"red"'),
        (Literal["a", "b"], "a", '"a"'),
        (dict[str, list[int]], {"a": [1]}, '{"a":[1]}'),
    ],
)
def test_any_other_type_is_handed_over_as_json(kind: Any, value: Any, text: str) -> None:
    async def function(given: Any) -> Any:
        return given

    function.__annotations__ = {"given": kind, "return": kind}
    same = agent(function)

    assert same.as_goal(value) == text
    assert same.parse_goal(text) == value
    assert same.encode_output(value) == text


async def test_a_word_that_is_taken_needs_no_quotes() -> None:
    """A user of the command line does not type JSON."""

    @agent
    async def paint(colour: Colour) -> str:
        return colour.name

    assert await call(paint, "red") == "RED"


async def test_a_goal_that_is_json_already_is_not_encoded_again() -> None:
    @agent
    async def count(topics: list[str]) -> int:
        return len(topics)

    anything: Any = '["a", "b"]'
    assert await call(count, count.as_goal(anything)) == 2


@pytest.mark.parametrize("goal", ["", "trio", "[]", '{"name": 5}', '{"nam": "trio"}'])
def test_a_goal_that_does_not_fit_is_refused_in_words(goal: str) -> None:
    @agent
    async def brief(topic: Topic) -> str:
        return topic.name

    with pytest.raises(InputError, match="not the Topic that brief takes"):
        brief.parse_goal(goal)


async def test_several_parameters_are_fields_of_one_object() -> None:
    @agent
    async def brief(topic: Topic, words: int, tone: str = "dry") -> str:
        return f"{topic.name} {words} {tone}"

    assert await call(brief, '{"topic": {"name": "a"}, "words": 5}') == "a 5 dry"
    assert brief.as_goal({"topic": Topic("b"), "words": 1, "tone": "wet"}) == (
        '{"tone":"wet","topic":{"name":"b","words":100},"words":1}'
    )
    with pytest.raises(InputError, match="words"):
        brief.parse_goal('{"topic": {"name": "a"}}')
    with pytest.raises(InputError, match="unknown"):
        brief.parse_goal('{"topic": {"name": "a"}, "words": 5, "more": 1}')


async def test_parameters_keep_their_defaults() -> None:
    @agent
    async def brief(topic: str, words: int = 100) -> str:
        return f"{topic} {words}"

    assert await call(brief, "trio") == "trio 100"
    assert await call(brief, '{"topic": "trio", "words": 5}') == "trio 5"
    assert await call(brief, '{"topic": "trio"}') == "trio 100"
    # An object with other fields is a text.
    assert await call(brief, '{"theme": "trio"}') == '{"theme": "trio"} 100'


async def test_a_function_without_parameters_takes_anything() -> None:
    @agent
    async def brief() -> str:
        return "always"

    assert await call(brief, "whatever") == "always"
    assert brief.as_goal(5) == "5"


def test_the_instructions_of_a_function_agent_describe_its_input() -> None:
    """A model that delegates to it must write that JSON."""

    @agent
    async def brief(topic: Topic) -> str:
        """Write a brief."""
        return topic.name

    assert isinstance(brief.instructions, str)
    assert brief.instructions.startswith("Write a brief. Its goal is nothing but JSON")
    assert '"words"' in brief.instructions


def test_the_output_of_a_function_must_match_its_annotation() -> None:
    @agent
    async def number(goal: str) -> int:
        return len(goal)

    @agent
    async def text(goal: str) -> str:
        return goal

    with pytest.raises(OutputError, match="number gave 'five', and promises int"):
        number.encode_output("five")
    with pytest.raises(OutputError, match="text gave 5, and promises str"):
        text.encode_output(5)
    with pytest.raises(DefinitionError, match="cannot be written as JSON"):
        number.encode_output(object())
    assert text.encode_output("5") == "5"
    assert number.encode_output(5, {"maximum": 5}) == "5"
    with pytest.raises(OutputError, match="schema that was asked for"):
        number.encode_output(5, {"maximum": 4})


async def test_a_function_may_promise_to_return_none() -> None:
    @agent
    async def do(goal: str) -> None:
        del goal

    assert do.encode_output(await call(do, "it")) == "null"
    with pytest.raises(OutputError):
        do.encode_output("something")


def test_functions_that_cannot_be_agents_are_refused() -> None:
    def sync(goal: str) -> str:
        return goal

    async def silent(goal: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return goal

    async def untyped(goal) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
        return str(goal)

    async def variadic(*goals: str) -> str:
        return str(goals)

    async def foreign(goal: object) -> str:
        return str(goal)

    async def unwritable(goal: str) -> type[int]:
        raise AssertionError(goal)

    given: list[tuple[Any, str]] = [
        (sync, "async function"),
        (silent, "has no return type"),
        (untyped, "'goal' has no type hint"),
        (variadic, "cannot be passed by name"),
        (foreign, "has an input that JSON cannot carry"),
        (unwritable, "cannot be the output"),
        (MODEL, "async function"),
    ]
    for function, problem in given:
        with pytest.raises(DefinitionError, match=problem):
            agent(function)


def test_an_agent_is_not_called() -> None:
    """The caller forgot `delegate`, and the error says so; the bare function is there for tests."""

    @agent
    async def brief(topic: str) -> str:
        return topic

    uncalled: Any = brief
    with pytest.raises(DefinitionError, match=r"await delegate\(brief"):
        uncalled("trio")
    assert brief.function is not None


def test_the_agents_that_a_function_names_are_its_team() -> None:
    """So their models are looked for before anything begins."""
    near = Agent("near", model=MODEL)
    inside = Agent("inside", model=MODEL)

    @agent
    async def brief(topic: str) -> str:
        async def part() -> Agent[Any]:
            return inside

        return f"{topic} {near.name} {far.name} {part.__name__}"

    assert {it.name for it in brief.team} == {"near", "far", "inside"}


far = Agent("far", model=MODEL)


def test_joined_agents_are_one_sequence_however_they_are_joined() -> None:
    a, b, c = (Agent(name, model=MODEL) for name in "abc")

    for whole in (a >> b >> c, a >> (b >> c)):
        assert whole.name == "sequence"
        assert whole.parts == (a, b, c)
    named = (a >> b).named("both") >> c
    assert [part.name for part in named.parts] == ["both", "c"]


def test_a_sequence_has_the_input_of_its_first_and_the_output_of_its_last_agent() -> None:
    @agent
    async def outline(topic: Topic) -> list[str]:
        return [topic.name]

    writer = Agent("writer", model=MODEL, output=Data)
    whole = outline >> writer

    assert (whole.input, whole.output) == (Topic, Data)


def test_only_an_agent_may_follow_in_a_sequence() -> None:
    not_an_agent: Any = len

    with pytest.raises(DefinitionError, match="it is not an agent"):
        Agent("a", model=MODEL) >> not_an_agent


def test_agent_may_be_subscripted_with_its_output_alone() -> None:
    """`Agent[Report]` takes anything, also where Python cannot know that by itself."""
    assert Agent[int] == Agent[int, Any]
    assert get_args(Pipeline[str, int]) == (str, int)


async def test_a_function_may_ask_for_its_task() -> None:
    @agent
    async def first(task: TaskContext[int], topic: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{topic} {task.deps} {task.path}"

    @agent
    async def last(words: int, /, task: TaskContext[int]) -> int:
        await trio.lowlevel.checkpoint()
        return words + task.deps

    @agent
    async def several(words: int, task: TaskContext, topic: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{words} {topic} {task.deps}"

    @agent
    async def alone(task: TaskContext) -> str:
        await trio.lowlevel.checkpoint()
        return task.goal

    assert await call(first, "tea") == "tea 5 /a"
    assert await call(last, "3") == 8
    assert await call(several, '{"words": 2, "topic": "tea"}') == "2 tea 5"
    assert await call(alone, "anything") == "g"
    assert first.deps is int
    assert alone.deps is None
