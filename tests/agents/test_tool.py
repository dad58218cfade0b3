"""A plain function becomes a tool: what the model reads of it, and how it is run."""

import contextvars
import enum
import functools
import importlib
import queue
from collections.abc import Callable
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
import trio
import trio.testing

from orchestrator.agents import (
    Agent,
    CallId,
    CallKey,
    DefinitionError,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    UserMessage,
    arguments_schema,
    read_arguments,
    take_turn,
    tool,
)
from tests.agents.turn_kit import MemoryHost

session = contextvars.ContextVar("session", default="nobody's")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Place:
    """Somewhere."""

    town: str
    floor: int = attrs.field(default=0, validator=attrs.validators.lt(100))


async def use(used: Tool, **arguments: Any) -> str:
    answer = await used.run(ToolCall(used.name, arguments, id=CallId("1")))
    assert isinstance(answer, str)
    return answer


def parameters_of(function: Callable[..., Any]) -> Any:
    return tool(function).parameters


@tool
async def paint(
    what: str, *, colour: Colour = Colour.RED, coats: int = 1, where: Place | None = None
) -> str:
    """Paint a thing.

    It dries by itself.

    Args:
        what: the thing.
        colour: which one.
        coats: how often;
            more is not always better.
        where: if it matters.

    Returns:
        What it looks like now.
    """
    await trio.lowlevel.checkpoint()
    return f"{what} is {colour.name} {coats} times at {where}"


def test_the_docstring_becomes_the_description_of_the_tool() -> None:
    assert paint.name == "paint"
    assert paint.description == "Paint a thing.\n\nIt dries by itself."


def test_the_schema_comes_from_hints_defaults_and_docstring() -> None:
    assert paint.parameters == {
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "the thing."},
            "colour": {"$ref": "#/$defs/Colour", "description": "which one.", "default": "red"},
            "coats": {
                "type": "integer",
                "description": "how often;\nmore is not always better.",
                "default": 1,
            },
            "where": {
                "anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}],
                "description": "if it matters.",
                "default": None,
            },
        },
        "required": ["what"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {"title": "Colour", "enum": ["blue", "red"]},
            "Place": {
                "title": "Place",
                "description": "Somewhere.",
                "type": "object",
                "properties": {
                    "town": {"type": "string"},
                    "floor": {"type": "integer", "default": 0},
                },
                "required": ["town"],
            },
        },
    }


def test_a_schema_is_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(paint.parameters)) == paint.parameters


def test_a_function_without_a_docstring_has_no_description() -> None:
    def wait() -> None: ...

    silent = tool(wait)

    assert silent.description == ""
    assert silent.parameters == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_a_choice_of_words_is_an_enum() -> None:
    def move(to: Literal["left", "right"]) -> None: ...

    assert parameters_of(move)["properties"]["to"] == {"enum": ["left", "right"]}


async def test_an_annotation_may_restrict_a_type() -> None:
    @tool
    async def wait(seconds: Annotated[int, msgspec.Meta(le=60)]) -> None:
        await trio.sleep(seconds)

    assert wait.parameters["properties"]["seconds"] == {"type": "integer", "maximum": 60}
    with pytest.raises(ToolError, match=r"Expected `int` <= 60 - at `\$.seconds`"):
        await use(wait, seconds=61)


def test_a_tool_may_be_called_otherwise_than_its_function() -> None:
    @tool(name="brush", idempotent=True)
    def paint_it() -> None: ...

    assert (paint_it.name, paint_it.idempotent) == ("brush", True)


def test_a_tool_is_not_idempotent_by_default() -> None:
    async def run(call: ToolCall) -> str:
        await trio.lowlevel.checkpoint()
        return call.name

    own = Tool(name="own", description="", parameters={}, run=run)

    assert not paint.idempotent
    assert not own.idempotent


async def test_arguments_arrive_as_the_types_they_are_hinted_as() -> None:
    where = {"town": "Ulm", "floor": 2}

    painted = await use(paint, what="wall", colour="blue", coats=3, where=where)

    assert painted == "wall is BLUE 3 times at Place(town='Ulm', floor=2)"


async def test_an_omitted_argument_takes_its_default() -> None:
    assert await use(paint, what="wall") == "wall is RED 1 times at None"


