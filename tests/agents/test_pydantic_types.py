"""Types of pydantic are promised, taken and given like any other, and pydantic reads them."""

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import annotated_types
import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import trio

from orchestrator.agents import (
    Agent,
    CallId,
    DefinitionError,
    OutputError,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    UserMessage,
    agent,
    read_output,
    take_turn,
    tool,
)
from orchestrator.agents.output.codec import codec_of
from orchestrator.agents.output.typed import encoded, output_schema
from tests.agents.turn_kit import MemoryHost


class Day(pydantic.BaseModel):
    date: dt.date
    km: pydantic.PositiveInt = 3


class Trip(pydantic.BaseModel):
    """A journey."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    name: str = pydantic.Field(alias="tripName", description="how it is called")
    days: list[Day] = []
    tags: set[str] = set()

    @pydantic.field_validator("name")
    @classmethod
    def _is_said(cls, name: str) -> str:
        if not name:
            raise ValueError("say a name")
        return name

    @pydantic.computed_field
    def length(self) -> int:
        return len(self.days)


@pydantic.dataclasses.dataclass
class Point:
    x: pydantic.PositiveInt


@attrs.frozen
class Place:
    town: str


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


Animal = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
TRIP = Trip(tripName="Alps", days=[Day(date=dt.date(2026, 1, 2))], tags={"a"})


@pytest.mark.parametrize(
    ("promised", "text", "output"),
    [
        (Trip, '{"tripName": "Alps", "days": [{"date": "2026-01-02"}], "tags": ["a"]}', TRIP),
        (Trip, '{"name": "Alps", "days": [{"date": "2026-01-02"}], "tags": ["a"]}', TRIP),
        (Point, '{"x": 1}', Point(1)),
        (list[Point], '[{"x": 1}]', [Point(1)]),
        (Animal, '{"kind": "dog"}', Dog(kind="dog")),
        (Cat | Dog, '{"kind": "cat", "lives": 9}', Cat(kind="cat", lives=9)),
        (Point | None, "null", None),
        # Each by its own library.
        (Point | Place, '{"town": "Ulm"}', Place("Ulm")),
        (Point | Place, '{"x": 2}', Point(2)),
        (dict[str, list[Point]], '{"a": [{"x": 1}]}', {"a": [Point(1)]}),
        (pydantic.PositiveInt, "4", 4),
        (Annotated[int, annotated_types.Gt(3)], "4", 4),
    ],
)
def test_an_answer_is_read_by_pydantic(promised: Any, text: str, output: object) -> None:
    assert read_output(promised, text) == output
    # What is written of it is read as the same.
    assert read_output(promised, encoded(output, "a", promised)) == output


@pytest.mark.parametrize(
    ("promised", "text", "problems"),
    [
        (
            Trip,
            '{"tripName": "", "more": 1}',
            ("say a name - at `$.tripName`", "Extra inputs are not permitted - at `$.more`"),
        ),
        (
            Trip,
            '{"tripName": "a", "days": [{"date": "2026-01-02", "km": -1}]}',
            ("Input should be greater than 0 - at `$.days[0].km`",),
        ),
        (Point, '{"x": 0}', ("Input should be greater than 0 - at `$.x`",)),
        (pydantic.PositiveInt, "0", ("Input should be greater than 0",)),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_every_reason(
    promised: Any, text: str, problems: tuple[str, ...]
) -> None:
    with pytest.raises(OutputError) as caught:
        read_output(promised, text)

    assert caught.value.problems == problems


def test_only_the_first_of_many_problems_are_named() -> None:
    with pytest.raises(OutputError) as caught:
        read_output(list[Point], f"[{','.join(['{}'] * 30)}]")

    assert len(caught.value.problems) == 11
    assert caught.value.problems[-1] == "and 20 more"


def test_the_schema_has_all_definitions_at_its_root() -> None:
    schema = output_schema(dict[str, Trip] | Place)

    assert schema is not None
    assert set(schema["$defs"]) == {"Day", "Trip", "Place"}
    assert schema["$defs"]["Trip"]["properties"]["tripName"] == {
        "description": "how it is called",
        "title": "Tripname",
        "type": "string",
    }


def test_two_definitions_of_one_name_get_two_names() -> None:
    def other() -> Any:
        class Day(pydantic.BaseModel):
            hours: int

        class Week(pydantic.BaseModel):
            days: list[Day]

        return Week

    async def plan(trip: Trip, week: Any) -> None: ...

    plan.__annotations__["week"] = other()
    definitions = tool(plan).parameters["$defs"]

    assert set(definitions) == {"Day", "Day_2"}
    assert set(definitions["Day_2"]["properties"]) == {"hours"}
    week = tool(plan).parameters["properties"]["week"]
    assert week["properties"]["days"]["items"] == {"$ref": "#/$defs/Day_2"}


def test_encoded_sets_are_sorted_in_every_process() -> None:
    class Nested(pydantic.BaseModel):
        names: set[str]
        groups: dict[str, list[frozenset[str]]]

    names = {f"name {number}" for number in range(50)}
    nested = Nested(names=names, groups={"a": [frozenset(names)]})

    for text in (encoded(nested, "a"), encoded(nested, "a", Nested)):
        assert msgspec.json.decode(text) == {
            "names": sorted(names),
            "groups": {"a": [sorted(names)]},
        }


async def use(used: Tool, **arguments: Any) -> str:
    answer = await used.run(ToolCall(used.name, arguments, id=CallId("1")))
    assert isinstance(answer, str)
    return answer


@tool
async def book(
    trip: Trip,
    point: Point,
    place: Place,
    days: Annotated[int, pydantic.Field(le=9)] = 2,
    other: Trip = TRIP,
) -> Trip:
    """Book a trip.

    Args:
        trip: which one.
        point: where from.
        place: where to.
        days: how many.
        other: if it is taken.
    """
    await trio.lowlevel.checkpoint()
    assert isinstance(point, Point)
    assert isinstance(place, Place)
    assert other == TRIP
    return trip.model_copy(update={"name": f"{trip.name} in {days}"})


async def test_a_tool_takes_and_gives_types_of_pydantic() -> None:
    answer = await use(book, trip={"tripName": "Alps"}, point={"x": 1}, place={"town": "Ulm"})

    assert answer == '{"tripName":"Alps in 2","days":[],"tags":[],"length":0}'


async def test_arguments_that_do_not_fit_never_reach_the_tool() -> None:
    with pytest.raises(ToolError) as caught:
        await use(book, trip={"tripName": "", "days": [{}]}, point={"x": 1}, place={"town": "Ulm"})

    assert str(caught.value) == (
        "the arguments of book do not fit: say a name in `tripName`; Field required in"
        " `days[0].date` - at `$.trip`"
    )


def test_the_schema_of_a_tool_describes_its_parameters() -> None:
    properties = book.parameters["properties"]

    assert properties["trip"]["description"] == "which one."
    assert properties["days"] == {
        "description": "how many.",
        "maximum": 9,
        "type": "integer",
        "default": 2,
    }
    assert properties["other"]["default"]["name"] == "Alps"
    assert book.parameters["required"] == ["trip", "point", "place"]


async def test_the_model_reads_the_problems_and_answers_again() -> None:
    seen: list[str] = []

    def second(transcript: Any) -> str:
        seen.append(transcript[-1].text)
        return '{"tripName": "Alps"}'

    traveller = Agent("traveller", model=ScriptedModel(['{"tripName": ""}', second]), output=Trip)
    text = await take_turn(
        traveller,
        [UserMessage("go")],
        model=traveller.model,  # type: ignore[arg-type]
        tools=(),
        host=MemoryHost(),
    )

    assert read_output(Trip, text) == Trip(tripName="Alps")
    assert "say a name - at `$.tripName`" in seen[0]


def test_a_pipeline_takes_and_gives_types_of_pydantic() -> None:
    @agent
    async def first(trip: Trip, days: list[Day], best: Day | None = None) -> Point:
        await trio.lowlevel.checkpoint()
        return Point(1)

    given = first.parse_goal(first.as_goal({"trip": TRIP, "days": TRIP.days}))

    assert given.trip == TRIP
    assert given.days == TRIP.days
    assert first.encode_output(Point(1)) == '{"x":1}'
    with pytest.raises(OutputError, match=r"promises Point: Input should be an object"):
        first.encode_output("a point")


def test_a_type_that_no_library_reads_is_refused_in_a_sentence() -> None:
    class Opaque: ...

    with pytest.raises(DefinitionError, match="Opaque is not a type that JSON can be"):
        Agent("a", model="m", output=Opaque)

    @attrs.frozen
    class Mixed:
        point: Point

    with pytest.raises(DefinitionError, match="Mixed is read by msgspec, and has"):
        Agent("a", model="m", output=Mixed)

    class Unknown(pydantic.BaseModel):
        it: "Missing"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DefinitionError, match="pydantic cannot read"):
        Agent("a", model="m", output=Unknown)

    class Called(pydantic.BaseModel):
        it: Callable[[], int]

    with pytest.raises(DefinitionError, match="no JSON schema of Called"):
        Agent("a", model="m", output=Called)


def test_an_old_pydantic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic, "VERSION", "2.10.6")

    class Fresh(pydantic.BaseModel): ...

    with pytest.raises(DefinitionError, match=r"needs pydantic 2\.11 or newer"):
        codec_of(Fresh)


def test_a_type_that_pydantic_must_check_is_refused_without_pydantic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    with pytest.raises(DefinitionError, match="pip install pydantic"):
        codec_of(Annotated[int, annotated_types.Gt(41)])


def test_pydantic_is_imported_only_for_its_types() -> None:
    program = (
        "import sys, attrs\n"
        "from orchestrator.agents import Agent, ScriptedModel, tool\n"
        "@attrs.frozen\n"
        "class Place: town: str\n"
        "@tool\n"
        "def go(place: Place) -> Place: return place\n"
        "Agent('a', model=ScriptedModel([]), tools=[go], output=list[Place])\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