async def test_a_default_is_not_shared_between_calls() -> None:
    @tool
    async def collect(into: list[int] = []) -> list[int]:  # noqa: B006
        await trio.lowlevel.checkpoint()
        into.append(1)
        return into

    assert [await use(collect), await use(collect)] == ["[1]", "[1]"]


async def test_a_mutable_default_is_copied_for_each_call() -> None:
    @attrs.define
    class Basket:
        fruit: list[str] = attrs.Factory(lambda: ["apple"])

    @tool
    async def collect(
        tags: list[str] = ["a"],  # noqa: B006
        basket: Basket = Basket(),  # noqa: B008
    ) -> list[str]:
        await trio.lowlevel.checkpoint()
        tags.append("b")
        basket.fruit.append("pear")
        return tags + basket.fruit

    properties = collect.parameters["properties"]
    assert properties["tags"]["default"] == ["a"]
    assert properties["basket"]["default"] == {"fruit": ["apple"]}
    for _ in range(2):
        assert await use(collect) == '["a","b","apple","pear"]'
    assert await use(collect, tags=[], basket={"fruit": []}) == '["b","pear"]'


async def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    """JSON knows one kind of number, and some models write 1.0 for 1."""

    @tool
    async def add(pages: dict[int, list[int]], factor: float, note: Any) -> list[Any]:
        await trio.lowlevel.checkpoint()
        return [pages, factor, note]

    added = await use(add, pages={"2": [3.0, 4]}, factor=2.0, note="x")

    assert added == '[{"2":[3,4]},2.0,"x"]'


@pytest.mark.parametrize("coats", [1.5, 1e300, float("inf"), float("nan")])
async def test_a_fraction_is_refused_as_an_integer(coats: float) -> None:
    with pytest.raises(ToolError, match=r"Expected `int`, got `float` - at `\$.coats`"):
        await use(paint, what="wall", coats=coats)


async def test_keys_that_are_numbers_arrive_as_numbers() -> None:
    """In JSON every key is text, so the model has no other way to write them."""

    @tool
    async def add(amounts: dict[int, int]) -> int:
        await trio.lowlevel.checkpoint()
        return sum(page * count for page, count in amounts.items())

    assert await use(add, amounts={"2": 3, "10": 1}) == "16"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "missing required field `what`"),
        ({"what": 1}, "Expected `str`, got `int` - at `$.what`"),
        ({"what": "wall", "coats": "1"}, "Expected `int`, got `str` - at `$.coats`"),
        ({"what": "wall", "colour": "pink"}, "Invalid enum value 'pink' - at `$.colour`"),
        ({"what": "wall", "where": {"town": 1}}, "got `int` - at `$.where.town`"),
        ({"what": "wall", "size": 1}, "unknown field `size`"),
    ],
)
async def test_an_argument_error_names_the_problem_and_the_place(
    arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ToolError) as caught:
        await use(paint, **arguments)

    assert str(caught.value).startswith("the arguments of paint do not fit: ")
    assert complaint in str(caught.value)


async def test_an_argument_error_holds_the_message_of_the_validator() -> None:
    with pytest.raises(ToolError, match=r"'floor' must be < 100: 300 - at `\$.where`"):
        await use(paint, what="wall", where={"town": "Ulm", "floor": 300})


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (Colour.RED, '"red"'),
        ({"ä": (1, 2)}, '{"ä":[1,2]}'),
    ],
)
async def test_a_result_is_text_or_becomes_json(result: object, text: str) -> None:
    @tool
    async def give() -> object:
        await trio.lowlevel.checkpoint()
        return result

    assert await use(give) == text


async def test_a_result_may_be_made_of_values() -> None:
    @tool
    async def places() -> list[Place]:
        await trio.lowlevel.checkpoint()
        return [Place("Ulm"), Place("Bonn", 3)]

    assert msgspec.json.decode(await use(places)) == [
        {"town": "Ulm", "floor": 0},
        {"town": "Bonn", "floor": 3},
    ]


async def test_a_result_that_is_not_json_is_a_definition_error() -> None:
    @tool
    async def give() -> object:
        await trio.lowlevel.checkpoint()
        return object()

    with pytest.raises(DefinitionError, match="tool 'give' returned object"):
        await use(give)


@pytest.mark.parametrize("error", [ToolError("not today"), ValueError("oops")])
async def test_the_error_of_a_tool_is_raised_unchanged(error: Exception) -> None:
    @tool
    async def refuse() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    with pytest.raises(type(error)) as caught:
        await use(refuse)

    assert caught.value is error


@pytest.mark.realtime
async def test_a_sync_function_runs_in_a_worker_thread() -> None:
    """So it may wait without holding up every other agent."""

    @tool
    def is_in_the_way() -> bool:
        return trio.lowlevel.in_trio_run()

    assert await use(is_in_the_way) == "false"


@pytest.mark.realtime
async def test_a_sync_function_sees_the_context_of_its_task() -> None:
    @tool
    def whose() -> str:
        return session.get()

    token = session.set("ours")

    assert await use(whose) == "ours"
    session.reset(token)


@pytest.mark.realtime
async def test_a_sync_function_may_raise_a_tool_error() -> None:
    @tool
    def refuse(why: str) -> None:
        raise ToolError(why)

    with pytest.raises(ToolError, match="not today"):
        await use(refuse, why="not today")


async def test_a_call_that_takes_too_long_is_stopped() -> None:
    stopped: list[str] = []

    @tool(timeout=5)
    async def lookup(word: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            stopped.append(word)

    with pytest.raises(ToolError) as caught:
        await use(lookup, word="trio")

    assert trio.current_time() == pytest.approx(5, abs=0.1)
    assert stopped == ["trio"]
    assert str(caught.value) == (
        "lookup did not answer within 5 seconds and was stopped;"
        " ask it for less, or go on without it"
    )


async def test_a_call_that_is_quick_enough_is_answered() -> None:
    @tool(timeout=5)
    async def lookup() -> str:
        await trio.sleep(4.9)
        return "found"

    assert await use(lookup) == "found"


async def test_a_parameter_may_have_any_name() -> None:
    @tool(timeout=5)
    async def ring(called: str, name: str, seconds: int, function: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{called} {name} {seconds} {function}"

    assert await use(ring, called="a", name="b", seconds=1, function="c") == "a b 1 c"


@pytest.mark.parametrize("error", [TimeoutError("slow net"), trio.TooSlowError()])
async def test_a_timeout_error_of_the_tool_itself_is_raised_unchanged(error: Exception) -> None:
    @tool(timeout=5)
    async def lookup() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    with pytest.raises(type(error)) as caught:
        await use(lookup)

    assert caught.value is error


async def test_a_cancelled_call_is_not_reported_as_slow() -> None:
    @tool(timeout=5)
    async def lookup() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(1) as scope:
        await use(lookup)

    assert scope.cancelled_caught


@pytest.mark.realtime
async def test_a_thread_that_takes_too_long_is_abandoned() -> None:
    """A thread cannot be stopped, so the model reads that its work may yet be done."""
    gate: queue.SimpleQueue[None] = queue.SimpleQueue()
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @tool(timeout=0.01)
    def lookup() -> None:
        gate.get(timeout=60)
        ended.put("yet happened")

    with pytest.raises(ToolError) as caught:
        await use(lookup)

    assert str(caught.value) == (
        "lookup did not answer within 0.01 seconds and was abandoned;"
        " it may still be running, and its effects may still happen"
    )
    gate.put(None)
    assert ended.get(timeout=60) == "yet happened"


@pytest.mark.realtime
async def test_hanging_calls_take_no_thread_from_other_calls() -> None:
    """The journal is written in a thread as well."""
    gate: queue.SimpleQueue[None] = queue.SimpleQueue()

    @tool(timeout=0.01)
    def hang() -> None:
        gate.get(timeout=60)

    async def use_in_vain() -> None:
        with pytest.raises(ToolError, match="hang did not answer"):
            await use(hang)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(use_in_vain)

    places = trio.to_thread.current_default_thread_limiter()
    assert places.borrowed_tokens == 0
    for _ in range(50):
        gate.put(None)


@pytest.fixture
def set_grace(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    # By its module: `orchestrator.agents.tools.tool` may also mean the function.
    module = importlib.import_module("orchestrator.agents.tools.tool")
    return functools.partial(monkeypatch.setattr, module, "GRACE_SECONDS")


@pytest.mark.realtime
@pytest.mark.parametrize("seconds", [None, 60])
async def test_a_cancelled_thread_is_waited_for(
    seconds: float | None, set_grace: Callable[[float], None]
) -> None:
    """Cancel means joined."""
    set_grace(60)
    gate: queue.SimpleQueue[None] = queue.SimpleQueue()
    ended: list[str] = []
    answers: list[str] = []

    @tool(timeout=seconds)
    def write() -> str:
        gate.get(timeout=60)
        ended.append("written")
        return "not used"

    async def keep_the_answer() -> None:
        answers.append(await use(write))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_the_answer)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        await wait_until_it_is_waited_for()
        assert ended == []
        gate.put(None)

    assert (ended, answers) == (["written"], [])


async def wait_until_it_is_waited_for() -> None:
    with trio.CancelScope(shield=True):
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.realtime
@pytest.mark.parametrize("seconds", [None, 60])
@pytest.mark.parametrize("late", ["a return", "an error"])
async def test_a_cancelled_thread_that_does_not_end_is_abandoned(
    late: str, seconds: float | None, set_grace: Callable[[float], None]
) -> None:
    """Every cleanup is bounded; a late result is ignored."""
    set_grace(0.01)
    gate: queue.SimpleQueue[None] = queue.SimpleQueue()
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @tool(timeout=seconds)
    def hang() -> str:
        gate.get(timeout=60)
        ended.put(late)
        if late == "an error":
            raise ValueError(late)
        return late

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, hang)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    assert ended.empty()
    gate.put(None)
    assert ended.get(timeout=60) == late
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.realtime
async def test_a_thread_may_ask_whether_it_is_cancelled(set_grace: Callable[[float], None]) -> None:
    """So one that works on for long ends within its grace."""
    set_grace(60)
    cancelled: queue.SimpleQueue[None] = queue.SimpleQueue()
    ended: list[str] = []

    @tool
    def work() -> None:
        cancelled.get(timeout=60)
        try:
            trio.from_thread.check_cancelled()
        finally:
            ended.append("early")

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, work)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            await wait_until_it_is_waited_for()
            cancelled.put(None)

    assert ended == ["early"]


@pytest.mark.realtime
async def test_a_call_that_has_no_thread_yet_is_cancelled_at_once(
    set_grace: Callable[[float], None],
) -> None:
    set_grace(60)
    gate: queue.SimpleQueue[None] = queue.SimpleQueue()
    begun: list[int] = []

    @tool
    def wait(number: int) -> None:
        begun.append(number)
        gate.get(timeout=60)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(functools.partial(use, wait, number=number))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(30), trio.CancelScope() as scope:
            scope.cancel()
            await use(wait, number=98)
        with trio.fail_after(30), trio.move_on_after(0.01):
            await use(wait, number=99)
        for _ in range(40):
            gate.put(None)

    assert sorted(begun) == list(range(40))


@pytest.mark.realtime
async def test_a_thread_that_is_too_slow_has_no_grace(set_grace: Callable[[float], None]) -> None:
    set_grace(60)
    gate: queue.SimpleQueue[None] = queue.SimpleQueue()

    @tool(timeout=0.01)
    def hang() -> None:
        gate.get(timeout=60)

    with trio.fail_after(30):
        with pytest.raises(ToolError, match="hang did not answer"):
            await use(hang)
    gate.put(None)


@pytest.mark.realtime
@pytest.mark.parametrize("seconds", [None, 60])
async def test_the_error_of_a_threaded_tool_is_raised_unchanged(seconds: float | None) -> None:
    error = ValueError("oops")

    @tool(timeout=seconds)
    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="oops") as caught:
        await use(fail)

    assert caught.value is error
    assert (error.__cause__, error.__context__) == (None, None)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "x"])
def test_an_impossible_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="'look_at': its timeout"):
        tool(timeout=timeout)(look_at)


@pytest.mark.parametrize("wrong", [{"limit": "x"}, {"limit": -1}, {"name": 3}])
def test_an_invalid_limit_or_name_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"no answer has|cannot be the name"):
        tool(**wrong)(look_at)


async def test_a_method_is_a_function_too() -> None:
    class Shelf:
        async def take(self, book: str) -> str:
            await trio.lowlevel.checkpoint()
            return f"took {book}"

    assert await use(tool(Shelf().take), book="Emma") == "took Emma"


def positional(word: str, /) -> None: ...
def many(*words: str) -> None: ...
def anything(**words: str) -> None: ...
def unhinted(word) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def unknown(word: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def imaginary(number: complex) -> None: ...
def two_kinds(place: Place | Colour | bytes) -> None: ...
def opaque(event: trio.Event) -> None: ...
def unencodable(words: list[Any] = [1j]) -> None: ...  # noqa: B006
def look_at(words: list[str]) -> None: ...


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (positional, "parameter 'word: str' cannot be given by name"),
        (many, "parameter '*words: str' cannot be given by name"),
        (anything, "parameter '**words: str' cannot be given by name"),
        (unhinted, "parameter 'word' has no type hint"),
        (unknown, "Nowhere"),
        (imaginary, "has a parameter that JSON cannot carry"),
        (opaque, "has a parameter that JSON cannot carry"),
        (two_kinds, "has a parameter that JSON cannot carry"),
        (unencodable, "has a parameter that JSON cannot carry"),
        (min, "does not name its parameters"),
    ],
)
def test_a_function_that_no_model_can_call_is_refused(
    function: Callable[..., Any], complaint: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        tool(function)

    assert str(caught.value).startswith(f"tool {function.__name__!r}")
    assert complaint in str(caught.value)


class Looking:
    def __call__(self, words: list[str]) -> None: ...


@pytest.mark.parametrize(
    "not_a_function", [functools.partial(look_at, words=[]), Looking(), Looking, 1]
)
@pytest.mark.parametrize("make", [tool, tool(name="look")])
def test_a_value_that_is_not_a_function_is_refused(make: Any, not_a_function: object) -> None:
    """It has no type hints of its own, or no name."""
    with pytest.raises(DefinitionError, match="is not a function: write one"):
        make(not_a_function)


@pytest.mark.parametrize("name", ["", "look up", "<lambda>", "läuft", "a.b", "x" * 65])
def test_a_name_that_no_model_can_write_is_refused(name: str) -> None:
    """Providers take letters, digits, '-' and '_', and 64 of them."""
    with pytest.raises(DefinitionError, match="name"):
        tool(name=name)(look_at)


def test_a_tool_may_have_the_name_of_a_type_it_takes() -> None:
    @tool(name="Place")
    def go(to: Place) -> None: ...

    assert go.parameters["properties"]["to"]["$ref"].startswith("#/$defs/")


def test_a_tool_of_ones_own_reads_its_arguments_alike() -> None:
    """`delegate_task` is made without a function."""

    class Wish(msgspec.Struct):
        goal: str
        place: Place | None = None

    schema = arguments_schema(Wish)

    assert (schema["required"], list(schema["$defs"])) == (["goal"], ["Place"])
    wish = read_arguments(ToolCall("wish", {"goal": "x", "place": {"town": "Ulm"}}), Wish)
    assert wish == Wish("x", Place("Ulm"))
    with pytest.raises(ToolError, match=r"the arguments of wish do not fit: .* `\$.goal`"):
        read_arguments(ToolCall("wish", {"goal": 1}), Wish)


async def test_a_tool_that_asks_for_the_key_of_its_call_is_safe_to_repeat() -> None:
    keys: list[str] = []

    @tool
    async def pay(amount: int, key: CallKey) -> str:
        """Pay."""
        await trio.lowlevel.checkpoint()
        keys.append(key)
        return f"paid {amount}"

    assert pay.idempotent
    assert list(pay.parameters["properties"]) == ["amount"]
    model = ScriptedModel([ToolCall("pay", {"amount": 3}), "done"])
    agent = Agent("payer", model=model, tools=[pay])
    await take_turn(
        agent, [UserMessage("pay")], model=model, tools=agent.tools, host=MemoryHost(), task="t_1"
    )

    assert keys == ["t_1/call_1_0"]
